"""Gang index: Workloads by what controls them, PodGroups by their Workload. The Job controller asks it before each plan.

It follows the controller's events. Without such objects it is empty, and without the feature gate it costs nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import Workload
from app.machinery.base import Object
from app.machinery.feature_gates import GENERIC_WORKLOAD, Features
from app.plans.jobs import workloads
from app.plans.jobs.workloads import NO_GANG, Gang, Management, StoredObjects
from app.registry.codec import NAMESPACES
from app.registry.uids import new_uid
from app.store import Key, Mirror

KINDS = frozenset({WORKLOADS.resource, POD_GROUPS.resource})


class GangIndex:
    def __init__(self, mirror: Mirror, features: Features) -> None:
        self._mirror = mirror
        self._features = features
        self._referrers: defaultdict[Key, dict[Key, Object]] = defaultdict(
            dict
        )  # by the key of a controller or Workload

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

    def _find_jobs(self, obj: Object) -> Iterator[Key]:
        """The Job of a Workload, or of its groups; the Job of a group, or of its Workload."""
        if isinstance(obj, PodGroup):
            yield from _job_of_group(obj)
        reference = _reference_of(obj)
        workload = self._mirror.get(reference) if reference is not None and isinstance(obj, PodGroup) else obj
        if isinstance(workload, Workload):
            yield from self._jobs_of_workload(workload)

    def _jobs_of_workload(self, workload: Workload) -> Iterator[Key]:
        controller, meta = _reference_of(workload), workload.metadata
        if controller is not None and controller.kind == JOBS.resource:
            yield controller
            return
        for group in self._find_referrers(Key(WORKLOADS.resource, meta.namespace, meta.name)):
            yield from _job_of_group(group)

    def rebuild(self) -> None:
        """From the whole mirror."""
        self._referrers.clear()
        for kind in KINDS:
            for obj in self._mirror.all(kind):
                if reference := _reference_of(obj):
                    self._referrers[reference][Key(kind, obj.metadata.namespace, obj.metadata.name)] = obj

    def gang_of(self, job: Job, pods: Sequence[Pod]) -> Gang:
        """The gang of a Job, and what to do about its scheduling objects."""
        if GENERIC_WORKLOAD not in self._features:
            return NO_GANG
        management, around = workloads.management_of(job), self._labels_around(job)
        if management is Management.NONE or not workloads.is_on(self._features, around, job.metadata.labels):
            return NO_GANG
        namespace = job.metadata.namespace
        found = self._find_referrers(_key_of_job(job, management))
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
        is_gang = workloads.is_labelled_gang(job, around)
        return workloads.plan_gang(job, pods, there, new_uid, self._features, is_gang=is_gang)

    def _labels_around(self, job: Job) -> Mapping[str, str]:
        namespace = self._mirror.get(Key(NAMESPACES, "", job.metadata.namespace))
        return namespace.metadata.labels if namespace is not None else {}

    def _find_referrers(self, reference: Key) -> list[Object]:
        return list(self._referrers.get(reference, {}).values())


def _reference_of(obj: Object) -> Key | None:
    """Return the controller that a Workload names (`spec.controllerRef`), or the Workload that a PodGroup was made from."""
    namespace = obj.metadata.namespace
    if isinstance(obj, Workload):
        reference = obj.spec.controller_ref
        return _controller_key(namespace, reference.api_group, reference.kind, reference.name) if reference else None
    name = workloads.workload_of(obj) if isinstance(obj, PodGroup) else ""
    return Key(WORKLOADS.resource, namespace, name) if name else None


def _controller_key(namespace: str, group: str, kind: str, name: str) -> Key:
    """Return the Job's own key, if the controller is a Job. Other controllers may be of unknown kinds."""
    is_job = (group, kind) == (JOBS.group, JOBS.name)
    return Key(JOBS.resource if is_job else f"{kind}.{group}", namespace, name)


def _key_of_job(job: Job, management: Management) -> Key:
    """Return the controller that a Workload for the Job names: the Job, or the Job's owner."""
    owner = next((each for each in job.metadata.owner_references if each.controller), None)
    if owner is None or management is Management.BOTH:
        return Key(JOBS.resource, job.metadata.namespace, job.metadata.name)
    return _controller_key(job.metadata.namespace, owner.api_version.rpartition("/")[0], owner.kind, owner.name)


def _job_of_group(group: Object) -> Iterator[Key]:
    owner = next((each for each in group.metadata.owner_references if each.controller), None)
    if owner is not None and owner.kind == JOBS.name and owner.api_version == JOBS.api_version:
        yield Key(JOBS.resource, group.metadata.namespace, owner.name)
