"""Event buffer: audit events on their way to the log, in memory and bounded. A thread writes them ten times a second.

`auditor` puts records in. They are encoded a few together, which takes half of what one at a time would, and soon: a record
keeps what its request was made of, and the next requests would run in memory that no cache knows. The event loop does that: a
thread would contend for the interpreter, and requests wait for it. Only events with large bodies are encoded in the thread. When
the log cannot be written, such as when its disk is full, the events stay, and writing is tried again every second. Once the
buffer is full, the mode decides: `batch` drops new events and counts them, `blocking` lets requests wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, Literal, NamedTuple, TypeVar

from app.api.audit.event import Record, encode
from app.api.audit.log_file import AuditLog
from app.metrics.registry import MetricsRegistry
from app.structured_logging import Logger

logger = Logger(__name__)
T = TypeVar("T")
Mode = Literal["batch", "blocking"]
FLUSH_SECONDS = 0.1
RETRY_SECONDS = 1.0
MOST_EVENTS, MOST_BYTES = 10_000, 64 << 20
_TOGETHER = 32  # events encoded together: a quarter of a millisecond
_LARGE = 64 << 10  # bytes of a record that the thread encodes
_END_SECONDS = 5.0  # in which the rest is written when the process ends


class _Piece(NamedTuple):
    """Events on their way to the thread: lines, or one record that the thread encodes.

    events: how many. size: bytes that their records held.
    """

    content: bytes | Record
    events: int
    size: int


class EventBuffer:
    """The buffer of one process. `is_full`: `batch` drops, `blocking` lets requests wait."""

    def __init__(
        self,
        log: AuditLog,
        metrics: MetricsRegistry,
        mode: Mode = "batch",
        *,
        most: int = MOST_EVENTS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.mode: Mode = mode
        self.is_full = False
        self._log, self._most, self._most_bytes = log, most, most_bytes
        self._records: list[Record] = []  # the newest, not encoded yet
        self._pieces: list[_Piece] = []
        self._lines: deque[bytes] = deque()  # encoded, and not written yet: only the thread touches them
        self._count, self._bytes = 0, 0  # of all events that are not written
        self._dropped = 0
        self._arrived, self._has_room = asyncio.Event(), asyncio.Event()
        self._has_room.set()
        self._thread = WriterThread()
        self._events = metrics.counter("apiserver_audit_event_total", "Audit events, also those that were lost.")
        self._lost = metrics.counter(
            "apiserver_audit_error_total", "Audit events that were lost, as the log could not be written.", ("plugin",)
        )
        self._failures = metrics.counter(
            "jobplane_audit_write_failures_total", "Times that the audit log could not be written. It is tried again."
        )

    def put(self, record: Record) -> None:
        """Take an event; drop it if there is no room. In mode `blocking` there is twice the room, for requests under way."""
        if self.is_full and (self.mode == "batch" or self._count >= 2 * self._most):
            self._events.inc()
            self._drop(1)
            return
        self._records.append(record)
        self._count += 1
        self._bytes += record.size
        if self._count >= self._most or self._bytes >= self._most_bytes:
            self.is_full = True
            self._has_room.clear()
        self._arrived.set()
        if len(self._records) >= _TOGETHER:
            self._encode_records()

    def _encode_records(self) -> None:
        """Encode the newest records. Those with large bodies are left to the thread."""
        records, self._records = self._records, []
        self._events.add(len(records))
        sizes = [record.size for record in records]
        if max(sizes, default=0) <= _LARGE:
            self._encode_together(records, sum(sizes))
            return
        for record, size in zip(records, sizes, strict=True):
            if size > _LARGE:
                self._pieces.append(_Piece(record, 1, size))
            else:
                self._encode_together([record], size)

    def _encode_together(self, records: Sequence[Record], size: int) -> None:
        lines, lost = _encode(records)
        self._pieces.append(_Piece(lines, len(records), size))
        self._drop(lost)

    async def wait_for_room(self, seconds: float) -> bool:
        """Wait until the buffer takes events; return whether it does."""
        try:
            async with asyncio.timeout(seconds):
                await self._has_room.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Write until cancelled; then write the rest, within seconds, and return."""
        try:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(FLUSH_SECONDS)
                self._arrived.clear()
                self._encode_records()
                while self._pieces:
                    await self._write_batch()
        finally:
            await self._write_rest()

    async def _write_batch(self) -> None:
        """Write all that waits, and try again every second until it is written."""
        batch, self._pieces = self._pieces, []
        lost, is_written = await self._thread.run(lambda: (self._take(batch), self._write()))
        self._drop(lost)
        while not is_written:
            self._failures.inc()
            await asyncio.sleep(RETRY_SECONDS)
            is_written = await self._thread.run(self._write)
        self._count -= sum(piece.events for piece in batch)
        self._bytes -= sum(piece.size for piece in batch)
        if self.is_full and self._count < self._most and self._bytes < self._most_bytes:
            self.is_full = False
            self._has_room.set()
            if self._dropped:
                logger.warning("audit log is written again; events between were lost", count=self._dropped)
                self._dropped = 0

    def _take(self, pieces: Sequence[_Piece]) -> int:
        """Take lines in the thread, and encode what is none yet; return how many events could not be encoded."""
        all_lost = 0
        for content, _, _ in pieces:
            lines, lost = _encode([content]) if isinstance(content, Record) else (content, 0)
            self._lines.append(lines)
            all_lost += lost
        return all_lost

    def _write(self) -> bool:
        """Write encoded events in the thread; return whether all are written. Those that are not stay."""
        try:
            self._log.write(self._lines)
        except OSError as error:
            logger.error("cannot write the audit log; trying again", error=error)
            return False
        return True

    def _drop(self, count: int) -> None:
        if not count:
            return
        self._lost.add(count, "log")
        if not self._dropped:
            logger.error("audit events are lost: the audit log is not written fast enough, or not at all")
        self._dropped += count

    async def _write_rest(self) -> None:
        self._encode_records()
        rest, self._pieces = self._pieces, []
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._thread.run(lambda: self._take(rest))
                is_written = await self._thread.run(self._write)
        except TimeoutError:
            is_written = False
        if not is_written:
            count = sum(each.events for each in rest)
            logger.error("audit events are lost: the audit log could not be written at the end", count=count)


def _encode(records: Sequence[Record]) -> tuple[bytes, int]:
    """Return the lines of events, and how many could not be encoded."""
    try:
        return encode(records), 0
    except Exception as error:
        if len(records) == 1:
            logger.error("cannot encode an audit event", traceback_of=error)
            return b"", 1
    singly = [_encode([record]) for record in records]
    return b"".join(lines for lines, _ in singly), sum(lost for _, lost in singly)


class WriterThread:
    """One thread for calls that may block for ever, and that a process which ends does not wait for."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], object], asyncio.Future[Any]]] = SimpleQueue()
        self._has_begun = False

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Call in the thread, after what was given to it before."""
        if not self._has_begun:
            self._has_begun = True
            Thread(target=self._work, name="audit", daemon=True).start()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((call, done))
        return done

    def _work(self) -> None:
        while True:
            call, done = self._calls.get()
            outcome = call()
            with suppress(RuntimeError):  # the loop has ended
                done.get_loop().call_soon_threadsafe(_set_result, done, outcome)


def _set_result(done: "asyncio.Future[Any]", outcome: object) -> None:
    if not done.done():
        done.set_result(outcome)
