"""Launch of a container as a process of this host: command, environment, folder; and its start.

The process runtime calls `resolve`, which looks but starts nothing, then `spawn`. Never Popen or uvloop: posix_spawn is
the cheapest start that Python has.
"""

import fcntl
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from app.open_files import limit_restored
from app.runtimes.base import ContainerSpec, Mount, StartError
from app.runtimes.process import environment, security_context
from app.runtimes.process import home as process_home
from app.runtimes.process import mounts as process_mounts
from app.runtimes.process.files import Folder, open_ordinary
from app.runtimes.process.home import Home
from app.runtimes.process.isolation import View
from app.runtimes.process.security_context import AgentRights

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULT_MESSAGE_PATH = "/dev/termination-log"
MESSAGE_VARIABLE = "JOBPLANE_TERMINATION_LOG"
NO_MOUNTS = "this host cannot mount volumes for the process runtime (bubblewrap is not usable)"
SHIM = Path(__file__).with_name("shim.sh")
_SHELL = "/bin/sh"
RESET = frozenset(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_THEIRS, _KEPT = 5, 6  # descriptors of the container's input or terminal, and of its other end
_INSIDE = 4  # the descriptor on which bubblewrap tells the pid of the command
_SET_UP = 7  # the descriptor of which bubblewrap reads one byte when all is mounted, before it runs the command
_AGAIN = b"again\n" * 4  # what the shim finds there, whole, if bubblewrap failed before: a mount of the host went away


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that a start needs."""

    command: list[str]
    env: dict[str, str]
    working_dir: str
    keeps: Literal["", "open", "once", "tty", "console"] = ""  # see keeper.py
    wrapped: bool = False  # in bubblewrap, so the command is a child of the container's first process
    cgroups: Sequence[Path] = ()
    owner: tuple[int, int] | None = None  # whose the container's streams are, if not the agent's
    mode: int = 0  # of the files of its output, if not for their owner alone
    directory: str = ""  # where the command begins, as it sees it
    record: Mapping[str, str] = field(default_factory=dict)  # more that `spec.json` keeps


def resolve(
    spec: ContainerSpec,
    folder: Folder,
    home: Path,
    bubblewrap: Callable[[], str],
    agent: AgentRights,
    view: View | None = None,
) -> Launch:
    """Return what to execute. `bubblewrap` gives the program, or "" where it cannot be used. Raises StartError, OSError.

    view: of an isolated container.
    """
    if not spec.argv:
        raise StartError(f'the process runtime runs no images, so the command of image "{spec.image}" is not known')
    security = security_context.isolated(spec.security, view.user) if view else spec.security
    rights = security_context.resolve(security, agent)
    read_only = spec.security.read_only_root and bool(bubblewrap())
    tmp = str(view.tmp) if view and not bubblewrap() else ""
    if tmp:
        view = None  # all that there is to it is the user
    own = _home(folder, home, rights.owner, read_only=read_only, view=view)
    process_home.check_mountable(own, rights.owner, bubblewrap() if own.mounts else "")
    env = {"PATH": PATH, "HOME": own.path, **({"TMPDIR": tmp} if tmp else {}), **spec.env}
    mounts = [*spec.mounts, *own.mounts]
    if spec.termination_message_path == DEFAULT_MESSAGE_PATH:
        env[MESSAGE_VARIABLE] = own.message
    elif spec.termination_message_path:
        folder.write("message", b"")
        mounts.append(Mount(source=folder.path / "message", target=spec.termination_message_path))
    if view:
        mounts = [*view.mounts(mounts, read_only=read_only), *mounts]
    working_dir = _working_dir(spec.working_dir or own.path, mounts)
    check_program(spec.argv[0], env["PATH"], working_dir, lambda path: process_mounts.host_path(path, mounts))
    if spec.tty:
        env.setdefault("TERM", "xterm")
    env = environment.hold(env)
    launch = Launch(
        command=[*rights.arguments, *environment.with_held(spec.argv, env)],
        env=env,
        working_dir=working_dir,
        keeps=keeps(spec),
        owner=rights.owner,
        directory=working_dir,
    )
    read_only = read_only or (view is not None and view.read_only)
    if mounts or read_only or view:
        program = bubblewrap()
        if not program:
            raise StartError(NO_MOUNTS)
        devices = spec.devices if read_only else ()
        arguments = process_mounts.arguments(mounts, devices, read_only=read_only, view=view)
        launch = _wrap(launch, program, [*process_mounts.hostname_arguments(spec.hostname), *arguments])
    command, env = environment.split_odd_names(launch.command, launch.env)
    return replace(launch, command=command, env=env)


def _home(folder: Folder, home: Path, owner: tuple[int, int] | None, *, read_only: bool, view: View | None) -> Home:
    if view is not None:
        return process_home.of_isolated(folder, home, owner, read_only=read_only)
    if owner is None:
        return process_home.of_agent(folder, home, read_only=read_only)
    return process_home.of_user(folder, home, owner, read_only=read_only)


def keeps(spec: ContainerSpec) -> Literal["", "open", "once", "tty"]:
    """Return what outlives the agent for those who attach."""
    if spec.tty:
        return "tty"
    return ("once" if spec.stdin_once else "open") if spec.stdin else ""


def spawn(folder: Folder, launch: Launch, setsid: str, known: Callable[[int], None]) -> None:
    """Starts the shim, which runs nothing before `known` has written its pid down. Raises OSError, ValueError."""
    reading, writing = os.pipe()
    try:
        pid = _spawn(folder, launch, setsid, reading)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        known(pid)
        os.write(writing, b"go\n")
    except BaseException:
        os.close(writing)  # the shim sees that and ends
        os.waitpid(pid, 0)
        raise
    os.close(writing)


def _spawn(folder: Folder, launch: Launch, setsid: str, stdin: int) -> int:
    with open_streams(folder, launch) as streams, limit_restored():
        return os.posix_spawn(
            _SHELL,
            [_SHELL, str(SHIM), str(folder.path), *_shim_arguments(launch, setsid), "--", *launch.command],
            launch.env,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in {stdin: 0, **streams}.items()],
            setsid=True,
            setsigmask=[],
            setsigdef=RESET,
        )


@contextmanager
def open_streams(folder: Folder, launch: Launch) -> Iterator[dict[int, int]]:
    """Descriptors for the shim, and as what it has them: the container's output, and its input or terminal. Raises OSError."""
    targets: dict[int, int] = {}
    try:
        with folder.open_folder() as inner:
            for name, number in (("out", 1), ("err", 2), ("inside", _INSIDE))[: 3 if launch.wrapped else 2]:
                targets[open_ordinary(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, inner)] = number
        if launch.wrapped:
            targets[_filled_pipe(_AGAIN)] = _SET_UP
        if launch.keeps not in ("", "console"):
            theirs, kept = _pair(launch.keeps)
            targets |= {theirs: _THEIRS, kept: _KEPT}
        if launch.owner is not None:
            for fd in [fd for fd, number in targets.items() if number in (1, 2, _THEIRS)]:
                os.fchown(fd, *launch.owner)  # else it could not open /dev/stdout and the like
        if launch.mode:
            for fd in [fd for fd, number in targets.items() if number in (1, 2)]:
                os.fchmod(fd, launch.mode)
        yield targets
    finally:
        for fd in targets:
            os.close(fd)


def _shim_arguments(launch: Launch, setsid: str) -> list[str]:
    return [launch.working_dir, " ".join(map(str, launch.cgroups)), setsid, launch.keeps, sys.executable]


def _filled_pipe(content: bytes) -> int:
    """One end of it; the other is closed."""
    reading, writing = os.pipe()
    try:
        os.write(writing, content)
        return fcntl.fcntl(reading, fcntl.F_DUPFD_CLOEXEC, _SET_UP + 1)
    finally:
        os.close(reading)
        os.close(writing)


def _pair(keeps: str) -> list[int]:
    """Both ends of the container's input or terminal, out of the way of the descriptors that they will have."""
    opened = os.openpty()[::-1] if keeps == "tty" else os.pipe()
    try:
        return [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _SET_UP + 1) for fd in opened]
    finally:
        for fd in opened:
            os.close(fd)


