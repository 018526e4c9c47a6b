"""Builder of a CronJob's plan: what the plan is made from, its schedule as it is read, and the actions so far.

Used by `cronjob`, whose functions add to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from msgspec.structs import replace

from app.kinds.batch.cron_hash import is_hashed, resolve
from app.kinds.batch.cron_schedule import Schedule, ScheduleError, parse, zone_named
from app.kinds.batch.cronjob import CronJob, CronJobStatus
from app.kinds.batch.job import Job
from app.plans import annotation_state
from app.plans.admission import refusals
from app.plans.admission.pod_admission import Rules
from app.plans.admission.refusals import NONE, Refusal
from app.plans.jobs import catch_up
from app.plans.plan import Action, Delete, Emit, Plan, SetStatus, earliest

SCHEDULE = "jobplane.dev/schedule"  # annotation with the schedule as it is read, if the spec's has an `H`

Uids = Callable[[], str]  # an unused uid: randomness is passed in
FindJob = Callable[[str], Job | None]  # the Job of that name in the CronJob's namespace, whatever controls it


@dataclass
class PlanBuilder:
    """Inputs of a CronJob's plan, and its actions so far."""

    cron_job: CronJob
    now: datetime
    find_job: FindJob
    uids: Uids
    since: datetime | None
    rules: Rules
    status: CronJobStatus
    resolved: str | None = None  # the schedule without `H`, if it has one
    accounted: str | None = None  # the annotation with the time up to which all is started or skipped
    actions: list[Action] = field(default_factory=list)
    again_at: datetime | None = None
    refusal: Refusal = NONE
    created: set[str] = field(default_factory=set)  # names of the new Jobs

    def __post_init__(self) -> None:
        annotations = self.cron_job.metadata.annotations
        self.resolved, self.accounted = annotations.get(SCHEDULE), annotations.get(catch_up.ACCOUNTED)

    def emit(self, type_: str, reason: str, message: str) -> None:
        self.actions.append(Emit(type_, reason, message, self.cron_job))

    def remove_active(self, uid: str) -> None:
        self.status = replace(self.status, active=tuple(each for each in self.status.active if each.uid != uid))

    def delete(self, job: Job) -> None:
        self.remove_active(job.metadata.uid)
        self.actions.append(Delete(job, propagation="Background"))
        self.emit("Normal", "SuccessfulDelete", f"Deleted job {job.metadata.name}")

    def refuse(self, why: str) -> None:
        """The Job that is due may not be created: report it with growing pauses, and try again."""
        self.refusal = refusals.record(self.cron_job, why, self.now)
        if self.refusal.message:
            self.emit("Warning", "FailedCreate", f"Error creating job: {self.refusal.message}")
        self.again_at = earliest((self.again_at, self.refusal.again_at))

    def build(self) -> Plan:
        before = self.cron_job.metadata.annotations
        annotations = refusals.annotate(before, self.refusal)
        annotations = annotation_state.annotate(annotations, SCHEDULE, self.resolved)
        annotations = annotation_state.annotate(annotations, catch_up.ACCOUNTED, self.accounted)
        if self.status != self.cron_job.status or annotations is not before:
            metadata = replace(self.cron_job.metadata, annotations=annotations)
            self.actions.append(SetStatus(replace(self.cron_job, metadata=metadata, status=self.status)))
        return Plan(tuple(self.actions), self.again_at)


@dataclass(frozen=True)
class ZonedSchedule:
    """A schedule, the time zone in which it is read, and both as text."""

    schedule: Schedule
    zone: tzinfo
    text: str


def parse_schedule(builder: PlanBuilder) -> ZonedSchedule | None:
    """None while no Job is started, for a reason that only a change of the CronJob removes."""
    meta, spec = builder.cron_job.metadata, builder.cron_job.spec
    if not catch_up.read_policy(builder.cron_job):
        builder.accounted = None
    try:
        zone = zone_named(spec.time_zone) if spec.time_zone else UTC
    except ScheduleError as error:
        builder.emit("Warning", "UnknownTimeZone", f'invalid timeZone: "{spec.time_zone}": {error}')
        return None
    try:
        resolved = resolve(spec.schedule, f"{meta.namespace}/{meta.name}")
        schedule = parse(resolved)
    except ScheduleError as error:
        if not spec.suspend:
            builder.emit("Warning", "UnparseableSchedule", f'unparseable schedule: "{spec.schedule}" : {error}')
        return None
    builder.resolved = resolved if is_hashed(spec.schedule) else None
    return None if spec.suspend else ZonedSchedule(schedule, zone, f"{resolved} {spec.time_zone or 'UTC'}")
