"""Job controller: reconciles a Job when it, one of its pods, or its Workload or PodGroup changes.

The decisions are `app.plans.jobs.job` and `app.plans.jobs.ttl_after_finished`. A Job whose pods were refused is also
reconciled when the rules of its namespace change, or when a quota has room again.
"""

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import cast

from msgspec.structs import replace

from app.controllers.batch import gang_index
from app.controllers.batch.creation_review import CreationReview
from app.controllers.batch.job_dependents import JobDependents
from app.controllers.batch.job_expiry import EXPIRY, JobExpiry
from app.controllers.batch.refused_objects import Refused
from app.controllers.batch.stored_jobs import NO_READS, JobReads
from app.controllers.planned_write import PlannedWrite
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.machinery.feature_gates import DEFAULTS, Features
from app.machinery.meta.owner_references import controller_of
from app.machinery.selectors import from_label_selector
from app.plans.admission.pod_security.namespace_policy import USUAL_CONFIGURATION, PodSecurityConfiguration
from app.plans.jobs import job as job_plan
from app.plans.jobs import ttl_after_finished
from app.plans.jobs.dependencies import FindJob, find_lost
from app.plans.jobs.dormancy import is_dormant
from app.plans.plan import Names
from app.registry.admission.admission import RULES, Admission, NamespaceLocks, RuleCache
from app.registry.codec import NAMESPACES, decode
from app.registry.verbs.versions import random_name
from app.store import Key, Mirror


