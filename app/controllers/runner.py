"""Runner: the loop that all controllers share. Keys in; observe, plan, commit; again when due, or when refused.

A key says "look", never "what happened": losing one costs latency, not correctness. Many keys are planned together and
their write sets share transactions. What was planned from a stale mirror is refused by the store and planned again.
"""

import asyncio
import time
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, nullcontext
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from app.controllers.delaying_queue import DelayingQueue
from app.controllers.metrics.workqueue import WorkqueueMetrics
from app.controllers.own_writes import OwnWrites
from app.controllers.planned_write import PlannedWrite
from app.machinery.base import Object
from app.registry.event_recorder import Recorder
from app.registry.leader_election import Epoch
from app.registry.plan_writer import without_refused_events, write_set
from app.registry.registry import Registry
from app.store import Conflict, Key, Mirror, OutcomeUnknown, Unavailable, Write
from app.structured_logging import Logger, object_fields

logger = Logger(__name__)
BATCH = 256  # keys planned together
_RETRY = (timedelta(seconds=1), timedelta(seconds=60))
_REFUSED_RETRY = (timedelta(seconds=0.05), timedelta(seconds=5))
_AT_ONCE = 5  # refusals of a key in a row that are tried again without a pause
_OUTAGE_RETRY = timedelta(seconds=0.25)
_SLOW_SECONDS = 0.005  # seconds of CPU time: a key that takes longer to plan rests afterwards, while its changes gather
_REST = 19.0  # times as long as it took
_LONGEST_REST = 1.0
_MOST_ON_THEIR_WAY = 20  # write sets of a key that is planned while they are committed
_MOST_WAITING = 1_000  # keys whose plans wait for something


class Controller(Protocol):
    """What differs between controllers. Their caches change in `on_event` and `enqueue_all`; only the runner writes."""

    component: str  # the source of its events

    def on_event(self, key: Key, before: Object | None, now: Object | None, /) -> Iterable[Key]:
        """Handle a change of an object, seen once and in order: update caches; return the keys to reconcile because of it."""

    def enqueue_all(self) -> Iterable[Key]:
        """Handle the start, when the mirror is filled: build caches anew; return every key to reconcile."""

    def reconcile(
        self, key: Key, now: datetime, /
    ) -> Sequence[PlannedWrite] | Awaitable[Sequence[PlannedWrite]] | Iterator[PlannedWrite]:
        """Plan what to do about a key, from the mirror and the caches; each item is one write set. Awaited if it reads more.

        Of an iterator, the next item is planned while those before it are committed, and none once one has failed.
        """


@runtime_checkable
class Selective(Protocol):
    """A controller that handles changes of `kinds` only, and hears of no others. Few controllers need those of pods."""

    kinds: Collection[str]


@runtime_checkable
class Serialized(Protocol):
    """A controller of which some keys are planned one after the other, because what they write is the same."""

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        """Held from planning a key until that is committed."""


@runtime_checkable
class Forgetting(Protocol):
    """A controller whose caches hold objects that may be dormant (`app.store.mirror`)."""

    def on_dormancy(self, key: Key, obj: Object, is_dormant: bool, /) -> None:
        """Handle that an object has left the mirror though it exists, or comes back to it."""


class _Pause(asyncio.Future[None]):
    """The runner's wait for the keys in work. Cancelling it cancels the work in the same moment, as `asyncio.gather` does.

    A task group does so one turn of the event loop later. By then the writer may have sent what the runner, which was told to
    stop, had just put into its queue.
    """

    def __init__(self, tasks: Mapping[Key, asyncio.Task[None]]) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._work = tasks

    def cancel(self, msg: Any | None = None) -> bool:
        for task in tuple(self._work.values()):
            task.cancel(msg)
        return super().cancel(msg)


