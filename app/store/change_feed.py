"""The change feed of one process: every committed change, once and in order, with a bounded memory of the newest.

The writer hands over this process's own changes after each commit; what other processes commit is read from history,
woken by one LISTEN and, behind it, by a poll. Watchers hold a cursor, never a queue. Mirrors are called synchronously, so
they are as new as the feed's cursor.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from app.machinery.base import Object
from app.store.errors import Compacted, Key, NewTimeline, Unavailable
from app.structured_logging import Logger

logger = Logger(__name__)
POLL_SECONDS = 1.0
LOSSES = 16  # that wait to be reported


class SelectorIndex(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What selectors look at: an object's labels, and its kind's selectable fields."""

    labels: dict[str, str] = {}
    fields: dict[str, str] = {}


_DECODER = msgspec.json.Decoder(SelectorIndex)
decode_selector_index = _DECODER.decode


def encode_label(name: str, value: str) -> str:
    """Return a label or field as it stands in the JSON of a selector index."""
    return msgspec.json.encode({name: value})[1:-1].decode()


_NODE = "spec.nodeName"


def _has_no_node(selector_index: SelectorIndex | str | None) -> bool:
    return selector_index is None or (isinstance(selector_index, str) and f'"{_NODE}"' not in selector_index)


class Change:
    """One version of one object. `body` is its JSON without resourceVersion; `old_selector_index` that of the version before,
    unless it is the same; `previous` is that version's revision, 0 for the first, None if it is not known.

    A selector index that comes from history is decoded when somebody looks: mirrors never do. The writer sets `object` to
    what was written, for mirrors in this process; it is still without its resourceVersion. `body_before` is what
    somebody has read of the version before, kept for others who need it.
    """

    __slots__ = (
        "_old_selector_index",
        "_selector_index",
        "_wire",
        "body",
        "body_before",
        "change",
        "key",
        "object",
        "previous",
        "revision",
        "uid",
    )

    def __init__(
        self,
        revision: int,
        key: Key,
        uid: str,
        change: str,
        body: bytes,
        selector_index: SelectorIndex | str,
        old_selector_index: SelectorIndex | str | None,
    ) -> None:
        self.revision = revision
        self.key = key
        self.uid = uid
        self.change = change
        self.body = body
        self._selector_index = selector_index
        self._old_selector_index = old_selector_index
        self.previous: int | None = None
        self.body_before: bytes | None = None
        self.object: Object | None = None
        self._wire: bytes | None = None

    @property
    def selector_index(self) -> SelectorIndex:
        if isinstance(self._selector_index, str):
            self._selector_index = decode_selector_index(self._selector_index)
        return self._selector_index

    @property
    def old_selector_index(self) -> SelectorIndex | None:
        if isinstance(self._old_selector_index, str):
            self._old_selector_index = decode_selector_index(self._old_selector_index)
        return self._old_selector_index

    def nodes(self) -> list[str]:
        """The node that the object is bound to, and the one before. Most kinds have none: their indexes are not decoded."""
        if _has_no_node(self._selector_index) and _has_no_node(self._old_selector_index):
            return []
        indexes = (self.selector_index, self.old_selector_index)
        return [node for each in indexes if each is not None and (node := each.fields.get(_NODE))]

    @property
    def wire(self) -> bytes:
        """The object as clients see it, made once for all watchers."""
        if self._wire is None:
            self._wire = versioned(self.body, self.revision)
        return self._wire


_METADATA = b'"metadata":{'


def versioned(body: bytes, revision: int) -> bytes:
    """The stored bytes with the resourceVersion put in, as the first entry of metadata. Nothing is parsed."""
    cut = body.index(_METADATA) + len(_METADATA)
    return b'%b"resourceVersion":"%d",%b' % (body[:cut], revision, body[cut:])


def topic_of(kind: str, node: str | None = None) -> str:
    """Return what a watcher can wait for: all changes of a kind, or those of the pods of one node."""
    return f"{kind}@{node}" if node else kind


