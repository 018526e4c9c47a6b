"""Index of Workloads and PodGroups by what they refer to. The Job controller asks it before each plan.

Kept from what the controller is told of; without such objects it holds nothing, and costs a look at each Job's shape.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import cast
from uuid import uuid4

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
from app.plans.jobs.workloads import NO_GANG, Found, Gang
from app.registry.codec import NAMESPACES
from app.store import Key, Mirror

KINDS = frozenset({WORKLOADS.resource, POD_GROUPS.resource})


class Gangs:
    def __init__(self, mirror: Mirror, features: Features) -> None:
        self._mirror = mirror
        self._features = features
        # What refers to a Job, or a Workload: by its key.
        self._referring: defaultdict[Key, dict[Key, Object]] = defaultdict(dict)

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """Take in a change of a Workload or PodGroup; the Jobs to look at for it."""
        if before is not None and (old := _referred(before)):
            self._forget(old, key)
        if now is not None and (new := _referred(now)):
            self._referring[new][key] = now
        return {job for obj in (before, now) if obj is not None for job in self._jobs(obj)}

    def _forget(self, referred: Key, key: Key) -> None:
        self._referring[referred].pop(key, None)
        if not self._referring[referred]:
            del self._referring[referred]

    def _jobs(self, obj: Object) -> Iterable[Key]:
        referred = _referred(obj)
        if referred is None:
            return ()
        if isinstance(obj, Workload):
            return (referred,)
        workload = self._mirror.get(referred)
        job = _referred(workload) if workload is not None else None
        return () if job is None else (job,)

    def learn(self) -> None:
        """Read the whole mirror."""
        self._referring.clear()
        for kind in KINDS:
            for obj in self._mirror.all(kind):
                if referred := _referred(obj):
                    self._referring[referred][Key(kind, obj.metadata.namespace, obj.metadata.name)] = obj

    def of(self, job: Job, pods: Sequence[Pod]) -> Gang:
        """What there is to do for a Job."""
        if not workloads.qualifies(job) or not self._is_on(job):
            return NO_GANG
        namespace = job.metadata.namespace
        found = self._found(Key(JOBS.resource, namespace, job.metadata.name))
        groups = [
            group
            for workload in found
            for group in self._found(Key(WORKLOADS.resource, namespace, workload.metadata.name))
        ]
        there = Found(
            cast("list[Workload]", found),
            cast("list[PodGroup]", groups),
            lambda resource, name: self._mirror.get(Key(resource, namespace, name)) is not None,
        )
        return workloads.gang(job, pods, there, lambda: str(uuid4()))

    def _found(self, referred: Key) -> list[Object]:
        return list(self._referring.get(referred, {}).values())

    def _is_on(self, job: Job) -> bool:
        namespace = self._mirror.get(Key(NAMESPACES, "", job.metadata.namespace))
        labels = namespace.metadata.labels if namespace is not None else {}
        return workloads.is_on(self._features, labels, job.metadata.labels)


def _referred(obj: Object) -> Key | None:
    """The Job that a Workload says it is of; the Workload that a PodGroup says it was made from."""
    namespace = obj.metadata.namespace
    if isinstance(obj, Workload):
        reference = obj.spec.controller_ref
        of_job = reference is not None and (reference.api_group, reference.kind) == (JOBS.group, JOBS.name)
        return Key(JOBS.resource, namespace, reference.name) if reference is not None and of_job else None
    name = workloads.workload_of(obj) if isinstance(obj, PodGroup) else ""
    return Key(WORKLOADS.resource, namespace, name) if name else None