def spec_record(spec: ContainerSpec, launch: Launch) -> dict[str, object]:
    """Return what `spec.json` keeps of it."""
    return {
        "key": spec.key._asdict(),
        "image": spec.image,
        "command": spec.argv,
        "workingDir": launch.directory,
        "keeps": launch.keeps,
        "cgroups": [str(each) for each in launch.cgroups],
        "mounts": [{"source": str(mount.source), "target": mount.target} for mount in spec.mounts],
        **launch.record,
    }


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"the process runtime needs the program {name} (package util-linux or busybox)")
    return path


def keep_files_private() -> None:
    """No container may inherit what the agent itself inherited; what Python opens later is private anyway."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the one that lists the folder is closed by now
                os.set_inheritable(int(name), False)


def reap(pidfd: int) -> None:
    """Takes a dead child's status; fine if it was an earlier agent's child."""
    with suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)


def _working_dir(path: str, mounts: list[Mount]) -> str:
    if not os.path.isabs(path):
        raise StartError(f'working directory "{path}" is not an absolute path')
    if not os.path.isdir(process_mounts.host_path(path, mounts)):
        raise StartError(f'chdir to working directory "{path}": no such directory on this host')
    return path


def _wrap(launch: Launch, program: str, mounts: list[str]) -> Launch:
    chdir = ["--chdir", launch.working_dir]
    told = ["--info-fd", str(_INSIDE), "--block-fd", str(_SET_UP)]
    command = [program, *told, *mounts, *chdir, "--", *launch.command]
    return replace(launch, command=command, working_dir="/", wrapped=True)


def check_program(name: str, path: str, working_dir: str, seen: Callable[[str], str]) -> None:
    """Raises StartError, worded as container runtimes do, unless the command names a program.

    `seen`: path on this host of one in the container.
    """
    if "/" not in name:
        folders = (os.path.join(working_dir, folder or ".", name) for folder in path.split(":"))
        if not any(_is_executable(seen(each)) for each in folders):
            raise StartError(f'exec: "{name}": executable file not found in $PATH', 127)
        return
    file = seen(os.path.normpath(os.path.join(working_dir, name)))
    if not os.path.exists(file):
        raise StartError(f'exec: "{name}": stat {name}: no such file or directory', 127)
    if os.path.isdir(file):
        raise StartError(f'exec: "{name}": is a directory', 126)
    if not os.access(file, os.X_OK):
        raise StartError(f'exec: "{name}": permission denied', 126)


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
