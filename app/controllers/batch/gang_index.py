"""Gang index: Workloads by their Job, PodGroups by their Workload. The Job controller asks it before each plan.

It follows the controller's events. Without such objects it is empty, and costs one check of each Job's shape.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import cast

from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.machinery.base import Object
from app.machinery.feature_gates import Features
from app.plans.jobs import workloads
from app.plans.jobs.workloads import NO_GANG, Gang, StoredObjects
from app.registry.codec import NAMESPACES
from app.registry.uids import new_uid
from app.store import Key, Mirror

KINDS = frozenset({WORKLOADS.resource, POD_GROUPS.resource})


class GangIndex:
    def __init__(self, mirror: Mirror, features: Features) -> None:
        self._mirror = mirror
        self._features = features
        self._referrers: defaultdict[Key, dict[Key, Object]] = defaultdict(dict)  # by the key of a Job or Workload

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """A Workload or PodGroup has changed. Returns the Jobs to reconcile."""
        if before is not None and (old := _reference_of(before)):
            self._remove(old, key)
        if now is not None and (new := _reference_of(now)):
            self._referrers[new][key] = now
        return {job for obj in (before, now) if obj is not None for job in self._find_jobs(obj)}

    def _remove(self, reference: Key, key: Key) -> None:
        self._referrers[reference].pop(key, None)
        if not self._referrers[reference]:
            del self._referrers[reference]

    def _find_jobs(self, obj: Object) -> Iterable[Key]:
        reference = _reference_of(obj)
        if reference is None:
            return ()
        if isinstance(obj, Workload):
            return (reference,)
        workload = self._mirror.get(reference)
        job = _reference_of(workload) if workload is not None else None
        return () if job is None else (job,)

    def rebuild(self) -> None:
        """From the whole mirror."""
        self._referrers.clear()
        for kind in KINDS:
            for obj in self._mirror.all(kind):
                if reference := _reference_of(obj):
                    self._referrers[reference][Key(kind, obj.metadata.namespace, obj.metadata.name)] = obj

    def gang_of(self, job: Job, pods: Sequence[Pod]) -> Gang:
        """The gang of a Job, and what to do about its scheduling objects."""
        if not workloads.qualifies(job) or not self._is_enabled(job):
            return NO_GANG
        namespace = job.metadata.namespace
        found = self._find_referrers(Key(JOBS.resource, namespace, job.metadata.name))
        groups = [
            group
            for workload in found
            for group in self._find_referrers(Key(WORKLOADS.resource, namespace, workload.metadata.name))
        ]
        there = StoredObjects(
            cast("list[Workload]", found),
            cast("list[PodGroup]", groups),
            lambda resource, name: self._mirror.get(Key(resource, namespace, name)) is not None,
        )
        return workloads.plan_gang(job, pods, there, new_uid)

    def _find_referrers(self, reference: Key) -> list[Object]:
        return list(self._referrers.get(reference, {}).values())

    def _is_enabled(self, job: Job) -> bool:
        namespace = self._mirror.get(Key(NAMESPACES, "", job.metadata.namespace))
        labels = namespace.metadata.labels if namespace is not None else {}
        return workloads.is_on(self._features, labels, job.metadata.labels)


def _reference_of(obj: Object) -> Key | None:
    """The Job of a Workload (`spec.controllerRef`), or the Workload that a PodGroup was made from."""
    namespace = obj.metadata.namespace
    if isinstance(obj, Workload):
        reference = obj.spec.controller_ref
        of_job = reference is not None and (reference.api_group, reference.kind) == (JOBS.group, JOBS.name)
        return Key(JOBS.resource, namespace, reference.name) if reference is not None and of_job else None
    name = workloads.workload_of(obj) if isinstance(obj, PodGroup) else ""
    return Key(WORKLOADS.resource, namespace, name) if name else None