def topics(change: Change) -> tuple[str, ...]:
    """The topics that a change belongs to, its kind first: a fleet of agents must not wake for every pod."""
    kind, nodes = change.key.kind, change.nodes()
    return (kind, *{topic_of(kind, node) for node in nodes}) if nodes else (kind,)


class ChangeBuffer:
    """The newest changes, by topic, at most `limit` bytes in all. Holds every change after `floor`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.start_at(0)

    def start_at(self, revision: int) -> None:
        """Empty, and holding nothing at or before `revision`."""
        self._size = 0
        self._order: deque[tuple[Change, tuple[str, ...]]] = deque()
        self._topics: dict[str, deque[Change]] = {}
        self._newest: dict[Key, Change] = {}  # of what is bound to a node
        self.floor = revision

    @property
    def knows_topics(self) -> bool:
        return self._limit > 0

    def add(self, change: Change) -> tuple[str, ...]:
        """Take in a change; its topics, for whoever wakes watchers. Without room for any, only its kind."""
        if not self.knows_topics:
            self.floor = change.revision
            return (change.key.kind,)
        belongs = topics(change)
        self._order.append((change, belongs))
        for topic in belongs:
            (self._topics.get(topic) or self._begin(topic)).append(change)
        if len(belongs) > 1:
            self._newest[change.key] = change
        self._size += len(change.body)
        while self._size > self._limit and self._order:
            self._forget_oldest()
        return belongs

    def _begin(self, topic: str) -> deque[Change]:
        begun: deque[Change] = deque()
        self._topics[topic] = begun
        return begun

    def count_after(self, revision: int) -> int:
        return sum(change.revision > revision for change, _ in self._order)

    def _forget_oldest(self) -> None:
        oldest, belonged = self._order.popleft()
        for topic in belonged:
            self._topics[topic].popleft()
            if not self._topics[topic]:
                del self._topics[topic]
        if self._newest.get(oldest.key) is oldest:
            del self._newest[oldest.key]
        self._size -= len(oldest.body)
        self.floor = max(self.floor, oldest.revision)  # which is above what came before a new timeline

    def newest(self, key: Key) -> Change | None:
        """The newest change of an object that is bound to a node; None if it is not held."""
        return self._newest.get(key)

    def after(self, topic: str, revision: int) -> list[Change] | None:
        """The topic's changes after a revision, or None when the ring does not reach back that far."""
        if revision < self.floor:
            return None
        changes = self._topics.get(topic)
        if not changes or changes[-1].revision <= revision:
            return []
        newest: list[Change] = []
        for change in reversed(changes):
            if change.revision <= revision:
                break
            newest.append(change)
        newest.reverse()
        return newest


class Loss(NamedTuple):
    """Revisions that a process knows and the database no longer has: those after `after`, up to `up_to`.

    timeline: the one that took their place. held: how many of the changes this process still held.
    """

    timeline: int
    after: int
    up_to: int
    held: int

    def __str__(self) -> str:
        return (
            f"the database went back in time: revisions {self.after + 1} to {self.up_to} are lost (this process held "
            f"{self.held} of their changes); revisions go on from {self.timeline}, and clients are told to list anew"
        )


class OwnVersion(NamedTuple):
    """A version that this process is committing: the object's JSON without its resourceVersion, and the object itself."""

    body: bytes
    object: Object


Read = Callable[[int, int | None], Awaitable[tuple[Sequence[Change], int, bool]]]
"""(after, up to) -> changes of history in order, the revision up to which they are complete, and whether there are more.

Raises NewTimeline if they do not follow what the feed has delivered.
"""
CheckTimeline = Callable[[], Awaitable[None]]
"""Compares the feed with the database: `follow` or `start_anew` is called if it must be."""


async def _no_timeline() -> None:
    """Default of a feed that follows no database."""


