"""SPDY/3.1 frames, as Kubernetes speaks it for exec, attach and port-forward. Bytes in, frames out, and back: no I/O.

The API speaks it as a server to kubectl, the cri runtime as a client to engines.

`Decoder` takes bytes however they are cut; what a client can make it hold is bounded. `Encoder` makes what a server sends.
Flow control is left out, as every Kubernetes client leaves it out.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MOST_CONTROL = 16 * 1024  # bytes of one control frame; those of Kubernetes' clients have less than 200
MOST_HEADERS = 64 * 1024  # bytes of one header block when unpacked
MOST_DATA = (1 << 24) - 1  # what the length of a frame can say

PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM, CANCEL = 1, 2, 3, 5

_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN = 1

_NAMES = """options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age
allow authorization cache-control connection content-base content-encoding content-language content-length
content-location content-md5 content-range content-type date etag expect expires from host if-match if-modified-since
if-none-match if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate
proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning
www-authenticate method get status 200~OK version HTTP/1.1 url public set-cookie keep-alive origin"""
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized"
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
# Both sides start their compression from this text, which the specification fixes.
DICTIONARY = (
    b"".join(struct.pack(">I", len(name)) + name.replace("~", " ").encode() for name in _NAMES.split()) + _TEXT.encode()
)


class Malformed(Exception):
    """Not SPDY/3.1, or more than we are willing to hold. Nothing can be read after it."""


@dataclass(frozen=True)
class Open:
    """The client opens a stream."""

    stream: int
    headers: Mapping[str, str]
    end: bool = False


@dataclass(frozen=True)
class Data:
    """Bytes of a stream: a frame, or as much of one as has come. `end`: its last."""

    stream: int
    data: bytes
    end: bool = False


@dataclass(frozen=True)
class Reset:
    """A stream is ended at once, both ways."""

    stream: int
    status: int = CANCEL


@dataclass(frozen=True)
class Ping:
    """Sent back by the side that did not number it."""

    number: int


@dataclass(frozen=True)
class GoAway:
    """The sender will open, or take, no more streams."""

    last: int = 0
    status: int = 0


Frame = Open | Data | Reset | Ping | GoAway


class Decoder:
    """What a client sends. Frames of no interest to a server are read over."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._unpack = zlib.decompressobj(zdict=DICTIONARY)
        self._stream = 0
        self._end = False
        self._left = 0  # bytes of a data frame still to come

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Malformed if there is no sense in it."""
        self._buffer += data
        while True:
            if self._left:
                if not self._buffer:
                    return
                yield self._piece()
            elif (frame := self._next()) is not None:
                yield from frame
            else:
                return

    def _piece(self) -> Data:
        data = bytes(self._buffer[: self._left])
        del self._buffer[: len(data)]
        self._left -= len(data)
        return Data(self._stream, data, self._end and not self._left)

    def _next(self) -> tuple[Frame, ...] | None:
        """The frame that the buffer starts with, none if it says nothing; None if it has not come whole."""
        if len(self._buffer) < 8:
            return None
        kind, flags_and_length = struct.unpack_from(">II", self._buffer)
        flags, length = flags_and_length >> 24, flags_and_length & MOST_DATA
        if not kind >> 31:
            del self._buffer[:8]
            self._stream, self._end, self._left = kind, bool(flags & _FIN), length
            return (Data(kind, b"", end=True),) if self._end and not length else ()
        if kind >> 16 != 0x8003 or length > MOST_CONTROL:
            raise Malformed("not a control frame of SPDY/3, or too long")
        if len(self._buffer) < 8 + length:
            return None
        body = bytes(self._buffer[8 : 8 + length])
        del self._buffer[: 8 + length]
        return self._control(kind & 0xFFFF, flags, body)

    def _control(self, kind: int, flags: int, body: bytes) -> tuple[Frame, ...]:
        match kind:
            case 1:
                headers = self._headers(body, 10)
                return (Open(_words(body, 2)[0] & 0x7FFFFFFF, headers, bool(flags & _FIN)),)
            case 2 | 8:
                self._headers(body, 4)  # of no interest, but the compression goes on from it
            case 3:
                return (Reset(*_words(body, 2)),)
            case 6:
                return (Ping(*_words(body, 1)),)
            case 7:
                return (GoAway(*_words(body, 2)),)
        return ()

    def _headers(self, body: bytes, start: int) -> dict[str, str]:
        try:
            block = self._unpack.decompress(body[start:], MOST_HEADERS)
            if self._unpack.unconsumed_tail or self._unpack.eof:
                raise Malformed("too many headers")
            return dict(_pairs(block))
        except (zlib.error, struct.error, UnicodeDecodeError) as error:
            raise Malformed("a header block that cannot be read") from error


def _words(body: bytes, count: int) -> tuple[int, ...]:
    if len(body) < 4 * count:
        raise Malformed("a control frame that is too short")
    return struct.unpack_from(f">{count}I", body)


def _pairs(block: bytes) -> Iterator[tuple[str, str]]:
    (count,) = struct.unpack_from(">I", block)
    at = 4
    for _ in range(count):
        name, at = _text(block, at)
        value, at = _text(block, at)
        yield name.lower(), value


def _text(block: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">I", block, at)
    end = at + 4 + length
    if end > len(block):
        raise Malformed("a header block that ends too early")
    return block[at + 4 : end].decode(), end


class Encoder:
    """What is sent. `open` is what clients send: servers of Kubernetes open no streams, but tests are clients too."""

    def __init__(self) -> None:
        # A small window: a compressor of the usual size has 256 KiB, for every connection.
        self._pack = zlib.compressobj(wbits=11, memLevel=4, zdict=DICTIONARY)

    def open(self, stream: int, headers: Mapping[str, str], *, end: bool = False) -> bytes:
        return _frame(_SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + self._block(headers), end)

    def reply(self, stream: int) -> bytes:
        """The answer that a client waits for before it uses its stream."""
        return _frame(_SYN_REPLY, struct.pack(">I", stream) + self._block({}))

    def data(self, stream: int, data: bytes, *, end: bool = False) -> bytes:
        return struct.pack(">II", stream, end << 24 | len(data)) + data

    def reset(self, stream: int, status: int) -> bytes:
        return _frame(_RST_STREAM, struct.pack(">II", stream, status))

    def ping(self, number: int) -> bytes:
        return _frame(_PING, struct.pack(">I", number))

    def go_away(self, last: int, status: int = 0) -> bytes:
        return _frame(_GOAWAY, struct.pack(">II", last, status))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        texts = [text.encode() for pair in headers.items() for text in pair]
        block = b"".join(struct.pack(">I", len(text)) + text for text in texts)
        packed = self._pack.compress(struct.pack(">I", len(headers)) + block)
        return packed + self._pack.flush(zlib.Z_SYNC_FLUSH)


def _frame(kind: int, body: bytes, end: bool = False) -> bytes:
    return struct.pack(">II", 0x80030000 | kind, end << 24 | len(body)) + body
