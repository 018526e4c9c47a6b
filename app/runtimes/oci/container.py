"""Container run of the oci runtime: its processes, and how it is stopped. Its files, besides those of `process.files`:

config.json             what crun runs
rootfs, upper, work     where the root is mounted, what the container has written, and overlayfs' own
pid                     of its first process, by crun, once it is ready to run
crun/, crun.log         crun's state, and what it says of failures
"""

import signal
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from app.runtimes.base import ContainerStatus
from app.runtimes.engine.errors import start_code
from app.runtimes.linux import cgroups as cgroup
from app.runtimes.linux import process_table
from app.runtimes.linux.process_table import Process
from app.runtimes.process import status as process_status
from app.runtimes.process.container import KILL_AGAIN, NOT_YET, ProcessContainer
from app.runtimes.process.files import Folder

ID = "container"  # as crun knows it: its state is the container's own
FAILED = 1  # crun's exit code, if there is nothing to run


@dataclass(eq=False, kw_only=True, slots=True)
class OciContainer(ProcessContainer):
    """Its main process is crun, a child of which is the container's first."""

    async def target(self, main: Process | None) -> int | None:
        while main and not self.ended.is_set():
            pid = init_pid(self.folder)
            process = process_table.look(pid) if pid else None
            if process and process.parent == main.pid:
                return pid
            await self.ends(NOT_YET)
        return None

    async def kill(self) -> None:
        """SIGKILL to its first process, whose end is the end of all; if that does not help, to everything of it."""
        while not self.ended.is_set():
            kill_first(self.folder)
            if await self.ends(KILL_AGAIN):
                break
            cgroup.kill_all(self.cgroups)
            if main := self.first():
                for pid in (*process_table.descendants(main.pid), main.pid):
                    process_table.kill(pid, signal.SIGKILL)


def init_pid(folder: Folder) -> int:
    """Pid of its first process; 0 if it was not ready to run so far."""
    content = folder.read("pid", 32)
    with suppress(ValueError):
        return int(content.data) if content else 0
    return 0


def kill_first(folder: Folder) -> None:
    """SIGKILL to its first process, if that is what the pid now stands for: its root is the container's."""
    pid = init_pid(folder)
    if pid and belongs(pid, folder):
        process_table.kill(pid, signal.SIGKILL)


def belongs(pid: int, folder: Folder) -> bool:
    """Whether a process has the container's root."""
    mark = f"upperdir={folder.path}/upper,".encode()
    with suppress(OSError), open(f"/proc/{pid}/mountinfo", "rb") as file:
        return any(mark in line for line in file if b" / / " in line)  # crun itself has the mount, but not as its root
    return False


def read_end(folder: Folder) -> ContainerStatus | None:
    """Like that of `process.status`; what crun could not start has not failed by itself."""
    found = process_status.read_end(folder)
    if found is None or found.exit_code != FAILED or found.reason != "Error":
        return found
    message = read_failure(folder)
    if not message:
        return found
    return replace(found, exit_code=start_code(message), reason="StartError", message=message)


def read_failure(folder: Folder, name: str = "crun.log") -> str:
    """What crun says of why it failed; empty if it did not."""
    content = folder.read(name, 64 * 1024)
    lines = content.data.decode(errors="replace").splitlines() if content else []
    return "; ".join(message for line in lines if (message := _error(line)))


def _error(line: str) -> str:
    try:
        found = msgspec.json.decode(line, type=dict[str, str])
    except ValueError:
        return line.strip()  # of a program before crun
    return found.get("msg", "") if found.get("level") == "error" else ""
