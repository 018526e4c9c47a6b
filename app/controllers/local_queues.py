"""LocalQueues beside the scheduler's rounds: which of them count, how they fare, and what Jobs in line for quota are told.

`app.scheduler.fair_sharing` decides with what is kept here. Of several queues of a namespace the oldest counts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.controllers.preemption_writes import SAY_AGAIN, told
from app.kinds.batch.job import KIND as JOBS
from app.kinds.scheduling.localqueue import ACTIVE, LocalQueue, LocalQueueStatus
from app.machinery.meta_condition import Condition, with_condition
from app.plans.plan import Emit, Plan, SetStatus
from app.scheduler.fair_sharing import FairSharing, queue_config_of, queue_message, queue_positions
from app.scheduler.scheduling_queue import Queue
from app.scheduler.scheduling_round import Verdict
from app.store import Key, Mirror

QUEUES = Key("scheduler", "", "queues")
PACE = timedelta(seconds=1)  # between two writes of how queues fare
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class _Told(NamedTuple):
    """What somebody in line was told last."""

    place: int
    at: datetime
    queue: str


class Queueing:
    def __init__(self, mirror: Mirror, fair: FairSharing, queue: Queue) -> None:
        self._mirror = mirror
        self._fair = fair
        self._queue = queue
        self._queues: defaultdict[str, dict[str, LocalQueue]] = defaultdict(dict)
        self._told: dict[tuple[str, str], _Told] = {}  # by namespace and who
        self._said_at = _LONG_AGO

    def set(self, key: Key, now: LocalQueue | None) -> bool:
        """A queue has changed; true if that matters to who is waiting."""
        known = self._queues[key.namespace]
        if now is None:
            known.pop(key.name, None)
        else:
            known[key.name] = now
        return self._fair.set(key.namespace, min(known.values(), key=_age, default=None))

    # How queues fare

    def statuses(self, now: datetime) -> Iterable[PlannedWrite]:
        if now - self._said_at < PACE:
            yield PlannedWrite(Plan(again_at=self._said_at + PACE))
            return
        self._said_at = now
        waiting = self._queue.counts()
        for namespace, queues in self._queues.items():
            for queue in queues.values():
                status = self._status(namespace, queue, waiting.get(namespace, 0), now.replace(microsecond=0))
                if status != queue.status:
                    yield PlannedWrite(Plan((SetStatus(replace(queue, status=status)),)), [queue])

    def _status(self, namespace: str, queue: LocalQueue, waiting: int, now: datetime) -> LocalQueueStatus:
        first = self._fair.terms[namespace].queue
        is_first = first.metadata.name == queue.metadata.name
        active = Condition(
            type=ACTIVE,
            status="True" if is_first else "False",
            observed_generation=queue.metadata.generation,
            last_transition_time=now,
            reason="Ready" if is_first else "Superseded",
            message="" if is_first else f"The namespace has an older queue, which counts: {first.metadata.name}",
        )
        conditions = with_condition(queue.status.conditions, active)
        if not is_first:
            return LocalQueueStatus(conditions=conditions)
        terms, used = queue_config_of(queue), self._fair.ledger.of(namespace)
        return LocalQueueStatus(
            conditions=conditions,
            pending_pods=waiting,
            running_pods=used.get("pods", 0),
            usage={name: terms.shown(name, used.get(name, 0)) for name in terms.nominal},
        )

    # What those in line are told

    def worded(self, verdicts: Iterable[Verdict]) -> list[Verdict]:
        """With the place of those who wait for quota: it is known at the end of a round."""
        if not self._fair.is_active:
            return [*verdicts]
        standing = {namespace: queue_positions(each) for namespace, each in self._fair.lines().items()}
        return [self._with_place(verdict, standing) for verdict in verdicts]

    def _with_place(self, verdict: Verdict, standing: Mapping[str, dict[str, int]]) -> Verdict:
        one = self._fair.waiting(verdict.pod.metadata.uid)
        return verdict if one is None else changed(verdict, why=queue_message(one, standing[one.asking.namespace]))

    def news(self, verdicts: Iterable[Verdict], now: datetime) -> Iterable[PlannedWrite]:
        """To Jobs that join the line, that have come a good deal nearer to its head, and that leave it.

        `verdicts`: of pods that are told already.
        """
        if not self._fair.is_active and not self._told:
            return
        told_already = {verdict.pod.metadata.uid for verdict in verdicts}
        present: set[tuple[str, str]] = set()
        nearer: set[tuple[str, str]] = set()
        for namespace, waiting in self._fair.lines().items():
            standing = queue_positions(waiting)
            for one in waiting:
                who, text = (namespace, one.asking.who), queue_message(one, standing)
                if who not in present:
                    present.add(who)
                    nearer |= {who} if who in self._told else set()
                    if not self._is_news(who, standing[who[1]], now):
                        nearer.discard(who)
                        continue
                    yield from self._event(who, "Pending", text)
                if who in nearer and (work := self._again(set(one.asking.uids) - told_already, text, now)):
                    yield work
        for who in self._told.keys() - present:
            yield from self._event(who, "QuotaReserved", f"Quota reserved in queue {self._told.pop(who).queue}")

    def _is_news(self, who: tuple[str, str], place: int, now: datetime) -> bool:
        """At first, and whenever its place is half of what it was, or less."""
        known = self._told.get(who)
        if known is not None and (place > known.place / 2 or now - known.at < SAY_AGAIN):
            return False
        self._told[who] = _Told(place, now, self._fair.terms[who[0]].queue.metadata.name)
        return True

    def _again(self, uids: Iterable[str], text: str, now: datetime) -> PlannedWrite | None:
        """Its pods say so, too."""
        works = [told(Verdict(self._queue.pod(uid), text), now, pace=timedelta()) for uid in uids]
        actions = [action for work in works if work is not None for action in work.plan.actions]
        return PlannedWrite(Plan(tuple(actions))) if actions else None

    def _event(self, who: tuple[str, str], reason: str, text: str) -> Iterable[PlannedWrite]:
        """Pods without a Job have events of their own."""
        namespace, (kind, _, name) = who[0], who[1].partition(" ")
        job = self._mirror.get(Key(JOBS.resource, namespace, name)) if kind == "job" else None
        if job is not None:
            yield PlannedWrite(Plan((Emit("Normal", reason, text, job),)))


def _age(queue: LocalQueue) -> tuple[datetime, str]:
    return queue.metadata.creation_timestamp or _LONG_AGO, queue.metadata.name
