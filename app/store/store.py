"""The store of one process: connections, the writer task, the change feed and the reader. Opened by the command line."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any
from weakref import WeakSet

import asyncpg

from app.kinds.core.event import KIND as EVENTS
from app.metrics.registry import MetricsRegistry
from app.store import notifications, timeline
from app.store.batching_loader import BatchingLoader
from app.store.change_feed import Change, Feed
from app.store.commit import Writer
from app.store.database_metrics import DatabaseMetrics
from app.store.dormant_objects import DormantObjects
from app.store.encryption.encryption import LEAD, KeyRing
from app.store.encryption.master_keys import MasterKeys
from app.store.encryption.reencryption import DataKeyUse, data_key_uses
from app.store.errors import Key, Unavailable, call_database
from app.store.exclusive_lock import ExclusiveLock
from app.store.job_record_writer import JobRecordWriter
from app.store.job_records import JobRecords
from app.store.lifetimes import Lifetimes
from app.store.logs.kept_logs import KeptLogs
from app.store.logs.logs import CAP, Logs
from app.store.mirror import Mirror
from app.store.node_usage import NodeUsageReports
from app.store.notifications import AgentCalls, LogGrowth
from app.store.postgres_connection import Connection, connect
from app.store.reader import Page, Query, Reader, StoredObject
from app.store.tokens import Tokens
from app.store.write_set import Write

# The commit function joins short arrays with large tables: always by index, whatever the statistics say.
_WRITER_SETTINGS = {
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    "application_name": "jobplane writer",
}
FILL_ROWS = 1_000  # objects read together to fill a mirror
RING_ROWS = 16_000  # changes from before this process that its ring begins with: so many fill it
_READER_SETTINGS = {"jit": "off", "statement_timeout": "60s", "application_name": "jobplane reader"}


READ_ONLY = "the database is read-only: it is a standby, or was set so; promote it, or connect to the primary"


async def is_read_only(connection: asyncpg.Connection | asyncpg.Pool) -> bool:
    found: bool = await connection.fetchval("select current_setting('transaction_read_only') = 'on' from counter")
    return found


class Store:
    """Facade over the package's parts; every database error reaches callers as one of `app.store.errors`."""

    def __init__(
        self,
        dsn: str,
        pool: asyncpg.Pool,
        ring_bytes: int,
        log_cap: int = CAP,
        keys: MasterKeys | None = None,
        key_lead: timedelta = LEAD,
    ) -> None:
        self.dsn = dsn
        self.pool = pool
        self.keys = KeyRing(keys, key_lead)
        self.reader = Reader(pool, self.keys)
        self._loader = BatchingLoader(self.get_many)
        self.logs = Logs(pool, log_cap)
        self.kept_logs = KeptLogs(pool)
        self.job_records, self.job_record_writer = JobRecords(pool), JobRecordWriter(pool)
        self.dormant = DormantObjects(pool)
        self.tokens = Tokens(pool)
        self.usage = NodeUsageReports(pool)
        self.agent_calls = AgentCalls(pool)
        self.log_growth = LogGrowth()
        # A process without a ring serves no watches, and its mirrors hold no events: it skips events, half of all changes.
        self._unfollowed = "" if ring_bytes else EVENTS.resource
        self.feed = Feed(self._history, ring_bytes, self._check_timeline)
        self.metrics = MetricsRegistry()
        self.writer = Writer(self._connect_writer, self.feed, self.metrics, self.keys)
        self.metrics.add_collector("database", DatabaseMetrics(pool, self.feed).collect)
        self.lifetimes = Lifetimes(pool, self.feed)
        self._feed_connection: asyncpg.Connection | None = None
        self.names_lock = ExclusiveLock(dsn, "names of custom kinds")
        self._looking_back = asyncio.Lock()
        self._connections: WeakSet[asyncpg.Connection] = WeakSet()  # of the pool, the writer and the feed
        # Lists leave half of the connections to reads of single objects, which would wait behind megabytes.
        self._listing = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))

    async def _history(self, after: int, up_to: int | None) -> tuple[Sequence[Change], int, bool]:
        if self._feed_connection is None or self._feed_connection.is_closed():
            self._feed_connection = await self._connect(_READER_SETTINGS, self.check_timeline)
        return await self.reader.history(self._feed_connection, after, up_to, self.feed.timeline, self._unfollowed)

    async def check_timeline(self, connection: timeline.Connection) -> None:
        """Called on every new connection before it is used: is this still the database that the process knows?"""
        await timeline.check_timeline(connection, self.feed)

    async def begin_connection(self, connection: asyncpg.Connection) -> None:
        """Called on every new connection of the pool."""
        self._connections.add(connection)
        await self.check_timeline(connection)

    def _drop_connections(self) -> None:
        """End all calls of a database that does not answer: those that wait would wait for ever."""
        for connection in list(self._connections):
            connection.terminate()

    def terminate(self) -> None:
        """Close all connections at once. Called when nothing uses them any more."""
        self.pool.terminate()
        self._drop_connections()

    async def _check_timeline(self) -> None:
        async with self.pool.acquire() as connection:
            await self.check_timeline(connection)

    async def _connect_writer(self) -> asyncpg.Connection:
        return await self._connect(_WRITER_SETTINGS, lambda connection: timeline.begin(connection, self.feed))

    async def _connect(
        self, settings: Mapping[str, str], begin: Callable[[asyncpg.Connection], Awaitable[None]]
    ) -> asyncpg.Connection:
        """Connect beside the pool. `begin` is called before the connection is used."""
        connection = await connect(self.dsn, server_settings=settings)
        self._connections.add(connection)
        try:
            await begin(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def commit(self, writes: Sequence[Write]) -> list[int]:
        return await self.writer.commit(writes)

    def get(self, key: Key) -> Coroutine[Any, Any, StoredObject | None]:
        """Return an object; None if there is none."""
        return self._loader.get(key)

    async def get_many(self, keys: Sequence[Key]) -> dict[Key, StoredObject]:
        return await call_database(self.reader.get_many(keys))

    def remembered(self, key: Key) -> Change | None:
        """The newest version of an object on a node, as this process knows it; None if it does not, or the object is gone.

        A writer of the next version may start from it, and reads the database if its write is refused.
        """
        change = self.feed.newest(key)
        return None if change is None or change.change == "D" else change

    async def list(self, query: Query) -> Page:
        """One page. Compacted if it shall show a revision that is no longer known."""
        async with self._listing:
            return await call_database(self.reader.page(query))

    async def unchanged(self, kind: str, after: int, age: timedelta, limit: int) -> Sequence[StoredObject]:
        """The first objects of a kind after a revision, of those that have not changed for so long."""
        return await call_database(self.reader.unchanged(kind, after, age, limit))

    async def remaining(self, query: Query, most: int | None = None) -> int | None:
        """Return how many objects come after a page that was read at a revision. None if they are more than `most`."""
        return await call_database(self.reader.remaining(query, most))

    async def look_back(self, changes: Sequence[Change]) -> None:
        """Fill in what each object was before its change; what it is now, if that is no longer known.

        One at a time: a thousand watchers of one change read it once.
        """
        async with self._looking_back:
            blank = [change for change in changes if change.body_before is None]
            if not blank:
                return
            known = await call_database(self.reader.versions([change.previous for change in blank if change.previous]))
            for change in blank:
                change.body_before = known.get(change.previous or 0, change.body)

    async def owned_by(self, kind: str, uid: str, limit: int) -> Sequence[bytes]:
        """The bodies of the newest objects of a kind whose controller has this UID."""
        return await call_database(self.reader.owned_by(kind, uid, limit))

    async def count(self, kinds: Sequence[str], namespace: str) -> dict[str, int]:
        """Return how many objects of these kinds are in a namespace; kinds without any are left out."""
        return await call_database(self.reader.count(kinds, namespace))

    async def history_of(
        self, kind: str, after: int, up_to: int, limit: int | None = None, node: str | None = None
    ) -> Sequence[Change]:
        """The first of one kind's changes in (after, up_to]; Compacted if some of them are gone.

        Given a node, most changes are left out of objects that neither were nor are bound to it.
        """
        return await call_database(self.reader.history_of(kind, after, up_to, limit, node))

    async def data_keys(self) -> Sequence[DataKeyUse]:
        """The keys that encrypt Secrets, and how much is stored under each."""
        return await data_key_uses(self.pool)

    async def rotate_data_keys(self) -> None:
        await self.keys.rotate(self.pool)

    async def decrypt_secrets(self) -> None:
        await self.keys.switch_off(self.pool)

    async def revision(self) -> int:
        """The last revision given out."""
        return await call_database(self.reader.revision())

    async def is_lost(self, revision: int) -> bool:
        """Return whether the database went back in time before the revision, or jumped over it."""
        return 0 < revision < self.feed.timeline and await call_database(timeline.is_lost(self.pool, revision))

    async def is_read_only(self) -> bool:
        """Return whether the database takes no writes: also the cheapest way to learn that it answers."""
        return await call_database(is_read_only(self.pool))

    async def fill(self, mirror: Mirror) -> None:
        """Load a mirror and let it follow the feed from there. Unavailable if the feed starts anew meanwhile."""
        since = self.feed.unbroken_since
        revision = await self.revision()
        kept: set[Key] = set()
        for kind in mirror.kinds:  # which grows while it is read
            async for heads in self._all_of(kind, awake=mirror.leaves_out(kind)):
                mirror.load(heads)
                kept.update(head.key for head in heads)
        async for heads in self._dormant_dependents(mirror):
            mirror.load(heads)
            kept.update(head.key for head in heads)
        mirror.start_at(revision, kept)
        # Pages were read one after another, each newer than `revision`: what they already hold is applied again, which
        # is harmless, because a change carries the whole object.
        await call_database(self.feed.listen(mirror.apply, since=revision))
        if self.feed.unbroken_since != since:  # it is a copy of two pasts
            self.feed.leave(mirror.apply)
            raise Unavailable("the change feed started anew: read again")

    async def _dormant_dependents(self, mirror: Mirror) -> AsyncIterator[Sequence[StoredObject]]:
        """Those of what a mirror holds, and of what is gone: garbage."""
        if (kinds := mirror.dormant) is None:
            return
        uids = iter([each.metadata.uid for each in mirror.all(kinds.owner)])
        while some := list(islice(uids, FILL_ROWS)):
            async for heads in self.dormant.owned_by(kinds.dependent, some, only_dormant=True):
                yield heads
        async for heads in self.dormant.departed(kinds.dependent):
            yield heads

    async def _all_of(self, kind: str, *, awake: bool) -> AsyncIterator[Sequence[StoredObject]]:
        """All objects of a kind, or those that are awake, page by page: not all of their bytes are held at once."""
        after: tuple[str, str] | None = None
        while True:
            page = await self.list(Query(kind=kind, after=after, limit=FILL_ROWS, awake=awake))
            yield page.heads
            if not page.more:
                return
            after = (page.heads[-1].key.namespace, page.heads[-1].key.name)

    async def listen(self) -> None:
        """Follow other processes' notifications until cancelled."""
        channels = {"changes": self._on_change, "logs": self.log_growth.on_notify, "calls": self.agent_calls.on_notify}
        await notifications.listen(self.dsn, channels, self.check_timeline, self.feed.wake, self._drop_connections)

    def _on_change(self, origin: str) -> None:
        if origin != self.writer.origin:
            self.feed.wake()


async def _as_it_is(_connection: asyncpg.Connection) -> None:
    """Readers leave nothing behind to reset: that saves a round trip for each, and one that fails when the database goes.

    asyncpg's own reset runs in a task of its own; if its caller is cancelled, nobody hears of its failure but the log.
    """


async def _start_feed(store: Store, rows: int) -> None:
    """Start it so many changes ago: who watched before goes on from memory, where a thousand agents would each read history."""
    store.feed.start_at(*await call_database(timeline.read_position(store.pool, rows)))
    await store.feed.listen(store.lifetimes.apply, since=store.feed.cursor)
    try:
        await call_database(store.feed.catch_up())
    except Unavailable:  # such as a Secret whose key is not known here
        store.feed.start_at(*await call_database(timeline.read_position(store.pool)))


@contextlib.asynccontextmanager
async def open_store(
    dsn: str,
    *,
    ring_bytes: int = 32 << 20,
    pool_size: int = 7,
    log_cap: int = CAP,
    keys: MasterKeys | None = None,
    key_lead: timedelta = LEAD,
) -> AsyncIterator[Store]:
    """Connect, and run the writer, the feed and the listener while the context is open.

    keys:     what encrypts Secrets, if they are to be encrypted.
    key_lead: how long after a rotation the new data key is used.

    Raises Unavailable; MasterKeyError if no key can be had.
    """

    # No connection is kept for its own sake: asyncpg would replace lost ones in tasks that nobody waits for.
    async def begin_connection(connection: asyncpg.Connection) -> None:
        await store.begin_connection(connection)

    pool = await asyncpg.create_pool(  # type: ignore[call-overload] # `connect` is called with this DSN only
        dsn,
        min_size=0,
        max_size=pool_size,
        server_settings=_READER_SETTINGS,
        reset=_as_it_is,
        init=begin_connection,
        connect=connect,
        connection_class=Connection,
    )
    store = Store(dsn, pool, ring_bytes, log_cap, keys, key_lead)
    tasks: list[asyncio.Task[None]] = []
    try:
        await store.keys.load(pool)
        await _start_feed(store, RING_ROWS if ring_bytes else 0)
        running = (store.writer.run(), store.feed.run(), store.listen(), store.keys.follow(pool))
        tasks += [asyncio.create_task(run) for run in running]
        yield store
    finally:
        try:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:  # also when cancelled again: nothing of a store outlives it
            store.terminate()
