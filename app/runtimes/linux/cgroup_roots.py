"""Cgroup root: where an agent may make cgroups for its containers, found once at the start.

Below the agent's own cgroup, so that what holds for the agent holds for its containers:

version 1  in each hierarchy, next to nothing else.
version 2  a cgroup that shares out controllers has no processes of its own. So they are made beside the agent's cgroup
           (with systemd: Delegate=yes and DelegateSubgroup=agent, in that of its unit), or at the top if the agent is
           there. Where that may not be written and the agent is alone in its cgroup, they are made in it, and the
           agent moves into one called `agent` inside.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from app.runtimes.linux.cgroups import LIMITING, Cgroups
from app.structured_logging import Logger

AUTO, NONE = "auto", "none"
TURNED_OFF = "they are turned off"
LEAF = "agent"
WANTED = ("memory", "cpu", "pids")
REMEDY = (
    "give it a cgroup of its own (systemd: Delegate=yes and DelegateSubgroup=agent; an ordinary user: "
    "systemd-run --user --scope -p Delegate=yes jobplane ...), or run it as root"
)
logger = Logger(__name__)

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """The kernel's files about this process; tests pass others."""

    mounts: str
    own: str
    pid: int

    @classmethod
    def here(cls) -> "Kernel":
        return cls(
            mounts=Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape"),
            own=Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape"),
            pid=os.getpid(),
        )


class FoundCgroups(NamedTuple):
    """The cgroups, or why there are none or not all. `why` is empty if limits are kept."""

    cgroups: Cgroups | None
    why: str


class _Hierarchy(NamedTuple):
    top: Path
    here: Path


def find(state: Path, setting: str = AUTO, pids: int = 0, kernel: Kernel | None = None) -> FoundCgroups:
    """`state` tells agents of one machine apart. `setting`: auto, none, or a folder of version 2 to make them in."""
    if setting == NONE:
        return FoundCgroups(None, TURNED_OFF)
    kernel = kernel or Kernel.here()
    name = f"jobplane-{sha256(os.fsencode(state.resolve())).hexdigest()[:10]}"
    reasons: list[str] = []
    folders = _find_unified(kernel, setting, name, reasons)
    if folders:
        return FoundCgroups(Cgroups(folders=folders, is_unified=True, pids=pids), "")
    folders = _find_separate(kernel, name, reasons) if setting == AUTO else {}
    if not folders:
        return FoundCgroups(None, "; ".join(reasons) or "this host has no cgroups")
    cgroups = Cgroups(folders=folders, is_unified=False, pids=pids)
    return FoundCgroups(cgroups, "" if cgroups.limits else "; ".join(reasons))


def log_missing(found: FoundCgroups) -> Cgroups | None:
    """The cgroups that were found. What is missing is logged once, with what to do about it."""
    if why := advice(found):
        logger.warning("limits of containers are not enforced", reason=why)
    return found.cgroups


def advice(found: FoundCgroups) -> str:
    """Return why limits are not kept and what to do about it; empty if they are, or if somebody turned them off."""
    return f"{found.why}. To have them enforced, {REMEDY}" if found.why and found.why != TURNED_OFF else ""


def _find_unified(kernel: Kernel, setting: str, name: str, reasons: list[str]) -> Mapping[str, Path]:
    if setting != AUTO:
        return _make_shared(Path(setting), name, reasons)
    found = _hierarchy(kernel, "cgroup2", "")
    if found is None or not _offers_limits(found.top):
        return {}
    parent = found.here if found.here == found.top else found.here.parent
    if folders := _make_shared(parent, name, reasons):
        return folders
    if parent != found.here and _members(found.here) == [kernel.pid]:
        return _move_inside(found.here, name, kernel.pid, reasons)
    return {}


def _offers_limits(top: Path) -> bool:
    """In a mixed set-up version 2 is there, but has nothing to offer."""
    return set(LIMITING) <= set(_words(top / "cgroup.controllers"))


def _move_inside(here: Path, name: str, pid: int, reasons: list[str]) -> Mapping[str, Path]:
    try:
        (here / LEAF).mkdir(exist_ok=True)
        _write(here / LEAF / "cgroup.procs", str(pid))
    except OSError as error:
        reasons.append(_reason(error, here))
        return {}
    return _make_shared(here, name, reasons)


def _make_shared(parent: Path, name: str, reasons: list[str]) -> Mapping[str, Path]:
    """One folder for all controllers; nothing if it cannot have what limits need."""
    ours = parent / name
    try:
        ours.mkdir(exist_ok=True)
        enabled = [each for each in WANTED if _enable(parent, each, reasons) and _enable(ours, each, reasons)]
    except OSError as error:
        reasons.append(_reason(error, parent))
        return {}
    if set(LIMITING) <= set(enabled):
        return dict.fromkeys(enabled, ours)
    with suppress(OSError):
        ours.rmdir()
    return {}


def _enable(folder: Path, controller: str, reasons: list[str]) -> bool:
    file = folder / "cgroup.subtree_control"
    try:
        if controller not in _words(file):
            _write(file, f"+{controller}")
    except OSError as error:
        reasons.append(_reason(error, file))
        return False
    return True


def _find_separate(kernel: Kernel, name: str, reasons: list[str]) -> dict[str, Path]:
    folders = {}
    for controller in (*WANTED, "freezer"):
        found = _hierarchy(kernel, "cgroup", controller)
        if found is None:
            continue
        ours = found.here / name
        try:
            ours.mkdir(exist_ok=True)
        except OSError as error:
            reasons.append(_reason(error, ours))
        else:
            folders[controller] = ours
    if not folders.keys() & set(WANTED):
        reasons.append("no cgroup hierarchy that may be written")
    return folders


def _hierarchy(kernel: Kernel, kind: str, controller: str) -> _Hierarchy | None:
    """Return where a hierarchy is mounted, and this process in it; None if it is not, or is outside of what is mounted."""
    own = next((path for names, path in _own_paths(kernel.own) if controller in names), None)
    for root, top, options in _mounts(kernel.mounts, kind):
        if own is None or (controller and controller not in options):
            continue
        inside = os.path.relpath(own, root)
        if not inside.startswith("..") and not any(letter.isspace() for letter in f"{top}{inside}"):
            return _Hierarchy(top, top / inside)
    return None


def _mounts(text: str, kind: str) -> Iterator[tuple[str, Path, Sequence[str]]]:
    """The root that is shown, the mount point, and the options that name controllers."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) > 4 and len(rest) > 2 and rest[0] == kind:
            root, top = (_OCTAL.sub(lambda found: chr(int(found[1], 8)), each) for each in fields[3:5])
            yield root, Path(top), rest[2].split(",")


def _own_paths(text: str) -> Iterator[tuple[Sequence[str], str]]:
    """Of lines such as `4:memory:/path`; version 2 has no name."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        yield names.split(","), path


def _members(folder: Path) -> list[int]:
    return [int(word) for word in _words(folder / "cgroup.procs") if word.isdigit()]


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="ascii").split()
    except OSError:
        return []


def _write(file: Path, value: str) -> None:
    file.write_text(value, encoding="ascii")


def _reason(error: OSError, file: Path) -> str:
    return f"{error.filename or file}: {error.strerror}"