class Runner:
    """Runs one controller. What it writes is refused once the epoch is over, if there is one."""

    def __init__(self, registry: Registry, mirror: Mirror, controller: Controller, epoch: Epoch | None = None) -> None:
        self._registry = registry
        self._epoch = epoch
        self._mirror = mirror
        self._controller = controller
        self._locks = controller if isinstance(controller, Serialized) else None
        self._recorder = Recorder(controller.component)
        self._metrics = WorkqueueMetrics(registry.metrics, controller.component)
        self._dirty: dict[Key, float] = {}  # since when, by time.perf_counter
        self.delayed = DelayingQueue(registry.clock, registry.elapsed)
        self._failures: dict[Key, int] = {}
        self._resting: dict[Key, bool] = {}  # True if it is to be looked at afterwards
        self._in_work: dict[Key, bool] = {}  # the same, of keys that are planned or written just now
        self._own_writes = OwnWrites()
        self._active = 0  # of these, those that wait neither for a plan nor for a lock
        self._tasks: dict[Key, asyncio.Task[None]] = {}  # the work on each
        self._pause: _Pause | None = None  # of the loop
        self._unsure = False  # a commit may have happened that the mirror does not show
        self._wake = asyncio.Event()
        mirror.listen(self._changed, controller.kinds if isinstance(controller, Selective) else None)
        if isinstance(controller, Forgetting):
            mirror.listen_to_dormancy(controller.on_dormancy)

    def _changed(self, key: Key, before: Object | None, now: Object | None) -> None:
        for each in self._controller.on_event(key, before, now):
            if not self._own_writes.skips(each, key, before):
                self.enqueue(each)

    def enqueue(self, key: Key) -> None:
        for later in (self._in_work, self._resting):
            if key in later:
                later[key] = True
                return
        if key not in self._dirty:
            self._dirty[key] = time.perf_counter()
            self._metrics.note_added(len(self._dirty))
        self._wake.set()

    def enqueue_at(self, key: Key, at: datetime) -> None:
        """Enqueue a key when the clock shows that time, or sooner: when as much time has passed as is left now.

        So a clock that is set back delays nothing. A plan that is looked at too early says again when.
        """
        self._enqueue_after(key, at - self._registry.clock())

    def _enqueue_after(self, key: Key, delay: timedelta) -> None:
        if self.delayed.add_after(key, delay):
            self._wake.set()

    async def run(self) -> None:
        """Run until cancelled; then writes that still wait in the writer's queue are withdrawn."""
        for key in self._controller.enqueue_all():
            self.enqueue(key)
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wait()
                if self._unsure:
                    await self._await_outcome()
                    continue
                for key in self._take():
                    self._in_work[key] = False
                    self._active += 1
                    self._tasks[key] = group.create_task(self._sync(key))
                await self._wait_for_active()

    async def _wait_for_active(self) -> None:
        """Return when the keys taken are done. Those that wait, for a webhook perhaps, delay no other, unless they are many."""
        while self._is_occupied():
            self._pause = _Pause(self._tasks)
            await self._pause

    def _is_occupied(self) -> bool:
        return self._active > 0 or len(self._in_work) > _MOST_WAITING

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """While a key waits for something that takes its time, others are planned."""
        self._end_activity()
        try:
            yield
        finally:
            self._active += 1

    def _end_activity(self) -> None:
        self._active -= 1
        if self._pause is not None and not self._pause.done() and not self._is_occupied():
            self._pause.set_result(None)

    def _take(self) -> list[Key]:
        """Take the next keys out of the queue."""
        keys, now = list(islice(self._dirty, BATCH)), time.perf_counter()
        for key in keys:
            self._metrics.note_taken(now - self._dirty.pop(key))
        self._metrics.note_depth(len(self._dirty))
        return keys

    async def _wait(self) -> None:
        """Return when some key is to be looked at."""
        while True:
            for key in self.delayed.take_due():
                self.enqueue(key)
            if self._dirty:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(
                    self.delayed.seconds_to_next()
                ):  # wait_for may swallow a cancellation before 3.12
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _sync(self, key: Key) -> None:
        """Plan one key and commit; whatever goes wrong, look again."""
        began, is_done = time.perf_counter(), False
        try:
            results = await (self._work(key) if self._locks is None else self._work_under_lock(key, self._locks))
            if failed := _worst_failure(results):
                raise failed
            self._failures.pop(key, None)
            is_done = True
        except Conflict as conflict:
            if self._epoch is not None and self._epoch.over.is_set():
                return
            await self._catch_up(conflict.revision)
            self._retry_refused(key, conflict)
        except Exception as error:
            self._retry_failed(key, error)
        finally:
            self._metrics.note_worked(time.perf_counter() - began)
            is_due, _ = self._in_work.pop(key), self._tasks.pop(key)
            self._end_activity()
            if self._own_writes.end(key, is_done=is_done) or is_due:
                self.enqueue(key)

    async def _work(self, key: Key) -> list[BaseException | None]:
        return await self._execute_all(key, await self._plan(key))

    async def _work_under_lock(self, key: Key, locks: Serialized) -> list[BaseException | None]:
        lock = locks.lock(key)
        if isinstance(lock, nullcontext):
            return await self._work(key)
        async with AsyncExitStack() as stack:
            with self._waiting():
                await stack.enter_async_context(lock)
            if not self._unsure:
                return await self._work(key)
        self.enqueue(key)  # who had the lock does not know what it wrote: that has to be seen first
        return []

    async def _plan(self, key: Key) -> Iterable[PlannedWrite]:
        began = time.thread_time()
        now = self._registry.now()
        planned = self._controller.reconcile(key, now)
        if isinstance(planned, Iterator):
            return self._plan_stepwise(key, planned, now)
        spent = time.thread_time() - began
        if isinstance(planned, Awaitable):
            with self._waiting():
                planned = await planned
        self._rest_if_slow(key, spent, has_more=any(_goes_on(each, now) for each in planned))
        return planned

    def _plan_stepwise(self, key: Key, planned: Iterator[PlannedWrite], now: datetime) -> Iterator[PlannedWrite]:
        spent, has_more = 0.0, False
        while True:
            began = time.thread_time()
            item = next(planned, None)
            spent += time.thread_time() - began
            if item is None:
                break
            has_more = has_more or _goes_on(item, now)
            yield item
        self._rest_if_slow(key, spent, has_more=has_more)

    def _rest_if_slow(self, key: Key, spent: float, *, has_more: bool) -> None:
        """A key that is cheap to plan is planned at every change. So is one that is not, if it has not been of late."""
        if spent > _SLOW_SECONDS and not has_more:
            self._resting.setdefault(key, False)
            asyncio.get_running_loop().call_later(min(spent * _REST, _LONGEST_REST), self._end_rest, key)

    def _end_rest(self, key: Key) -> None:
        if self._resting.pop(key, False):
            self.enqueue(key)

    async def _execute_all(self, key: Key, items: Iterable[PlannedWrite]) -> list[BaseException | None]:
        """Return what became of each. The first are on their way to the database while the next are put into writing."""
        tasks: list[asyncio.Task[None]] = []
        is_stepwise = isinstance(items, Iterator)
        if isinstance(items, list | tuple) and len(items) < 2:
            return [await self._execute_alone(key, item) for item in items]
        try:
            for item in items:
                tasks.append(asyncio.create_task(self._execute(key, item)))
                await asyncio.sleep(0)
                if is_stepwise and await self._must_stop(key, tasks):
                    break
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                for task in tasks:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def _execute_alone(self, key: Key, item: PlannedWrite) -> BaseException | None:
        try:
            await self._execute(key, item)
        except Exception as error:
            return error
        return None

    async def _must_stop(self, key: Key, tasks: Sequence[asyncio.Task[None]]) -> bool:
        """Wait while many write sets are on their way; then return whether no more of them may be planned."""
        if len(tasks) > _MOST_ON_THEIR_WAY:
            await asyncio.wait(tasks[-_MOST_ON_THEIR_WAY - 1 : -_MOST_ON_THEIR_WAY])
        if self._unsure:
            self.enqueue(key)
        return self._unsure or any(task.done() and (task.cancelled() or task.exception()) for task in tasks)

    async def _execute(self, key: Key, item: PlannedWrite) -> None:
        try:
            await self._commit(key, item)
        except Conflict as conflict:
            # A namespace that is going takes no events, but its pods still end. Nor may an event that is gone stop them.
            silent, forgot = without_refused_events(item.plan, conflict.keys), self._recorder.forget(conflict.keys)
            if silent is item.plan and not forgot:
                raise
            await self._commit(key, PlannedWrite(silent, item.seen))
        if item.plan.again_at is not None:
            self.enqueue_at(key, _round_up(item.plan.again_at))

    async def _commit(self, key: Key, item: PlannedWrite) -> None:
        now = self._registry.now()
        draft = self._recorder.draft(item.plan, now)
        writes = write_set(draft.plan, item.seen, self._controller.component, now)
        if item.plan.is_settled:
            self._own_writes.begin(key, writes)
        if writes:
            draft.done(writes, await self._store(writes))

    async def _store(self, writes: list[Write]) -> list[int]:
        """The revisions. If the feed fell behind, the mirror does not show what was written: the next plan waits for it."""
        store, epoch = self._registry.store, self._epoch
        if epoch is not None and store.feed.lost_touch.is_set():
            raise Unavailable("the change feed started anew: this plan may rest on what the database has lost")
        revisions = await (store.commit(writes) if epoch is None else epoch.commit(store, writes))
        self._unsure = self._unsure or store.feed.cursor < revisions[-1]
        return revisions

    async def _catch_up(self, revision: int) -> None:
        """What refused the plan is visible at `revision`: planning before the mirror has it would be refused again."""
        try:
            async with asyncio.timeout(1.0):
                await self._registry.store.feed.reach(revision)
        except TimeoutError:
            self._unsure = True

    async def _await_outcome(self) -> None:
        """After an unknown outcome: an empty write set waits for the one before to end, and the mirror for what it did.

        Preconditions guard what a plan writes, not what it counted: two bindings to one node name different pods.
        """
        store = self._registry.store
        try:
            async with asyncio.timeout(10.0):
                await store.commit([])
                await store.feed.reach(await store.revision())
            self._unsure = False
        except (Unavailable, OutcomeUnknown, TimeoutError):
            await asyncio.sleep(_OUTAGE_RETRY.total_seconds())

    def _note_failure(self, key: Key) -> int:
        """Return how often the key has failed in a row."""
        self._metrics.note_retry()
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return failures

    def _retry_refused(self, key: Key, conflict: Conflict) -> None:
        """At once, for the mirror has caught up. But a demand may fail for good, such as one on a namespace that is gone."""
        failures = self._note_failure(key)
        if failures <= _AT_ONCE:
            self.enqueue(key)
            return
        if failures >= 2 * _AT_ONCE:
            logger.warning(
                "writes of a plan are refused again and again; planning anew after a pause",
                controller=self._controller.component,
                **object_fields(*key),
                attempt=failures,
                error=conflict,
            )
        delay = min(_REFUSED_RETRY[0] * 2 ** min(failures - _AT_ONCE, 10), _REFUSED_RETRY[1])
        self._enqueue_after(key, delay)

    def _retry_failed(self, key: Key, error: Exception) -> None:
        failures = self._note_failure(key)
        delay = min(_RETRY[0] * 2 ** min(failures - 1, 10), _RETRY[1])
        away = isinstance(error, Unavailable | OutcomeUnknown)
        if away:
            delay = _OUTAGE_RETRY
        self._unsure = self._unsure or isinstance(error, OutcomeUnknown)
        if away:
            logger.warning("database is unavailable; retrying", controller=self._controller.component, error=error)
        else:
            logger.warning(
                "cannot reconcile an object; retrying",
                controller=self._controller.component,
                **object_fields(*key),
                attempt=failures,
                traceback_of=error,
            )
        self._enqueue_after(key, delay)


def _goes_on(item: PlannedWrite, now: datetime) -> bool:
    """It did a part of what there is to do, and wants to go on at once: there is nothing to gather."""
    return item.plan.again_at is not None and item.plan.again_at <= now


def _worst_failure(results: Sequence[BaseException | None]) -> BaseException | None:
    """Return what to say of several write sets: that nobody knows what became of one must not be lost behind a refusal."""
    failures = [each for each in results if each is not None]
    if not failures:
        return None
    return next((each for each in failures if isinstance(each, OutcomeUnknown)), failures[0])


def _round_up(moment: datetime) -> datetime:
    """The next whole second: plans see whole seconds only, and one that is looked at too early would look again at once."""
    return moment if moment.microsecond == 0 else moment.replace(microsecond=0) + timedelta(seconds=1)
