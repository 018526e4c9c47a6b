"""Isolation of pods whose namespace is not privileged: as whom they run, and what bubblewrap shows them of the machine.

    agent is root, bubblewrap works   the namespace's own user; processes, IPC, /tmp and /dev/shm of its own; nothing of the agent
    agent is root, no bubblewrap      the namespace's own user, and what file modes keep from it
    ordinary user, bubblewrap works   the agent's user, but processes, IPC, /tmp and /dev/shm of its own, no home folders, the
                                      rest of the machine read-only
    else                              such pods are refused

The process runtime decides once for a pod, when it makes its sandbox, and writes it into the pod's folder.
"""

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.runtimes.base import CreateError, Isolation, Mount, StartError
from app.runtimes.process.pod_users import UserRange, is_mapped
from app.runtimes.process.security_context import AgentRights

RECORD = ".sandbox"
TMP = ".tmp"
UNFINISHED = ".new-"
_TMP_TARGETS = ("/tmp", "/var/tmp")  # noqa: S108 - of the container, where they are its pod's own
_OF_USERS = (Path("/home"), Path("/run/user"))
_PROGRAMS = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *(
        "/usr/bin",
        "/usr/sbin",
        "/usr/lib",
        "/usr/lib32",
        "/usr/lib64",
        "/usr/libx32",
        "/usr/local/lib",
        "/usr/local/lib64",
    ),
    *("/etc/ld.so.cache", "/etc/ld.so.preload"),
)
_NEVER = frozenset({"bin", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys", "usr"})
REFUSED = (
    "its namespace is not privileged, and this node cannot keep its pods apart: {why}. Use another node, or label the namespace "
    "pod-security.kubernetes.io/enforce=privileged"
)


class SandboxRecord(msgspec.Struct, frozen=True):
    """Of an isolated pod: the UID of its namespace, and the user that it runs as, if not the agent's."""

    namespace_uid: str
    user: int | None = None


UNREADABLE = SandboxRecord("")  # nothing of such a pod may start


@dataclass(frozen=True, kw_only=True)
class View:
    """What an isolated container gets. Without bubblewrap only `user` counts.

    tmp:       the pod's own folder for temporary files.
    hidden:    folders of the machine that are empty for it.
    read_only: all of the machine is, but for mounts.
    """

    user: int | None
    tmp: Path
    hidden: Sequence[Path]
    read_only: bool

    def mounts(self, others: Sequence[Mount], *, read_only: bool) -> list[Mount]:
        """Of temporary files, unless volumes are mounted there."""
        taken = {os.path.normpath(each.target) for each in others} | set(fresh_tmp(others))
        free = [target for target in _TMP_TARGETS if target not in taken and os.path.isdir(target)]
        return [Mount(source=self.tmp, target=target, read_only=read_only) for target in free]


def fresh_tmp(mounts: Sequence[Mount]) -> list[str]:
    """Folders of temporary files in which something is mounted: a new, empty one, as the pod could put a link in the way."""
    targets = [os.path.normpath(each.target) for each in mounts]
    return [tmp for tmp in _TMP_TARGETS if tmp not in targets and any(each.startswith(f"{tmp}/") for each in targets)]


def check_nesting(shown: View, mounts: Sequence[Mount]) -> None:
    """Raises StartError for a mount within what the pod, or another user, can write to, and for one over the machine's programs.

    bubblewrap makes mount points with root's rights, and follows the links that it meets, even to the machine's own files. And
    what it runs then, before the rights are given up, is setpriv with its libraries, as the container sees them.
    """
    if shown.user is None:
        return  # bubblewrap has no other rights than the pod
    _check_programs(mounts)
    own = (*replaced(shown, mounts), *_TMP_TARGETS)
    writable = {os.path.normpath(each.target) for each in mounts if not each.read_only}
    for target in (os.path.realpath(each.target) for each in mounts):
        outer = next((each for each in writable if target.startswith(f"{each}/")), "")
        if not outer and not any(target.startswith(f"{each}/") for each in own):
            outer = _find_writable(Path(target))
        if outer:
            raise StartError(
                f'cannot mount at "{target}": its pod is isolated and can write to "{outer}": mount it elsewhere'
            )


def _check_programs(mounts: Sequence[Mount]) -> None:
    """Raises StartError for a mount over, within or above what a program is loaded from."""
    program = shutil.which("setpriv")
    kept = {*_PROGRAMS, *(() if program is None else (os.path.dirname(os.path.realpath(program)),))}
    for target in (os.path.realpath(each.target) for each in mounts):
        for folder in kept:
            if target == folder or target.startswith(f"{folder}/") or folder.startswith(f"{target.rstrip('/')}/"):
                raise StartError(
                    f'cannot mount at "{target}": its pod is isolated, and programs come from "{folder}": mount it elsewhere'
                )


def _find_writable(target: Path) -> str:
    """Return a folder of the machine above a mount point in which others than root can put a link; empty if there is none."""
    there = next(each for each in (target, *target.parents) if os.path.lexists(each))
    for folder in there.parents:
        found = folder.stat()
        if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return str(folder)
    return ""


def how(agent: AgentRights, users: UserRange, bubblewrap: str) -> Isolation:
    """Return how far pods can be isolated here."""
    if agent.user == 0:
        if find_obstacle(agent, users, bubblewrap):
            return "none"
        return "user-and-sandbox" if bubblewrap else "user"
    return "sandbox" if bubblewrap else "none"


def find_obstacle(agent: AgentRights, users: UserRange, bubblewrap: str) -> str:
    """Return why pods cannot be isolated here; empty if they can."""
    if agent.user != 0:
        return "" if bubblewrap else "the agent is not root, and bubblewrap is not usable"
    if not agent.may_change:
        return "the agent lacks the program setpriv, or the capabilities to change its user"
    if not is_mapped(users, _uid_map()):
        return f"the agent's user namespace lacks the ids {users}: set JOBPLANE_POD_UID_RANGE"
    return ""


def refuse_if(obstacle: str) -> None:
    """Raises CreateError."""
    if obstacle:
        raise CreateError(REFUSED.format(why=obstacle))


def make_sandbox(pod: Path, record: SandboxRecord) -> None:
    """Make the pod's folder, which is never there without the record. Raises OSError."""
    fresh = pod.with_name(f"{UNFINISHED}{pod.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    (fresh / RECORD).write_bytes(msgspec.json.encode(record))
    (fresh / TMP).mkdir()
    if record.user is not None:
        os.chown(fresh / TMP, record.user, record.user)
    (fresh / TMP).chmod(0o1777)
    fresh.rename(pod)


def remove_unfinished(root: Path) -> None:
    """Remove what an agent left that was killed while it made a sandbox."""
    for fresh in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(fresh, ignore_errors=True)


def read_record(pod: Path) -> SandboxRecord | None:
    """None of a pod that is not isolated; `UNREADABLE` if the machine lost power before the record was on disk."""
    try:
        return msgspec.json.decode((pod / RECORD).read_bytes(), type=SandboxRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        return UNREADABLE


def view(pod: Path, record: SandboxRecord, private: Sequence[Path]) -> View:
    """Return what containers of the pod get. `private`: folders of the agent."""
    own = record.user is not None
    return View(
        user=record.user,
        tmp=pod / TMP,
        hidden=_outermost([each for each in (*private, *(() if own else _OF_USERS)) if each.is_dir()]),
        read_only=not own,
    )


def arguments(shown: View, mounts: Sequence[Mount]) -> list[str]:
    """bubblewrap's arguments that come between the machine's files and the mounts."""
    result = ["--unshare-pid", "--unshare-ipc", "--proc", "/proc", "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108
    for tmp in fresh_tmp(mounts):
        result += ["--perms", "1777", "--tmpfs", tmp]
    for folder in _visible(shown):
        result += ["--perms", "0755", "--tmpfs", str(folder)]
    return result


def last_arguments(shown: View) -> list[str]:
    """bubblewrap's arguments that come after the mounts."""
    return [part for folder in _visible(shown) for part in ("--remount-ro", str(folder))]


def replaced(shown: View, mounts: Sequence[Mount]) -> list[str]:
    """Return folders in which mount points can be made, as they are the container's own."""
    return ["/dev/shm", *fresh_tmp(mounts), *map(str, _visible(shown))]  # noqa: S108


def _visible(shown: View) -> list[Path]:
    """Those that the container's own temporary folders do not hide anyway."""
    return [each for each in shown.hidden if not any(each.is_relative_to(target) for target in _TMP_TARGETS)]


def _outermost(folders: Sequence[Path]) -> list[Path]:
    """Without those that programs need, such as the home of an account of the system."""
    real = {each.resolve() for each in folders}
    kept = [each for each in sorted(real) if len(each.parts) > 1 and each.parts[1] not in _NEVER]
    return [each for each in kept if not any(outer in each.parents for outer in kept)]


def _uid_map() -> str:
    return Path("/proc/self/uid_map").read_text(encoding="ascii")
