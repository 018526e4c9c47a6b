"""Log format of Kubernetes' container runtimes: `<RFC3339Nano> stdout|stderr F|P <text>\\n`.

Used by the runtimes that make such logs themselves. A record's head has a fixed width, so a log itself shows how
many raw bytes of each stream are in it: that is how a restarted agent finds the place where the last one stopped.
"""

from datetime import UTC, datetime
from typing import Literal, NamedTuple

Stream = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
LINE_LIMIT = 16 * 1024  # a longer line becomes several pieces, as containerd and CRI-O have it
HEAD = len("2026-01-02T03:04:05.000000000Z stdout F ")
_KIND_AT = HEAD - 2
_STREAM_AT = slice(HEAD - 9, HEAD - 3)


class Stamped(NamedTuple):
    """Records, and how many raw bytes they hold."""

    records: bytes
    used: int


def moment(nanoseconds: int) -> bytes:
    """Nanoseconds since 1970 as RFC 3339 with all nine decimals."""
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z".encode()


def stamp(raw: bytes, stream: Stream, when: bytes, *, last: bool) -> Stamped:
    """Records of the whole lines in `raw`, which is at most LINE_LIMIT bytes.

    An unfinished line waits for its end unless it is overlong, or the `last` of its stream.
    """
    head = b"%b %b " % (when, stream.encode())
    used = raw.rfind(b"\n") + 1
    records = b""
    if used:
        records = head + b"F " + raw[: used - 1].replace(b"\n", b"\n" + head + b"F ") + b"\n"
    elif raw and (last or len(raw) >= LINE_LIMIT):
        return Stamped(head + b"P " + raw + b"\n", len(raw))
    return Stamped(records, used)


def raw_bytes(records: bytes) -> dict[Stream, int]:
    """Return how many raw bytes of each stream these whole records hold."""
    sizes: dict[Stream, int] = {"stdout": 0, "stderr": 0}
    for record in records.split(b"\n")[:-1]:
        stream: Stream = "stderr" if record[_STREAM_AT] == b"stderr" else "stdout"
        sizes[stream] += len(record) - HEAD + (record[_KIND_AT : _KIND_AT + 1] == b"F")
    return sizes
