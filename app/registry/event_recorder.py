"""Event recorder: which events are written anew, counted with an earlier one, or dropped. As Kubernetes' recorders do it.

Each runner has one `Recorder`, whose memory is bounded and its own: what it forgets is written anew. It turns the events of a
plan into creations and updates of Event objects, which are part of the plan's write set. What it drafted counts only
once that is committed, so a plan that is refused and made again does not count as a second event.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event, involved
from app.plans.plan import Action, Create, Emit, Plan, Update
from app.registry.plan_writer import event
from app.store import Key, Write

MEMORY = 4096  # keys remembered, of each sort
MANY = 10  # messages of one sort within `SPAN` that are still written one by one, and one more
SPAN = timedelta(minutes=10)
BURST = 25  # events about one object, of one reason: what happens often may not drown what matters
REFILL = timedelta(minutes=5)  # after which one more may be written
COMBINED = "(combined from similar events): "

K = tuple[str, ...]
V = TypeVar("V")


class _RecentlyUsed(OrderedDict[K, V], Generic[V]):
    """Forgets what was kept longest ago."""

    def keep(self, values: Iterable[tuple[K, V]]) -> None:
        for key, value in values:
            self[key] = value
            self.move_to_end(key)
        while len(self) > MEMORY:
            self.popitem(last=False)


class _Aggregate(NamedTuple):
    messages: frozenset[str]
    last_at: datetime


class _TokenBucket(NamedTuple):
    tokens: float
    at: datetime


class Draft:
    """A plan with its events as objects, and what is to be remembered if it is carried out."""

    def __init__(self, recorder: "Recorder", component: str, now: datetime) -> None:
        self._recorder = recorder
        self._component = component
        self._now = now
        self._aggregates: dict[K, _Aggregate] = {}
        self._buckets: dict[K, _TokenBucket] = {}
        self._seen: dict[K, Event] = {}
        self._actions: dict[str, Create | Update] = {}  # by the event's name
        self.plan = Plan()

    def take(self, plan: Plan) -> "Draft":
        others: list[Action] = []
        for action in plan.actions:
            if isinstance(action, Emit) and not action.once:
                self._record(event(action, self._component, self._now))
            else:
                others.append(action)
        self.plan = Plan((*others, *self._actions.values()), plan.again_at)
        return self

    def _record(self, new: Event) -> None:
        about = _about(new)
        sort = (*about, new.type, new.reason)
        key = (*sort, new.message)
        if self._is_aggregated(sort, new):
            text = new.message.removeprefix(COMBINED)
            key, new = sort, replace(new, message=f"{COMBINED}{text}"[:1024])
        known = self._seen.get(key) or self._recorder.seen.get(key)
        if known is not None:
            count = known.count + new.count
            new = replace(known, count=count, last_timestamp=self._now, message=new.message)
        self._seen[key] = new
        if self._is_within_rate((*about, new.reason)):
            self._write(new, known)

    def _write(self, new: Event, known: Event | None) -> None:
        """An event is written once in a set, however often it happens."""
        name = new.metadata.name
        earlier = self._actions.get(name)
        if isinstance(earlier, Update) or (earlier is None and known is not None and known.metadata.resource_version):
            old = earlier.old if isinstance(earlier, Update) else known
            assert old is not None  # noqa: S101 - for the type checker: one of the two conditions says so
            self._actions[name] = Update(new, old)
        else:
            self._actions[name] = Create(new)

    def _is_aggregated(self, sort: K, new: Event) -> bool:
        known = self._aggregates.get(sort) or self._recorder.aggregates.get(sort)
        messages = known.messages if known and self._now - known.last_at <= SPAN else frozenset()
        many = new.count > 1 or len(messages | {new.message}) >= MANY
        self._aggregates[sort] = _Aggregate(messages if many else messages | {new.message}, self._now)
        return many

    def _is_within_rate(self, about: K) -> bool:
        known = self._buckets.get(about) or self._recorder.buckets.get(about) or _TokenBucket(BURST, self._now)
        tokens = min(BURST, known.tokens + max(timedelta(), self._now - known.at) / REFILL)
        allowed = tokens >= 1
        self._buckets[about] = _TokenBucket(tokens - 1 if allowed else tokens, self._now)
        return allowed

    def done(self, writes: Sequence[Write], revisions: Sequence[int]) -> None:
        """Remember what was written, in the version that is stored now."""
        if not self._seen:
            return
        stored = {
            write.key.name: replace(write.object, metadata=replace(write.object.metadata, resource_version=str(number)))
            for write, number in zip(writes, revisions, strict=True)
            if write.key.kind == EVENTS.resource and isinstance(write.object, Event)
        }
        self._recorder.seen.keep((key, stored.get(each.metadata.name, each)) for key, each in self._seen.items())
        self._recorder.aggregates.keep(self._aggregates.items())
        self._recorder.buckets.keep(self._buckets.items())


class Recorder:
    """Events that one runner has written."""

    def __init__(self, component: str) -> None:
        self._component = component
        self.seen: _RecentlyUsed[Event] = _RecentlyUsed()
        self.aggregates: _RecentlyUsed[_Aggregate] = _RecentlyUsed()
        self.buckets: _RecentlyUsed[_TokenBucket] = _RecentlyUsed()

    def draft(self, plan: Plan, now: datetime) -> Draft:
        return Draft(self, self._component, now).take(plan)

    def forget(self, refused: Iterable[Key]) -> bool:
        """Somebody has changed or deleted these events: they are written anew. True if there was one."""
        names = {key.name for key in refused if key.kind == EVENTS.resource}
        lost = [key for key, each in self.seen.items() if each.metadata.name in names] if names else []
        for key in lost:
            del self.seen[key]
        return bool(lost)


def _about(event: Event) -> K:
    """The source of an event and the object that it is about."""
    about = involved(event)
    source = event.source.component if event.source else ""
    return (source, about.kind, about.namespace, about.name, about.uid, about.api_version)