class JobController:
    component = "job-controller"

    def __init__(
        self,
        mirror: Mirror,
        locks: NamespaceLocks,
        features: Features = DEFAULTS,
        random_name: Names = random_name,
        reads: JobReads = NO_READS,
        pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION,
        admission: Admission | None = None,
    ) -> None:
        self._mirror = mirror
        self._reads = reads
        self._random_name = random_name
        self._locks = locks
        self._rules = RuleCache(mirror, pod_security)
        self._review = CreationReview(self._rules, admission, self.component)
        self._refused = Refused()  # Jobs whose pods were refused
        self._orphans: dict[Key, Pod] = {}  # pods without a controller: a Job may adopt them
        self._gangs = gang_index.GangIndex(mirror, features)
        self._dependents = JobDependents(mirror)
        self._expiry = JobExpiry(mirror, reads)

    def _update_orphans(self, key: Key, pod: Pod | None) -> None:
        if pod is not None and pod.metadata.labels and controller_of(pod) is None:
            self._orphans[key] = pod
        else:
            self._orphans.pop(key, None)

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == JOBS.resource:
            self._refused.note(key, _unfinished(now))
            return [key, *self._dependents.on_event(key, before, now), *self._expiry.on_event(now)]
        if key.kind in RULES:
            return self._refused.on_event(key, before, now)
        if key.kind in gang_index.KINDS:
            return self._gangs.on_event(key, before, now)
        if key.kind != PODS.resource:
            return []
        self._update_orphans(key, cast("Pod | None", now))
        if _is_only_bound(before, now):
            return []
        if before is not None and now is not None and _have_same_owners(before, now):
            return self._owners(now)
        return {owner for pod in (before, now) if pod is not None for owner in self._owners(pod)}

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._locks.of(key.namespace) if self._rules.has_quotas(key.namespace) else nullcontext()

    def _owners(self, pod: Object) -> Iterable[Key]:
        """The Job that controls a pod; for an orphan, each Job whose selector matches it."""
        namespace = pod.metadata.namespace
        if owner := controller_of(pod):
            return [Key(JOBS.resource, namespace, owner.name)] if owner.kind == JOBS.name else []
        if not pod.metadata.labels:
            return []
        jobs = (cast("Job", each) for each in self._mirror.all(JOBS.resource))
        return [Key(JOBS.resource, namespace, each.metadata.name) for each in jobs if _selects(each, pod)]

    def enqueue_all(self) -> Iterable[Key]:
        self._gangs.rebuild()
        self._dependents.rebuild()
        for pod in self._mirror.all(PODS.resource):
            self._update_orphans(Key(PODS.resource, pod.metadata.namespace, pod.metadata.name), cast("Pod", pod))
        return [*self._jobs(), *self._expiry.enqueue_all()]

    def _jobs(self) -> Iterator[Key]:
        for job in self._mirror.all(JOBS.resource):
            key = Key(JOBS.resource, job.metadata.namespace, job.metadata.name)
            self._refused.note(key, _unfinished(job))
            yield key

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite] | Awaitable[Sequence[PlannedWrite]]:
        if key == EXPIRY:
            return self._expiry.reconcile(now)
        find = self._dependents.find_in(key.namespace)
        job = cast("Job | None", self._mirror.get(key))
        absent = [] if job is None else self._dependents.absent(job)
        if job is not None and absent:
            return self._reconcile_with_ended(key, now, job, absent)
        return self._review.plan(partial(self._plan, key, now, find), now)

    async def _reconcile_with_ended(
        self, key: Key, now: datetime, job: Job, absent: Sequence[Key]
    ) -> Sequence[PlannedWrite]:
        """For a Job that waits for Jobs which are not in the mirror: dormant ones are stored, of others there are records."""
        stored = {
            each.name: cast("Job", decode(JOBS, head)) for each, head in (await self._reads.stored(absent)).items()
        }
        found: dict[str, Job | None] = {name: each for name, each in stored.items() if is_dormant(each)}
        live = self._dependents.find_in(key.namespace)
        for name, uid in find_lost(job, lambda name: live(name) or found.get(name)).items():
            found[name] = await self._reads.ended(key.namespace, uid)
        plan = partial(self._plan, key, now, lambda name: live(name) or found.get(name))
        planned = self._review.plan(plan, now)
        return await planned if isinstance(planned, Awaitable) else planned

    def _plan(
        self, key: Key, now: datetime, find: FindJob, refusal: ApiError | None, *, with_quotas: bool = True
    ) -> Sequence[PlannedWrite]:
        job = cast("Job | None", self._mirror.get(key))
        if job is None or self._is_about_to_be_deleted(job):
            return []
        rules = replace(self._rules.rules(key.namespace), refusal=refusal)
        rules = rules if with_quotas else replace(rules, quotas=())
        names, pods = self._unused_names(key.namespace), self._pods(job)
        plan = job_plan.plan(job, pods, now, names, rules, self._gangs.gang_of(job, pods), find)
        if is_finished(job) and not plan.actions:
            return [PlannedWrite(ttl_after_finished.plan(job, now))]
        return [PlannedWrite(plan, [job])]

    def _unused_names(self, namespace: str) -> Names:
        """Names that no pod has, each given once: of 10,000 random ones, about three occur twice."""
        given: set[str] = set()

        def unused_name(prefix: str) -> str:
            while (name := self._random_name(prefix)) in given or self._mirror.get(Key(PODS.resource, namespace, name)):
                pass
            given.add(name)
            return name

        return unused_name

    def _is_about_to_be_deleted(self, job: Job) -> bool:
        """Its namespace is being deleted, and it will be: what it would create is refused."""
        namespace = self._mirror.get(Key(NAMESPACES, "", job.metadata.namespace))
        is_deleted = namespace is not None and namespace.metadata.deletion_timestamp is not None
        return is_deleted and job.metadata.deletion_timestamp is None

    def _pods(self, job: Job) -> list[Pod]:
        owned = [each for each in self._mirror.owned(job.metadata.uid) if isinstance(each, Pod)]
        return owned + [pod for pod in self._orphans.values() if _selects(job, pod)]


def _unfinished(job: Object | None) -> Object | None:
    """A Job that has finished creates no pods any more, whatever was refused to it."""
    return None if job is not None and is_finished(cast("Job", job)) else job


def _have_same_owners(before: Object, now: Object) -> bool:
    """True for most changes. False for a pod without owners: its labels decide which Jobs it concerns."""
    old, new = before.metadata.owner_references, now.metadata.owner_references
    return bool(new) and old == new


def _is_only_bound(before: Object | None, now: Object | None) -> bool:
    """It has got a node, and nothing of it runs yet: no decision about its Job depends on that."""
    if not (isinstance(before, Pod) and isinstance(now, Pod)) or before.spec.node_name or not now.spec.node_name:
        return False
    old, new, status = before.metadata, now.metadata, now.status
    is_pending = before.status.phase == status.phase == "Pending" and not status.container_statuses
    is_same = old.finalizers == new.finalizers and old.labels == new.labels and old.annotations == new.annotations
    return is_pending and is_same and new.deletion_timestamp is None and _have_same_owners(before, now)


def _selects(job: Job, pod: Object) -> bool:
    if job.metadata.namespace != pod.metadata.namespace or job.spec.selector is None:
        return False
    return from_label_selector(job.spec.selector).matches(pod.metadata.labels)
