"""CronJob controller: reconciles a CronJob when it or one of its Jobs changes, and when its next start is due.

The decision is `app.plans.jobs.cronjob`. A CronJob whose Job was refused is also reconciled when the rules of its namespace
change, or when a quota has room again.
"""

from collections.abc import Awaitable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import cast

from msgspec.structs import replace

from app.controllers.batch.creation_review import CreationReview
from app.controllers.batch.refused_objects import Refused
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
from app.plans.plan import Emit
from app.registry.admission.admission import RULES, NamespaceLocks, RuleCache
from app.registry.admission.policy_review import PolicyReviewer
from app.registry.codec import NAMESPACES
from app.registry.uids import new_uid
from app.store import Key, Mirror


class CronJobController:
    component = "cronjob-controller"

    def __init__(
        self,
        mirror: Mirror,
        locks: NamespaceLocks,
        pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION,
        reviewer: PolicyReviewer | None = None,
    ) -> None:
        self._mirror = mirror
        self._locks = locks
        self._rules = RuleCache(mirror, pod_security)
        self._review = CreationReview(self._rules, reviewer, self.component)
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

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite] | Awaitable[Sequence[PlannedWrite]]:
        return self._review.plan(partial(self._plan, key, now), now)

    def _plan(self, key: Key, now: datetime, refusal: ApiError | None) -> Sequence[PlannedWrite]:
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
            find_job=lambda name: cast("Job | None", self._mirror.get(Key(JOBS.resource, key.namespace, name))),
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
