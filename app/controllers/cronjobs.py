"""CronJob controller: looks at a CronJob when it or one of its Jobs changes, and when its next start is due.

One whose Job was refused is also looked at when the rules of its namespace change, or when a quota has room again.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import cast
from uuid import uuid4

from app.controllers.planned_write import PlannedWrite
from app.controllers.refused_objects import Refused
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.machinery.base import Object
from app.machinery.owner_references import controller_of
from app.plans.jobs import cronjob as cronjob_plan
from app.plans.plan import Emit
from app.registry.admission import RULES, Rulebook, Turns
from app.registry.codec import NAMESPACES
from app.store import Key, Mirror


class CronJobController:
    component = "cronjob-controller"

    def __init__(self, mirror: Mirror, turns: Turns) -> None:
        self._mirror = mirror
        self._turns = turns
        self._book = Rulebook(mirror)
        self._refused = Refused()  # CronJobs whose Jobs were
        self._changed: dict[str, datetime | None] = {}  # UIDs of those whose schedule was changed, and when

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == CRON_JOBS.resource:
            self._note_schedule(cast("CronJob | None", before), cast("CronJob | None", now))
            self._refused.note(key, now)
            return [key]
        if key.kind in RULES:
            return self._refused.on_event(key.namespace, before, now)
        if key.kind != JOBS.resource:
            return []
        owners = {owner for each in (before, now) if each is not None and (owner := controller_of(each))}
        return [Key(CRON_JOBS.resource, key.namespace, each.name) for each in owners if each.kind == CRON_JOBS.name]

    def _note_schedule(self, before: CronJob | None, now: CronJob | None) -> None:
        if now is None:
            if before is not None:
                self._changed.pop(before.metadata.uid, None)
        elif before is not None and _clock(before) != _clock(now):
            self._changed[now.metadata.uid] = None

    def turn(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._turns.of(key.namespace) if self._book.has_quotas(key.namespace) else nullcontext()

    def enqueue_all(self) -> Iterable[Key]:
        return list(self._cron_jobs())

    def _cron_jobs(self) -> Iterator[Key]:
        for cron_job in self._mirror.all(CRON_JOBS.resource):
            key = Key(CRON_JOBS.resource, cron_job.metadata.namespace, cron_job.metadata.name)
            self._refused.note(key, cron_job)
            yield key

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        cron_job = cast("CronJob | None", self._mirror.get(key))
        if cron_job is None or self._is_going(key.namespace):
            return []
        uid = cron_job.metadata.uid
        if uid in self._changed and self._changed[uid] is None:
            self._changed[uid] = now
        owned = [each for each in self._mirror.owned(uid) if isinstance(each, Job)]
        made = cronjob_plan.plan(
            cron_job,
            owned,
            now,
            named=lambda name: cast("Job | None", self._mirror.get(Key(JOBS.resource, key.namespace, name))),
            uids=lambda: str(uuid4()),
            since=self._changed.get(uid),
            rules=self._book.rules(key.namespace),
        )
        # What only says something must not write the CronJob: that would wake this controller to say it again.
        only_says = all(isinstance(action, Emit) for action in made.actions)
        return [PlannedWrite(made, [] if only_says else [cron_job])]

    def _is_going(self, namespace: str) -> bool:
        found = self._mirror.get(Key(NAMESPACES, "", namespace))
        return found is not None and found.metadata.deletion_timestamp is not None


def _clock(cron_job: CronJob) -> tuple[str, str | None]:
    return cron_job.spec.schedule, cron_job.spec.time_zone