class Feed:
    """The process's cursor in the history; see the module's text."""

    def __init__(self, read: Read, ring_bytes: int, check_timeline: CheckTimeline = _no_timeline) -> None:
        self._read = read
        self._check_timeline = check_timeline
        self._buffer = ChangeBuffer(ring_bytes)
        self._lock = asyncio.Lock()
        self._waiters: defaultdict[str, set[asyncio.Future[int]]] = defaultdict(set)  # by topic; "" for any
        self._listeners: list[Callable[[Sequence[Change]], None]] = []
        self._own: dict[Key, OwnVersion] = {}
        self._wake = asyncio.Event()
        self.unbroken_since = 0  # differs after each start
        self.cursor = 0
        self.timeline = 0
        self._committed = 0
        self.broken: BaseException | None = None
        self.lost_touch = asyncio.Event()  # changes were missed: who fills a mirror anew clears it first
        self.losses: asyncio.Queue[Loss] = asyncio.Queue(LOSSES)

    def start_at(self, revision: int, timeline: int = 0) -> None:
        self._buffer.start_at(revision)
        self.cursor = self.unbroken_since = self._committed = revision
        self.timeline = timeline

    def start_anew(self, revision: int, timeline: int, loss: Loss | None = None) -> None:
        """Changes were missed, or delivered that are lost: wake all watchers, whose revisions are too old now."""
        self.start_at(revision, timeline)
        self.lost_touch.set()
        if loss is not None and not self.losses.full():
            self.losses.put_nowait(loss)
        for topic in list(self._waiters):
            for waiter in self._waiters.pop(topic):
                if not waiter.done():
                    waiter.set_result(revision)

    def follow(self, timeline: int) -> None:
        """Go on to a timeline that continues what was delivered. Which revisions lie before it, only the database knows."""
        if timeline != self.timeline:
            self.timeline = timeline
            self._buffer.start_at(max(timeline, self.cursor))
            self.wake()  # until the cursor is there, each watch reads history again and again

    @property
    def has_started(self) -> bool:
        return self.unbroken_since > 0

    @property
    def known(self) -> int:
        """The last revision that this process has delivered or committed."""
        return max(self.cursor, self._committed)

    def note_sent(self, versions: Mapping[Key, OwnVersion]) -> None:
        """Remember versions that are about to be committed: mirrors need not decode them if history has them first."""
        self._own.update(versions)

    def note_answered(self, versions: Mapping[Key, OwnVersion]) -> None:
        """Forget versions whose commit has failed or has been delivered."""
        for key, version in versions.items():
            if self._own.get(key) is version:
                del self._own[key]

    def _recognize(self, changes: Iterable[Change]) -> None:
        """Give changes the objects that this process has sent: history may have a commit before its answer arrives."""
        for change in changes:
            own = self._own.get(change.key)
            if own is not None and own.body == change.body:
                change.object = own.object

    def note_committed(self, revision: int) -> None:
        """This process has committed a revision, which is delivered in a moment."""
        self._committed = max(self._committed, revision)

    def count_after(self, revision: int) -> int:
        """Count the changes after a revision that are in memory."""
        return self._buffer.count_after(revision)

    async def listen(self, listener: Callable[[Sequence[Change]], None], since: int) -> None:
        """Call `listener` with each batch of changes after `since`, in order, before anybody who waits is woken.

        Those up to the cursor come from history; the cursor stands still meanwhile, so that none falls in between.
        """
        async with self._lock:
            more = since < self.cursor
            while more:
                part = await self._read_part(since, self.cursor)
                if part is None:
                    raise Unavailable("the database went back in time: read it anew")
                changes, since, more = part
                listener(changes)
            self._listeners.append(listener)

    def leave(self, listener: Callable[[Sequence[Change]], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.remove(listener)

    def wake(self, *_: Any) -> None:
        """Another process may have committed: look soon."""
        self._wake.set()

    async def on_commit(self, previous: int, changes: Sequence[Change], last: int) -> None:
        """This process committed revisions previous + 1 to last: read what lies before, then deliver."""
        async with self._lock:
            if self.cursor < previous:
                await self._read_up_to(previous)
            if last > self.cursor:
                # A page of history may have ended in the midst of them.
                self._deliver([change for change in changes if change.revision > self.cursor], last)

    async def catch_up(self) -> None:
        """Read whatever others have committed since. Away for longer than history is kept, the feed starts anew."""
        async with self._lock:
            try:
                await self._read_up_to(None)
            except Compacted:
                await self._check_timeline()

    async def _read_up_to(self, limit: int | None) -> None:
        more = True
        while more:
            part = await self._read_part(self.cursor, limit)
            if part is not None:
                changes, complete, more = part
                self._recognize(changes)
                self._deliver(changes, complete)

    async def _read_part(self, after: int, limit: int | None) -> tuple[Sequence[Change], int, bool] | None:
        """Read history; None if the feed has started anew meanwhile, so that `after` means nothing any more.

        Unavailable if the database contradicts itself, as two servers behind one address do during a failover.
        """
        since = self.unbroken_since
        while self.unbroken_since == since:
            followed = self.timeline
            try:
                part = await self._read(after, limit)
            except NewTimeline:
                await self._check_timeline()
                if (self.unbroken_since, self.timeline) == (since, followed):
                    raise Unavailable("the database shows two timelines at once: try again") from None
                continue
            return part if self.unbroken_since == since else None
        return None

    def _deliver(self, changes: Sequence[Change], cursor: int) -> None:
        if cursor <= self.cursor:
            return
        woken = {""}
        for change in changes:
            woken.update(self._buffer.add(change))
        before, self.cursor = self.cursor, cursor
        for listener in self._listeners:
            listener(changes)
        for change in changes:
            change.object = None  # the ring keeps bytes: objects are ten times as large
        for topic in woken:
            for waiter in self._waiters.pop(topic, ()):
                if not waiter.done():
                    waiter.set_result(before)

    def after(self, topic: str, revision: int) -> list[Change] | None:
        """Changes of a topic after a revision, up to the cursor; None when only history has them."""
        return self._buffer.after(topic, revision)

    def newest(self, key: Key) -> Change | None:
        """The newest change of an object that is bound to a node, as of the cursor; None if it is not in memory."""
        return self._buffer.newest(key)

    async def changed(self, topic: str = "") -> None:
        """Return at the next delivery of changes of a topic, or at any."""
        waiter = self._add_waiter(topic)
        try:
            await waiter
        finally:
            self._remove_waiter(topic, waiter)

    async def quiet_until(self, topic: str, revision: int, seconds: float) -> int:
        """Wait for a change of a topic, but only so long; up to where there was none after `revision`.

        So who waited for a rare one need not read in history what all others did meanwhile.
        """
        waiter = self._add_waiter(topic)
        # Not asyncio.timeout, which costs a watcher as much as all else together.
        end = asyncio.get_running_loop().call_later(seconds, self._time_out, waiter)
        try:
            quiet = await waiter
        finally:
            end.cancel()
            self._remove_waiter(topic, waiter)
        if revision < max(self.unbroken_since, self.timeline) or not self._buffer.knows_topics:
            return revision
        return max(revision, quiet)

    def _time_out(self, waiter: "asyncio.Future[int]") -> None:
        """The poll timed out without a change. What comes before the waiter wakes is not to be counted as quiet."""
        if not waiter.done():
            waiter.set_result(self.cursor)

    def _add_waiter(self, topic: str) -> asyncio.Future[int]:
        """Done at the next delivery, with what the cursor was before it."""
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiters[topic].add(waiter)
        return waiter

    def _remove_waiter(self, topic: str, waiter: asyncio.Future[int]) -> None:
        waiters = self._waiters.get(topic)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[topic]

    async def reach(self, revision: int) -> None:
        """Return when everything up to `revision` has been delivered here."""
        while self.cursor < revision:
            self.wake()
            await self.changed_within(POLL_SECONDS)

    async def reach_within(self, revision: int, seconds: float) -> bool:
        """Return whether everything up to `revision` is delivered here within a time."""
        try:
            async with asyncio.timeout(seconds):
                await self.reach(revision)
        except TimeoutError:
            return False
        return True

    async def changed_within(self, seconds: float, topic: str = "") -> bool:
        """Return at the next delivery (of a topic, or any) or after a time; tell which."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed(topic)
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Follow other processes' commits until cancelled. A database that is away is waited for."""
        while True:
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self.catch_up()
                self.broken = None
            except Exception as error:
                logger.warning("change feed waits for the database", error=error)
                self.broken = error
                await asyncio.sleep(POLL_SECONDS / 4)
