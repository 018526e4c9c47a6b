"""gzip compression of responses over 128 KiB at the fastest level, as in apiserver.

`Body` is the response class of every route whose answer may be large; streamed lists use `Gzip` directly. Watches are never
compressed. Compression runs in a thread and releases the GIL, so other requests are served meanwhile.
"""

import asyncio
import zlib
from collections.abc import Iterable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.http.response_streams import PART_BYTES, Sender

FROM_BYTES = 128 << 10
_LEVEL = 1
_GZIP_FORMAT = 31  # zlib's window bits, with gzip's header
_JSON = "application/json"
_JSON_HEADER = (b"content-type", _JSON.encode())
HEADERS = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))


def is_accepted(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether the client reads gzip, by the headers of its request."""
    given = b",".join(value for name, value in headers if name == b"accept-encoding").decode("latin-1")
    for text in given.split(","):
        coding, _, parameters = text.partition(";")
        if coding.strip().lower() == "gzip":
            return parameters.replace(" ", "").lower() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


class Gzip:
    """One stream of compressed pieces."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)

    async def piece(self, data: bytes) -> bytes:
        """Compress more data; return the bytes that are ready, perhaps none."""
        return await asyncio.to_thread(self._compressor.compress, data)

    async def end(self) -> bytes:
        return await asyncio.to_thread(self._compressor.flush)


class Body(Response):
    """A complete response, compressed if it is large and the client accepts gzip."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """As Starlette's, which looks through the headers and the type that nearly no response of ours has."""
        if headers or self.media_type != _JSON:
            super().init_headers(headers)
        else:
            self.raw_headers = [(b"content-length", b"%d" % len(self.body)), _JSON_HEADER]

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        if len(self.body) > FROM_BYTES and is_accepted(scope["headers"]):
            gzip = Gzip()
            self.body = await gzip.piece(bytes(self.body)) + await gzip.end()
            self.headers["content-length"] = str(len(self.body))
            self.headers["content-encoding"] = "gzip"
            self.headers.add_vary_header("Accept-Encoding")
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if len(self.body) <= PART_BYTES:
            await send({"type": "http.response.body", "body": self.body})
        else:
            await Sender(send)(bytes(self.body), more=False)
