"""A session with a container of an engine whose output is diverted: input by the engine, output from the files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal

from app.runtimes.base import Session
from app.runtimes.process.attach import Attached
from app.runtimes.process.files import Folder


class DivertedSession:
    """See `base.Session`. Over when the engine says so: by then all is in the files."""

    def __init__(self, session: Session, folder: Folder) -> None:
        self._session, self._ended = session, asyncio.Event()
        self._files = Attached(folder, self._ended)
        self._waiting = asyncio.get_running_loop().create_task(self._end())
        self.write, self.end_input, self.resize = session.write, session.end_input, session.resize

    def output(self) -> AsyncIterator[tuple[Literal["stdout", "stderr"], bytes]]:
        return self._files.output()

    async def exit_code(self) -> int:
        await self._ended.wait()
        return await self._session.exit_code()

    async def close(self) -> None:
        self._waiting.cancel()
        await asyncio.gather(self._waiting, return_exceptions=True)
        await self._files.close()
        await self._session.close()

    async def _end(self) -> None:
        try:
            async for _ in self._session.output():
                pass  # nothing comes that way
            with suppress(ConnectionError):
                await self._session.exit_code()
        finally:
            self._ended.set()
