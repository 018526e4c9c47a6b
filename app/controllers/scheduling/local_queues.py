"""LocalQueues beside the scheduler's rounds: which of them are active, their status, and the messages to pods and Jobs that wait.

`app.scheduler.fair_sharing` decides with what is set here. Of several queues in a namespace the oldest is active.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.controllers.scheduling.preemption_writes import REPORT_INTERVAL, write_result
from app.kinds.batch.job import KIND as JOBS
from app.kinds.scheduling.localqueue import ACTIVE, LocalQueue, LocalQueueStatus
from app.machinery.meta.meta_condition import Condition, with_condition
from app.plans.plan import Emit, Plan, SetStatus
from app.scheduler.fair_sharing import FairSharing, queue_message, queue_positions
from app.scheduler.scheduling_queue import SchedulingQueue
from app.scheduler.scheduling_round import PostFilterResult
from app.store import Key, Mirror

QUEUES = Key("scheduler", "", "queues")
STATUS_INTERVAL = timedelta(seconds=1)  # between two writes of the queues' status
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

_Owner = tuple[str, str]
"""Namespace, and owner of pending pods as in messages, such as `job train-7`."""


class _Report(NamedTuple):
    """The last event to an owner of pending pods."""

    position: int
    at: datetime
    queue: str


class LocalQueues:
    def __init__(self, mirror: Mirror, fair: FairSharing, scheduling_queue: SchedulingQueue) -> None:
        self._mirror = mirror
        self._fair = fair
        self._scheduling_queue = scheduling_queue
        self._queues: defaultdict[str, dict[str, LocalQueue]] = defaultdict(dict)  # by namespace and name
        self._reports: dict[_Owner, _Report] = {}
        self._status_written_at = _LONG_AGO

    def set(self, key: Key, now: LocalQueue | None) -> bool:
        """Add, update or, with None, remove a queue. Returns whether all pending pods have to be admitted anew."""
        queues = self._queues[key.namespace]
        if now is None:
            queues.pop(key.name, None)
        else:
            queues[key.name] = now
        return self._fair.set(key.namespace, min(queues.values(), key=_age, default=None))

    # Status

    def write_statuses(self, now: datetime) -> Iterable[PlannedWrite]:
        if now - self._status_written_at < STATUS_INTERVAL:
            yield PlannedWrite(Plan(again_at=self._status_written_at + STATUS_INTERVAL))
            return
        self._status_written_at = now
        pending = self._scheduling_queue.count_by_namespace()
        for namespace, queues in self._queues.items():
            for queue in queues.values():
                status = self._build_status(namespace, queue, pending.get(namespace, 0), now.replace(microsecond=0))
                if status != queue.status:
                    yield PlannedWrite(Plan((SetStatus(replace(queue, status=status)),)), [queue])

    def _build_status(self, namespace: str, queue: LocalQueue, pending: int, now: datetime) -> LocalQueueStatus:
        config = self._fair.configs[namespace]
        active_name = config.queue.metadata.name
        is_active = active_name == queue.metadata.name
        condition = Condition(
            type=ACTIVE,
            status="True" if is_active else "False",
            observed_generation=queue.metadata.generation,
            last_transition_time=now,
            reason="Ready" if is_active else "Superseded",
            message="" if is_active else f"The namespace has an older queue, which counts: {active_name}",
        )
        conditions = with_condition(queue.status.conditions, condition)
        if not is_active:
            return LocalQueueStatus(conditions=conditions)
        used = self._fair.usage.get(namespace)
        return LocalQueueStatus(
            conditions=conditions,
            pending_pods=pending,
            running_pods=used.get("pods", 0),
            usage={name: config.format_amount(name, used.get(name, 0)) for name in config.nominal},
        )

    # Messages

    def add_positions(self, results: Iterable[PostFilterResult]) -> list[PostFilterResult]:
        """Add the positions of pods that are pending for quota to their messages: they are known at the end of a round."""
        if not self._fair.is_active:
            return [*results]
        positions = {namespace: queue_positions(each) for namespace, each in self._fair.pending.items()}
        return [self._add_position(result, positions) for result in results]

    def _add_position(self, result: PostFilterResult, positions: Mapping[str, dict[str, int]]) -> PostFilterResult:
        pending = self._fair.pending_request(result.pod.metadata.uid)
        if pending is None:
            return result
        return dataclasses.replace(result, message=queue_message(pending, positions[pending.request.namespace]))

    def write_reports(self, results: Iterable[PostFilterResult], now: datetime) -> Iterable[PlannedWrite]:
        """Events of Jobs that begin to wait for quota, whose position has halved, or that have quota; and their pods' messages.

        `results`: of pods whose messages are written already.
        """
        if not self._fair.is_active and not self._reports:
            return
        written = {result.pod.metadata.uid for result in results}
        present: set[_Owner] = set()
        nearer: set[_Owner] = set()
        for namespace, waiting in self._fair.pending.items():
            positions = queue_positions(waiting)
            for pending in waiting:
                owner, message = (namespace, pending.request.owner), queue_message(pending, positions)
                if owner not in present:
                    present.add(owner)
                    nearer |= {owner} if owner in self._reports else set()
                    if not self._is_report_due(owner, positions[owner[1]], now):
                        nearer.discard(owner)
                        continue
                    yield from self._emit(owner, "Pending", message)
                if owner in nearer and (write := self._write_pods(set(pending.request.uids) - written, message, now)):
                    yield write
        for owner in self._reports.keys() - present:
            yield from self._emit(owner, "QuotaReserved", f"Quota reserved in queue {self._reports.pop(owner).queue}")

    def _is_report_due(self, owner: _Owner, position: int, now: datetime) -> bool:
        """At first, and whenever the position is at most half of the last."""
        last = self._reports.get(owner)
        if last is not None and (position > last.position / 2 or now - last.at < REPORT_INTERVAL):
            return False
        self._reports[owner] = _Report(position, now, self._fair.configs[owner[0]].queue.metadata.name)
        return True

    def _write_pods(self, uids: Iterable[str], message: str, now: datetime) -> PlannedWrite | None:
        results = (PostFilterResult(self._scheduling_queue.get_pod(uid), message) for uid in uids)
        writes = [write_result(result, now, interval=timedelta()) for result in results]
        actions = [action for write in writes if write is not None for action in write.plan.actions]
        return PlannedWrite(Plan(tuple(actions))) if actions else None

    def _emit(self, owner: _Owner, reason: str, message: str) -> Iterable[PlannedWrite]:
        """Only for Jobs: pods without one have events of their own."""
        namespace, (kind, _, name) = owner[0], owner[1].partition(" ")
        job = self._mirror.get(Key(JOBS.resource, namespace, name)) if kind == "job" else None
        if job is not None:
            yield PlannedWrite(Plan((Emit("Normal", reason, message, job),)))


def _age(queue: LocalQueue) -> tuple[datetime, str]:
    return queue.metadata.creation_timestamp or _LONG_AGO, queue.metadata.name
