"""A unix socket in front of Postgres that can lose what the server says, and all connections with it.

The only way to have a commit whose answer is lost, or a database that goes away at every single moment of something."""

import asyncio
import contextlib
import tempfile
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url


class Proxy:
    """Forwards connections; each is known by the application_name that it starts with."""

    def __init__(self, dsn: str) -> None:
        self._url = make_url(dsn)
        self._folder = tempfile.TemporaryDirectory(prefix="jobplane-proxy-")
        self._doomed = b""
        self._step = 0
        self._answers = 0  # since all connections broke
        self._thawed = asyncio.Event()
        self._thawed.set()
        self.broken = 0  # times that all connections broke
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def dsn(self) -> str:
        query = {**self._url.query, "host": self._folder.name, "port": "5432"}
        url = self._url.set(host=None, port=None, query=query)
        return url.render_as_string(hide_password=False)

    def lose_the_next_answer(self, application: str) -> None:
        """The connections of that application break when the server speaks on them next."""
        self._doomed = application.encode()

    def break_ever_later(self, step: int) -> None:
        """All connections break at the first answer; then, for step 2, at the third after that, the fifth after that, ..."""
        self._step = step

    def freeze(self) -> None:
        """From now on the server says nothing, and ends nothing, as one whose disk hangs."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, f"{self._folder.name}/.s.PGSQL.5432")
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._server.close()
        self._abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._folder.cleanup()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        far_reader, far_writer = await self._connect()
        both = {writer, far_writer}
        self._open |= both
        there: asyncio.Future[None] | None = None
        try:
            greeting = await reader.read(1 << 16)
            far_writer.write(greeting)
            there = asyncio.ensure_future(_pump(reader, far_writer))
            await self._answer(far_reader, writer, greeting)
        except OSError:
            pass
        finally:
            if there:
                there.cancel()
            self._open -= both
            for each in both:
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> None:
        while data := await reader.read(1 << 16):
            if self._doomed and self._doomed in greeting:
                self._doomed = b""
                break
            if self._step and self._breaks():
                break
            await self._thawed.wait()
            writer.write(data)

    def _breaks(self) -> bool:
        self._answers += 1
        if self._answers <= self.broken * self._step:
            return False
        self._answers = 0
        self.broken += 1
        self._abort()
        return True

    def _abort(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder = self._url.query.get("host")
        if folder:
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{self._url.query.get('port', '5432')}")
        return await asyncio.open_connection(self._url.host, self._url.port or 5432)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()
