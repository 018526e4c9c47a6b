"""Commit: the only way to write. Write sets are merged into one transaction by one writer task a process (group commit).

A write set is atomic: all of its writes happen, or none, and only if every object is still as it was expected to be. While
one batch commits the next one fills, so a lone write waits for nothing and many share one fsync. While the next one commits
the change feed delivers the one before.

Renewals of leases go first: they must not wait behind the thousands of statuses of a large Job, or nodes count as lost.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import asyncpg

from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.lease import NODE_NAMESPACE
from app.metrics.registry import MetricsRegistry
from app.store.change_feed import Change, Feed, OwnVersion
from app.store.commit_arrays import Layout, lay_out, parameters_of
from app.store.commit_metrics import CommitMetrics
from app.store.encryption.encryption import KeyRing
from app.store.errors import Conflict, Key, OutcomeUnknown, Unavailable
from app.store.write_set import Write
from app.structured_logging import Logger

logger = Logger(__name__)

MAX_SETS = 256
MAX_URGENT = 128  # of those: renewals without end must not stop all others
# A batch is closed beyond this: small sets must not wait twice, nor may one step of the event loop take long.
MAX_WRITES = 1_000
LAST_SECONDS = 1.0  # for telling who has written, when the writer is stopped
COMMIT_SECONDS = 30.0  # longer than the server waits for a lock: beyond it, the network has swallowed the answer


_LEASES = LEASES.resource
_URGENT = frozenset({NODE_NAMESPACE, "kube-system"})  # namespaces of the leases of nodes, and of elections


def is_urgent(writes: Sequence[Write]) -> bool:
    """Return whether the set only writes leases of nodes or of elections."""
    found = False
    for write in writes:
        if write.change != "G":
            found = True
            if write.key.kind != _LEASES or write.key.namespace not in _URGENT:
                return False
    return found


@dataclass(slots=True)
class _PendingSet:
    writes: Sequence[Write]
    done: asyncio.Future[list[int]]
    since: int  # since when the feed was unbroken that they were planned from


@dataclass(slots=True)
class _Batch:
    """One transaction, in the making, of sets that were planned since the feed last started anew."""

    since: int
    sets: list[_PendingSet] = field(default_factory=list)
    taken: set[Key] = field(default_factory=set)
    size: int = 0

    def fill(self, queue: deque[_PendingSet], most: int) -> None:
        """From the queue, in order; a set that touches a key already in the batch waits, as do later ones.

        Demands on such a key wait too: all sets of a transaction are checked against the state before it.
        """
        while queue and len(self.sets) < most and self.size < MAX_WRITES:
            waiting = queue[0]
            if not waiting.done.done() and any(write.key in self.taken for write in waiting.writes):
                break
            queue.popleft()
            if waiting.done.done():  # its caller has gone
                continue
            if waiting.since != self.since:
                _fail(waiting, _started_anew_error())
                continue
            self.taken.update(write.key for write in waiting.writes if write.change != "G")
            self.size += len(waiting.writes)
            self.sets.append(waiting)


class Writer:
    """Owns one connection, and the queue in front of it."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[asyncpg.Connection]],
        feed: Feed,
        metrics: MetricsRegistry | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        self._connect = connect
        self._keys = keys or KeyRing()
        self._feed = feed
        self._queue: deque[_PendingSet] = deque()
        self._urgent: deque[_PendingSet] = deque()
        self._metrics = CommitMetrics(metrics or MetricsRegistry(), lambda: len(self._queue) + len(self._urgent))
        self._wake = asyncio.Event()
        self._connection: asyncpg.Connection | None = None
        self._delivery: asyncio.Task[None] | None = None  # of the newest batch that is committed
        self._stopped = False
        self.origin = uuid4().hex

    async def commit(self, writes: Sequence[Write]) -> list[int]:
        """Commit one write set; the revision of each write. Raises Conflict, Unavailable or OutcomeUnknown.

        An empty set returns when all that was sent before is committed and delivered, or refused.
        """
        if self._stopped:
            raise _stopping_error()
        if len({write.key for write in writes}) < len(writes):
            raise ValueError("a write set may name an object only once")
        waiting = _PendingSet(writes, asyncio.get_running_loop().create_future(), self._feed.unbroken_since)
        (self._urgent if is_urgent(writes) else self._queue).append(waiting)
        self._wake.set()
        return await waiting.done

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._queue or self._urgent:
                    before = self._delivery
                    await self._commit_batch(self._next_batch())
                    if before:  # no more than one batch waits to be delivered
                        await before
        finally:
            self._stopped = True
            if self._delivery:
                await asyncio.wait([self._delivery], timeout=LAST_SECONDS)
                self._delivery.cancel()
            for waiting in (*self._urgent, *self._queue):
                _fail(waiting, _stopping_error())
            self._close_connection()

    def _next_batch(self) -> list[_PendingSet]:
        """Take the sets of the next transaction from the queues."""
        batch = _Batch(self._feed.unbroken_since)
        batch.fill(self._urgent, MAX_URGENT)
        batch.fill(self._queue, MAX_SETS)
        return batch.sets

    async def _commit_batch(self, batch: list[_PendingSet]) -> None:
        if not batch:
            return
        own, layout = _own_versions(batch), lay_out([waiting.writes for waiting in batch])
        self._feed.note_sent(own)
        try:
            previous, refused = await self._execute(layout, len(batch))
        except Unavailable as error:
            self._feed.note_answered(own)
            if len(batch) > 1 and isinstance(error.__cause__, _REFUSALS):
                await self._commit_one_by_one(batch)
                return
            _fail_all(batch, error)
            return
        except BaseException as error:  # whatever broke, every caller must hear of it
            self._feed.note_answered(own)
            _fail_all(batch, OutcomeUnknown(f"the commit broke off: {error or type(error).__name__}"))
            self._feed.wake()  # if it did happen, only history tells
            if isinstance(error, Exception):
                return
            raise
        self._feed.note_committed(previous + len(layout.rows))
        delivery = self._deliver(batch, layout, own, previous, frozenset(refused or ()), self._delivery)
        self._delivery = asyncio.get_running_loop().create_task(delivery)

    async def _commit_one_by_one(self, batch: list[_PendingSet]) -> None:
        """Something in the batch is not for this database: the others must not suffer for it."""
        for position, waiting in enumerate(batch):
            try:
                await self._commit_batch([waiting])
            except BaseException:  # the writer is told to stop: nobody else will answer those that are left
                _fail_all(batch[position + 1 :], _stopping_error())
                raise

    async def _execute(self, layout: Layout, sets: int) -> tuple[int, list[int] | None]:
        began = time.perf_counter()
        try:
            row = await self._call(layout)
        except _REFUSALS as error:
            self._metrics.note_failed()
            raise Unavailable(f"the database refused the write: {error}") from error
        except BaseException as error:
            self._metrics.note_failed()
            self._close_connection()
            if _is_rolled_back(error):
                raise Unavailable(f"the database could not write: {error}") from error
            raise
        if row is None:
            raise OutcomeUnknown("the commit function returned nothing")
        self._metrics.note_committed(time.perf_counter() - began, sets)
        return row["previous"], row["refused"]

    async def _call(self, layout: Layout) -> asyncpg.Record | None:
        """Anew, if the server has ended the session and nothing was sent to it any more."""
        values = parameters_of(layout, self.origin, self._keys)
        try:
            return await (await self._ensure_connection()).fetchrow(_CALL, *values, timeout=COMMIT_SECONDS)
        except asyncpg.InternalClientError as error:
            if not str(error).startswith(_UNSENT):
                raise
            self._close_connection()
        return await (await self._ensure_connection()).fetchrow(_CALL, *values, timeout=COMMIT_SECONDS)

    def _close_connection(self) -> None:
        if self._connection:
            self._connection.terminate()
        self._connection = None

    async def _ensure_connection(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            since = self._feed.unbroken_since
            try:
                self._connection = await self._connect()
            except Exception as error:
                raise Unavailable(f"no connection to the database: {error}") from error
            if self._feed.unbroken_since != since:
                raise _started_anew_error()
        return self._connection

    async def _deliver(
        self,
        batch: list[_PendingSet],
        layout: Layout,
        own: Mapping[Key, OwnVersion],
        previous: int,
        refused: frozenset[int],
        before: asyncio.Task[None] | None,
    ) -> None:
        """Tell the feed, then those who wait; after the delivery before."""
        last = previous + len(layout.rows)
        changes: list[Change] = []
        answers: list[tuple[_PendingSet, list[int] | Conflict]] = []
        for waiting, items in zip(batch, layout.items, strict=True):
            if not refused.isdisjoint(items):
                bad = [w.key for w, item in zip(waiting.writes, items, strict=True) if item in refused]
                answers.append((waiting, Conflict(bad, last)))
            else:
                numbers = [previous + item for item in items]
                answers.append((waiting, numbers))
                changes += [_change(w, n) for w, n in zip(waiting.writes, numbers, strict=True) if w.change != "G"]
        self._metrics.note_answered(len(batch), sum(isinstance(answer, Conflict) for _, answer in answers))
        try:
            if before:
                await before
            await self._feed.on_commit(previous, changes, last)
        except Exception as error:
            logger.warning("change feed missed a commit; catching up", error=error)
            self._feed.wake()
        finally:  # it is committed, whatever becomes of the feed, and of us
            self._feed.note_answered(own)
            for waiting, answer in answers:
                _answer(waiting, answer)


# What one set may contain that no other would: a string with NUL, a number too large, a name that is taken after all.
_REFUSALS = (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError, ValueError)


def _stopping_error() -> Unavailable:
    return Unavailable("this process is stopping")


def _started_anew_error() -> Unavailable:
    """Error for a set that was planned before: it may rest on what the database has lost."""
    return Unavailable("the database went back in time, or was away for long; nothing was written: read and try again")


def _is_rolled_back(error: BaseException) -> bool:
    """The server answered ERROR, so nothing was written. FATAL may also come after the commit, as may no answer."""
    return isinstance(error, asyncpg.PostgresError) and getattr(error, "severity_en", None) == "ERROR"


def _answer(waiting: _PendingSet, answer: list[int] | Conflict) -> None:
    if isinstance(answer, Conflict):
        _fail(waiting, answer)
    elif not waiting.done.done():
        waiting.done.set_result(answer)


def _fail_all(batch: list[_PendingSet], error: Exception) -> None:
    for waiting in batch:
        _fail(waiting, error)


def _fail(waiting: _PendingSet, error: Exception) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)


def _own_versions(batch: list[_PendingSet]) -> dict[Key, OwnVersion]:
    writes = (write for waiting in batch for write in waiting.writes)
    return {write.key: OwnVersion(write.body, write.object) for write in writes if write.object is not None}


def _change(write: Write, revision: int) -> Change:
    change = Change(
        revision, write.key, write.uid, write.change, write.body, write.selector_index, write.old_selector_index
    )
    change.previous = write.expected if write.expected >= 0 else None
    change.object = write.object
    return change


# How asyncpg refuses a query on a connection that the server has ended and that is not closed yet.
_UNSENT = "cannot switch to state"
_CALL = """select previous, refused
    from commit_write_sets($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"""
