"""Container run of the process runtime: its processes, and how they are stopped."""

import asyncio
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from app.runtimes.base import ContainerStatus
from app.runtimes.linux import process_table
from app.runtimes.linux.process_table import Identity, Process
from app.runtimes.process.files import Folder
from app.runtimes.process.logs import Log
from app.runtimes.process.sessions import ExecSession
from app.structured_logging import Logger

KILL_AGAIN = 1.0  # seconds between one SIGKILL and the next
NOT_YET = 0.005  # seconds between looks for the first signs of a process that was just started
BEGINS_WITHIN = 60.0  # seconds for a shim whose agent died; then it is killed

logger = Logger(__name__)


@dataclass(eq=False, kw_only=True, slots=True)
class ProcessContainer:
    """`ended` is set by the runtime, once it has read how.

    is_isolated: of a pod with process ids of its own, where the command is a child of what bubblewrap has told of.
    """

    folder: Folder
    log: Log
    status: ContainerStatus
    shim: Identity | None = None
    pidfd: int = -1
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    process: Process | None = None
    is_isolated: bool = False
    cgroups: Sequence[Path] = ()
    commands: set[ExecSession] = field(default_factory=set)

    def first(self) -> Process | None:
        """The container's first process, once its identity is recorded; looked up again if the shim had to repeat the start."""
        if self.process is None or not process_table.is_running(self.process):
            self.process = self.folder.main()
        return self.process

    async def main(self) -> Process | None:
        """The container's process, once its identity is recorded; None if it has ended."""
        while not self.ended.is_set():
            if main := self.folder.main():
                return main if process_table.is_running(main) else None
            await self.ends(NOT_YET)
        return None

    async def target(self, main: Process | None) -> int | None:
        """The process that a signal is meant for: the command itself, not bubblewrap around it."""
        while main and not self.ended.is_set():
            inside = self.folder.inside()
            if inside is None:
                return main.pid
            process = process_table.look(inside) if inside else None
            if process and process.parent == main.pid:
                command = process_table.first_child(inside) if self.is_isolated else inside
                if command:
                    return command
            await self.ends(NOT_YET)
        return None

    async def stop(self, grace: timedelta) -> None:
        """SIGTERM, and SIGKILL when the grace is over."""
        if grace > timedelta():
            main = await self.main()
            target = await self.target(main)
            if target:
                process_table.kill(target, signal.SIGTERM)
            if await self.ends(grace.total_seconds()):
                if main:
                    process_table.kill_session(main.pid)
                return
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL to the whole session, until it has ended."""
        session = 0
        while not self.ended.is_set():
            main = await self.main()
            if main:
                session = main.pid
                process_table.kill(main.pid, signal.SIGKILL)
                process_table.kill_group(main.pid)
            if not await self.ends(KILL_AGAIN) and main is None and self.shim:
                logger.warning("shim of a container hangs; killing it", path=str(self.folder.path))
                process_table.kill(self.shim.pid, signal.SIGKILL)
        if session:
            process_table.kill_session(session)

    async def ends(self, seconds: float) -> bool:
        """Return whether it has ended by then."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        return self.ended.is_set()


def await_go(folder: Folder, pidfd: int) -> None:
    """Return once the shim of an agent that died has begun to run the container, or has ended. Blocks.

    A shim may be slow to begin, and until then nobody else can tell whether it was let go.
    """
    ended, latest = select.poll(), time.monotonic() + BEGINS_WITHIN
    ended.register(pidfd, select.POLLIN)
    while not folder.was_let_go() and not ended.poll(NOT_YET * 1000):
        if time.monotonic() > latest:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
