"""CronJob controller: reconciles a CronJob when it or one of its Jobs changes, and when its next start is due.

The decision is `app.plans.jobs.cronjob`. A CronJob whose Job was refused is also reconciled when the rules of its namespace
change, or when a quota has room again.
"""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import cast

from msgspec.structs import replace

from app.controllers.batch.creation_review import CreationReview
from app.controllers.batch.refused_objects import Refused
from app.controllers.batch.stored_jobs import ReadStored, read_none
from app.controllers.planned_write import PlannedWrite
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.machinery.meta.owner_references import controller_of
from app.plans.admission.pod_security.namespace_policy import USUAL_CONFIGURATION, PodSecurityConfiguration
from app.plans.jobs import cronjob as cronjob_plan
from app.plans.plan import Create, Emit
from app.registry.admission.admission import RULES, Admission, NamespaceLocks, RuleCache
from app.registry.codec import NAMESPACES, decode
from app.registry.uids import new_uid
from app.store import Key, Mirror


class CronJobController:
    component = "cronjob-controller"
    kinds = RULES | {CRON_JOBS.resource, JOBS.resource}

    def __init__(
        self,
        mirror: Mirror,
        locks: NamespaceLocks,
        pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION,
        admission: Admission | None = None,
        read_stored: ReadStored = read_none,
    ) -> None:
        self._mirror = mirror
        self._read_stored = read_stored
        self._locks = locks
        self._rules = RuleCache(mirror, pod_security)
        self._review = CreationReview(self._rules, admission, self.component)
        self._refused = Refused()  # CronJobs whose Jobs were refused
        self._changed: dict[str, datetime | None] = {}  # by UID: when the schedule changed; None: not planned yet

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == CRON_JOBS.resource:
            self._update_changed(cast("CronJob | None", before), cast("CronJob | None", now))
            self._refused.note(key, now)
            return [key]
        if key.kind in RULES:
            return self._refused.on_event(key, before, now)
        if key.kind != JOBS.resource:
            return []
        owners = {owner for each in (before, now) if each is not None and (owner := controller_of(each))}
        return [Key(CRON_JOBS.resource, key.namespace, each.name) for each in owners if each.kind == CRON_JOBS.name]

    def _update_changed(self, before: CronJob | None, now: CronJob | None) -> None:
        if now is None:
            if before is not None:
                self._changed.pop(before.metadata.uid, None)
        elif before is not None and _schedule_of(before) != _schedule_of(now):
            self._changed[now.metadata.uid] = None

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._locks.of(key.namespace) if self._rules.has_quotas(key.namespace) else nullcontext()

    def enqueue_all(self) -> Iterable[Key]:
        return list(self._cron_jobs())

    def _cron_jobs(self) -> Iterator[Key]:
        for cron_job in self._mirror.all(CRON_JOBS.resource):
            key = Key(CRON_JOBS.resource, cron_job.metadata.namespace, cron_job.metadata.name)
            self._refused.note(key, cron_job)
            yield key

    async def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        planned = await self._review_plan(key, now, {})
        created = [Key(JOBS.resource, key.namespace, each.metadata.name) for each in _created_jobs(planned)]
        taken = await self._read_stored(created) if created else {}
        if not taken:
            return planned
        # Dormant Jobs of that name, which others have made, are not in the mirror.
        jobs = {each.name: cast("Job", decode(JOBS, head)) for each, head in taken.items()}
        return await self._review_plan(key, now, jobs)

    async def _review_plan(self, key: Key, now: datetime, taken: Mapping[str, Job]) -> Sequence[PlannedWrite]:
        planned = self._review.plan(partial(self._plan, key, now, taken), now)
        return await planned if isinstance(planned, Awaitable) else planned

    def _plan(
        self, key: Key, now: datetime, taken: Mapping[str, Job], refusal: ApiError | None, *, with_quotas: bool = True
    ) -> Sequence[PlannedWrite]:
        """Quotas of Jobs count objects, which webhooks do not change: they are charged with and without `with_quotas`."""
        del with_quotas
        cron_job = cast("CronJob | None", self._mirror.get(key))
        if cron_job is None or self._is_deleted(key.namespace):
            return []
        uid = cron_job.metadata.uid
        if uid in self._changed and self._changed[uid] is None:
            self._changed[uid] = now
        owned = [each for each in self._mirror.owned(uid) if isinstance(each, Job)]
        plan = cronjob_plan.plan(
            cron_job,
            owned,
            now,
            find_job=lambda name: (
                taken.get(name) or cast("Job | None", self._mirror.get(Key(JOBS.resource, key.namespace, name)))
            ),
            uids=new_uid,
            since=self._changed.get(uid),
            rules=replace(self._rules.rules(key.namespace), refusal=refusal),
        )
        # A plan of events alone must not write the CronJob: that would wake this controller to emit them again.
        is_events_only = all(isinstance(action, Emit) for action in plan.actions)
        return [PlannedWrite(plan, [] if is_events_only else [cron_job])]

    def _is_deleted(self, namespace: str) -> bool:
        found = self._mirror.get(Key(NAMESPACES, "", namespace))
        return found is not None and found.metadata.deletion_timestamp is not None


def _schedule_of(cron_job: CronJob) -> tuple[str, str | None]:
    return cron_job.spec.schedule, cron_job.spec.time_zone


def _created_jobs(planned: Sequence[PlannedWrite]) -> Iterator[Object]:
    return (action.object for each in planned for action in each.plan.actions if isinstance(action, Create))
