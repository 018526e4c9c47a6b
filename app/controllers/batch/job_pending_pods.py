"""Controller of pending pods: a Job has an event for each cause for which its pods are not placed or do not start.

The decision is `app.plans.jobs.pending_pods`. Which causes were told is remembered until the Job ends, by this process: the next
leader tells those that are still there again. A change of a pod costs the same however many pods its Job has.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.meta.owner_references import controller_of
from app.plans.jobs.pending_pods import Cause, event_of, find_causes
from app.plans.plan import Plan
from app.store import Key, Mirror

MOST_CAUSES = 20  # of one Job


class JobPendingPods:
    component = "job-controller"
    kinds = frozenset({JOBS.resource, PODS.resource})

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._told: dict[str, set[str]] = {}  # keys of causes, by the Job's UID
        self._new: dict[Key, dict[str, Cause]] = {}  # by Job

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == JOBS.resource:
            self._forget_ended(key, before, cast("Job | None", now))
            return []
        return self._note(now) if key.kind == PODS.resource and isinstance(now, Pod) else []

    def _forget_ended(self, key: Key, before: Object | None, now: Job | None) -> None:
        ended = before if now is None else now if is_finished(now) else None
        if ended is not None:
            self._told.pop(ended.metadata.uid, None)
            self._new.pop(key, None)

    def _note(self, pod: Pod) -> Iterable[Key]:
        """The Job, if the pod has a cause that is new for it."""
        causes = list(find_causes(pod))
        owner = controller_of(pod) if causes else None
        if owner is None or owner.kind != JOBS.name:
            return []
        told = self._told.get(owner.uid, set())
        new = {cause.key: cause for cause in causes if cause.key not in told}
        if not new or len(told) >= MOST_CAUSES:
            return []
        job = Key(JOBS.resource, pod.metadata.namespace, owner.name)
        self._new.setdefault(job, {}).update(new)
        return [job]

    def enqueue_all(self) -> Iterable[Key]:
        pods = (each for each in self._mirror.all(PODS.resource) if isinstance(each, Pod))
        return {key for pod in pods for key in self._note(pod)}

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:  # noqa: ARG002 - no cause depends on the time
        causes = self._new.pop(key, {})
        job = cast("Job | None", self._mirror.get(key))
        if job is None or is_finished(job):
            return []
        told = self._told.setdefault(job.metadata.uid, set())
        new = [cause for cause in causes.values() if cause.key not in told]
        told.update(cause.key for cause in new)
        return [PlannedWrite(Plan(tuple(event_of(cause, job) for cause in new)))] if new else []
