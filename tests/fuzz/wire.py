"""HTTP/1.1 without manners: sends exactly the bytes it is given, well-formed or not, and reads what comes back."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

SECONDS = 30  # that an answer may take on a machine that has much else to do
CRLF = b"\r\n"
_BODILESS = (204, 304)


class Answer(NamedTuple):
    """What came back. No code: the server closed the connection without a word."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0]


SILENCE = Answer(0, {}, b"")


class Request(NamedTuple):
    """A request, byte for byte. Headers come after Host; `chunks` replaces the body by one in chunks."""

    method: str
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    chunks: tuple[bytes, ...] = ()

    @property
    def raw(self) -> bytes:
        lines = [b"%b %b HTTP/1.1" % (self.method.encode(), self.target), b"Host: fuzzed"]
        lines += [b"%b: %b" % header for header in self.headers]
        if self.chunks:
            pieces = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in self.chunks if chunk)
            return CRLF.join([*lines, b"Transfer-Encoding: chunked", b"", pieces + b"0\r\n\r\n"])
        if self.body or self.method in ("POST", "PUT", "PATCH"):
            lines.append(b"Content-Length: %d" % len(self.body))
        return CRLF.join([*lines, b"", self.body])


class Connection:
    """One connection, kept alive and made again where the server has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> Answer:
        """The answer; TimeoutError if none comes."""
        async with asyncio.timeout(SECONDS):
            for is_last in (False, True):
                is_fresh = self._streams is None
                try:
                    return await self._asked(request)
                except (ConnectionError, asyncio.IncompleteReadError):
                    self.close()
                    if is_fresh or is_last:  # an old connection may just have been closed: that says nothing
                        return SILENCE
        raise AssertionError("unreachable: the last try returns")

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def _asked(self, request: Request) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request.raw)
        answer = await _read(reader, has_body=request.method != "HEAD")
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer


async def _read(reader: asyncio.StreamReader, *, has_body: bool) -> Answer:
    code = 100
    while code < 200:  # 100 Continue is not the answer yet
        head = (await reader.readuntil(CRLF + CRLF)).decode("latin-1").split("\r\n")
        code = int(head[0].split()[1])
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if not has_body or code in _BODILESS:
        return Answer(code, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(code, headers, await _chunks(reader))
    if "content-length" in headers:
        return Answer(code, headers, await reader.readexactly(int(headers["content-length"])))
    return Answer(code, headers, await reader.read())


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(CRLF)).split(b";")[0], 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readuntil(CRLF)
    return b"".join(parts)
