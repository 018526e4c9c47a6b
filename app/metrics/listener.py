"""HTTP listener of programs that serve nothing else: controllers and agents answer scrapes and probes with it, if asked to.

`listening` is entered by the command line, with the address of `--metrics-address`. It speaks as much HTTP as Prometheus and
curl need: GET and HEAD, one request a connection. It shows numbers and names, no secrets, and takes nothing in.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from app.metrics.address import parse_address
from app.metrics.exposition import CONTENT_TYPE
from app.metrics.health_checks import PING, Check, report
from app.metrics.registry import MetricsRegistry
from app.structured_logging import Logger

logger = Logger(__name__)
MOST_CONNECTIONS = 16
HEAD_BYTES = 8 << 10
SECONDS = 15.0  # in which a client must have asked, and have taken the answer
_PLAIN = "text/plain; charset=utf-8"


class ListenError(Exception):
    """The address cannot be listened on; the text says why."""


class Answer(NamedTuple):
    status: str
    body: bytes
    content_type: str = _PLAIN


@asynccontextmanager
async def listening(address: str, metrics: MetricsRegistry, ready: Sequence[Check] = (PING,)) -> AsyncIterator[int]:
    """Serve /metrics, /livez, /readyz and /healthz while the context is open; yields the port. Raises ListenError.

    `ready`: what must hold for the program to be ready.
    """
    host, port = parse_address(address)
    checks = {"/livez": (PING,), "/readyz": ready, "/healthz": ready}
    listener = _Listener(metrics, checks)
    try:
        server = await asyncio.start_server(listener.serve, host, port, limit=HEAD_BYTES)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {error.strerror or error}") from error
    bound: int = server.sockets[0].getsockname()[1]
    logger.info("serving metrics", address=f"http://{address.rpartition(':')[0]}:{bound}/metrics")
    try:
        yield bound
    finally:
        server.close()
        listener.close()


class _Listener:
    def __init__(self, metrics: MetricsRegistry, checks: Mapping[str, Sequence[Check]]) -> None:
        self._metrics, self._checks = metrics, checks
        self._open: set[asyncio.Task[None] | None] = set()

    def close(self) -> None:
        for task in self._open:
            if task is not None:
                task.cancel()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection. At too many connections, close it at once."""
        task = asyncio.current_task()
        try:
            if len(self._open) < MOST_CONNECTIONS:
                self._open.add(task)
                async with asyncio.timeout(SECONDS):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            writer.transport.abort()
        except Exception as error:
            logger.error("cannot answer a scrape or a probe", traceback_of=error)
            writer.transport.abort()
        except asyncio.CancelledError:
            writer.transport.abort()  # the program stops; a task that ends as cancelled would be logged
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.decode("latin-1").partition(" ")
        found = await self._find(method, rest.partition(" ")[0])
        lines = (
            f"HTTP/1.1 {found.status}",
            f"Content-Type: {found.content_type}",
            f"Content-Length: {len(found.body)}",
            "Cache-Control: no-cache, private",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + (b"" if method == "HEAD" else found.body))
        await writer.drain()

    async def _find(self, method: str, target: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return Answer("405 Method Not Allowed", b"only GET and HEAD are served here\n")
        url = urlsplit(target)
        if url.path == "/metrics":
            return Answer("200 OK", await self._metrics.render(), CONTENT_TYPE)
        checks = self._checks.get(url.path)
        if checks is None:
            return Answer("404 Not Found", b"served here: /metrics, /livez, /readyz, /healthz\n")
        query = parse_qs(url.query, keep_blank_values=True)
        found = await report(url.path.strip("/"), checks, query.get("exclude", ()))
        text = found.lines if "verbose" in query or not found.holds else "ok"
        return Answer("200 OK" if found.holds else "503 Service Unavailable", text.encode())
