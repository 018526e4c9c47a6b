"""Commands run in containers of a CRI engine (exec), and sessions with containers themselves (attach). Called by the cri runtime.

Engines do not end a command whose caller has hung up, and do not tell its process. So it is found and killed here: by its
parent, which is none of the container's, and by its arguments; of commands with the same arguments, by the order of their starts.
"""

import asyncio
import itertools
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from app.runtimes.base import ContainerKey, Session, StartError, Unsupported
from app.runtimes.cri.containers import CriContainers
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.cri.streams import CriStreamSession, connect
from app.runtimes.engine import config as engine_config
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.outputs import DivertedSession
from app.runtimes.linux import process_table
from app.runtimes.linux.process_table import Process

KILLED_WITHIN = (0.0, 0.05, 0.1, 0.2, 0.4)  # seconds between looks for a process that is only about to begin


class _CommandKey(NamedTuple):
    """A command, and which of all it was."""

    key: ContainerKey
    argv: tuple[str, ...]
    number: int


class CriCommands:
    """Sessions, each with one connection to the engine."""

    def __init__(self, engine: CriEngine, containers: CriContainers) -> None:
        self._engine, self._containers = engine, containers
        self._numbers = itertools.count()
        self._sessions: WeakValueDictionary[_CommandKey, CriStreamSession] = WeakValueDictionary()

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool) -> CriStreamSession:
        known = await self._containers.find(key)
        if known is None:
            raise StartError(f'container "{key.name}" is not there')
        request = pb.ExecRequest(container_id=known.id, cmd=argv, tty=tty, stdin=True, stdout=True, stderr=not tty)
        command = _CommandKey(key, tuple(argv), next(self._numbers))
        try:
            url = (await self._engine.ask(request, pb.ExecResponse)).url
        except EngineError as error:
            raise StartError(error.details) from error
        session = await connect(url, stdin=True, tty=tty)
        self._sessions[command] = session
        session.hang_up = lambda: self._kill(command, known.id)
        return session

    async def attach(self, key: ContainerKey) -> Session:
        known = await self._containers.find(key)
        if known is None:
            raise Unsupported(f'container "{key.name}" is not there')
        try:
            found = (await self._containers.ask(known.id)).status
            tty, stdin = (found.annotations.get(name) == "True" for name in (engine_config.TTY, engine_config.STDIN))
            request = pb.AttachRequest(container_id=known.id, tty=tty, stdin=stdin, stdout=True, stderr=not tty)
            url = (await self._engine.ask(request, pb.AttachResponse)).url
        except EngineError as error:
            raise Unsupported(error.details) from error
        session = await connect(url, stdin=stdin, tty=tty)
        session.ended_with = lambda: self._exit_code_of_container(key)
        outputs = self._containers.outputs
        return DivertedSession(session, outputs.folder(key)) if outputs.is_diverted(key) else session

    async def _exit_code_of_container(self, key: ContainerKey) -> int:
        status = await self._containers.ended(key)
        return (status.exit_code or 0) if status else 0

    async def _kill(self, command: _CommandKey, container_id: str) -> None:
        try:
            found = await self._containers.ask(container_id, verbose=True)
            main = int(json.loads(found.info["info"])["pid"])
        except (EngineError, ConnectionError, ValueError, KeyError, TypeError):
            return  # with the container its commands have ended, or the engine is away
        for pause in KILLED_WITHIN:
            await asyncio.sleep(pause)
            older = [each for each in self._sessions if each[:2] == command[:2] and each.number < command.number]
            rank = sum(self._sessions[each].is_open for each in older)
            if await asyncio.to_thread(_kill_command, main, command.argv, rank):
                return


def _kill_command(main: int, argv: Sequence[str], rank: int) -> bool:
    """Kills the command's whole session. `main`: the container's own process; `rank`: how many alike are older.

    False if there is none such (yet).
    """
    entered = _find_entered(main)
    alike = [each for each in entered if _argv(each.pid) == [*argv]] or entered[:1]
    if rank >= len(alike):
        return False
    process_table.kill(alike[rank].pid, signal.SIGKILL)
    if alike[rank].session == alike[rank].pid:
        process_table.kill_session(alike[rank].pid)
    return True


def _find_entered(main: int) -> list[Process]:
    """Processes in the container's cgroup, but its own, that came from outside; oldest first."""
    group = _cgroup(main)
    inside = {
        pid: process for pid in process_table.pids() if _cgroup(pid) == group and (process := process_table.look(pid))
    }
    found = [each for each in inside.values() if group and each.parent not in inside and each.pid != main]
    return sorted(found, key=lambda each: (each.start, each.pid))


def _cgroup(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_bytes()
    return b""


def _argv(pid: int) -> list[str]:
    with suppress(OSError):
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    return []
