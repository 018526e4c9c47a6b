"""CronJob decision: delete old Jobs, update the list of active ones, start the Job that is due. Pure.

Called by the CronJob controller with the Jobs that the CronJob controls. A Job and the status that lists it are written
together, so each scheduled time starts one Job, whichever replica starts it: the Job's name and the CronJob's revision guard
it. Rules, reasons and messages follow Kubernetes' CronJob controller, 1.33.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from msgspec.structs import replace

from app.kinds.batch.cron_schedule import Schedule, ScheduleError, parse, zone_named
from app.kinds.batch.cronjob import CronJob, CronJobStatus
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished
from app.machinery.base import ObjectMeta, ObjectReference
from app.machinery.conditions import is_true
from app.machinery.errors import ApiError, unprocessable
from app.machinery.metadata_validation import validate_metadata
from app.machinery.owner_references import controller_reference, controller_uid
from app.plans.admission import refusals
from app.plans.admission.pod_admission import NO_RULES, Rules, admit
from app.plans.admission.refusals import NONE, Refusal
from app.plans.jobs import missed_starts
from app.plans.plan import Action, Create, Delete, Emit, Plan, SetStatus, Update, earliest

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_LONGEST = 10 * 365 * 86400  # seconds; any more is for ever, and some would overflow

Uids = Callable[[], str]  # an unused uid: randomness is passed in
FindJob = Callable[[str], Job | None]  # the Job of that name in the CronJob's namespace, whatever controls it


def plan(
    cron_job: CronJob,
    jobs: Sequence[Job],
    now: datetime,
    *,
    find_job: FindJob,
    uids: Uids,
    since: datetime | None = None,
    rules: Rules = NO_RULES,
) -> Plan:
    """`since`: when the schedule was last changed, if that is known: scheduled times before it are not missed.

    `rules` are those of the CronJob's namespace.
    """
    builder = _PlanBuilder(cron_job, now, find_job, uids, since, rules, cron_job.status)
    old = {job.metadata.uid for job in _delete_old_jobs(builder, jobs)}
    remaining = [job for job in jobs if job.metadata.uid not in old]
    _update_active_jobs(builder, jobs, remaining)
    if cron_job.metadata.deletion_timestamp is None and (schedule := _parse_schedule(builder)) is not None:
        _start_due_job(builder, schedule, remaining)
    return builder.build()


@dataclass
class _PlanBuilder:
    """What a plan is made from, and what it contains so far."""

    cron_job: CronJob
    now: datetime
    find_job: FindJob
    uids: Uids
    since: datetime | None
    rules: Rules
    status: CronJobStatus
    actions: list[Action] = field(default_factory=list)
    again_at: datetime | None = None
    refusal: Refusal = NONE

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
        if self.status != self.cron_job.status or annotations is not before:
            metadata = replace(self.cron_job.metadata, annotations=annotations)
            self.actions.append(SetStatus(replace(self.cron_job, metadata=metadata, status=self.status)))
        return Plan(tuple(self.actions), self.again_at)


# --- Jobs that exist


def _delete_old_jobs(builder: _PlanBuilder, jobs: Sequence[Job]) -> list[Job]:
    """Delete finished Jobs beyond the history limits, the oldest first; returns them."""
    spec = builder.cron_job.spec
    old = [
        *_beyond_limit(spec.successful_jobs_history_limit, [each for each in jobs if _has_condition(each, "Complete")]),
        *_beyond_limit(spec.failed_jobs_history_limit, [each for each in jobs if _has_condition(each, "Failed")]),
    ]
    for job in old:
        builder.delete(job)
    return old


def _beyond_limit(limit: int | None, jobs: list[Job]) -> list[Job]:
    if limit is None or len(jobs) <= limit:
        return []
    ranked = sorted(jobs, key=_start_order)
    return [job for job in ranked[: len(ranked) - limit] if job.metadata.deletion_timestamp is None]


def _start_order(job: Job) -> tuple[bool, datetime, str]:
    """Oldest first; those that never started are last."""
    started = job.status.start_time
    return started is None, started or datetime.max.replace(tzinfo=UTC), job.metadata.name


def _has_condition(job: Job, condition: str) -> bool:
    return is_true(job.status.conditions, condition)


def _update_active_jobs(builder: _PlanBuilder, jobs: Sequence[Job], remaining: Sequence[Job]) -> None:
    """Update `status.active` and `status.lastSuccessfulTime`."""
    active = {each.uid for each in builder.status.active}
    for job in remaining:
        _update_active_job(builder, job, is_active=job.metadata.uid in active)
    known = {job.metadata.uid for job in jobs}
    for each in builder.status.active:
        if each.uid not in known:
            builder.remove_active(each.uid)
            builder.emit("Normal", "MissingJob", f"Active job went missing: {each.name}")
    completed = [job.status.completion_time for job in jobs if _has_condition(job, "Complete")]
    last = max(filter(None, [*completed, builder.status.last_successful_time]), default=None)
    builder.status = replace(builder.status, last_successful_time=last)


def _update_active_job(builder: _PlanBuilder, job: Job, *, is_active: bool) -> None:
    name = job.metadata.name
    if is_active and is_finished(job):
        builder.remove_active(job.metadata.uid)
        condition = "Complete" if _has_condition(job, "Complete") else "Failed"
        builder.emit("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {condition}")
    elif not is_active and not is_finished(job):
        builder.emit("Warning", "UnexpectedJob", f"Saw a job that the controller did not create or forgot: {name}")


# --- schedule


@dataclass(frozen=True)
class _ZonedSchedule:
    """A schedule, and the time zone in which it is read."""

    schedule: Schedule
    zone: tzinfo


def _parse_schedule(builder: _PlanBuilder) -> _ZonedSchedule | None:
    """None while no Job is started, for a reason that only a change of the CronJob removes."""
    spec = builder.cron_job.spec
    try:
        zone = zone_named(spec.time_zone) if spec.time_zone else UTC
    except ScheduleError as error:
        builder.emit("Warning", "UnknownTimeZone", f'invalid timeZone: "{spec.time_zone}": {error}')
        return None
    if spec.suspend:
        return None
    try:
        return _ZonedSchedule(parse(spec.schedule), zone)
    except ScheduleError as error:
        builder.emit("Warning", "UnparseableSchedule", f'unparseable schedule: "{spec.schedule}" : {error}')
        return None


def _find_due(builder: _PlanBuilder, schedule: _ZonedSchedule) -> datetime | None:
    """The latest scheduled time that has passed without a Job. Also sets when to look again."""
    cron_job, status = builder.cron_job, builder.status
    seconds = cron_job.spec.starting_deadline_seconds
    begin = status.last_schedule_time or cron_job.metadata.creation_timestamp or builder.now
    deadline = None if seconds is None else timedelta(seconds=min(seconds, _LONGEST))
    begin = max(begin, builder.since or begin)
    try:
        found = missed_starts.find_due(schedule.schedule, schedule.zone, begin, builder.now, deadline)
    except ScheduleError as error:
        builder.emit("Warning", "InvalidSchedule", f"invalid schedule: {cron_job.spec.schedule} : {error}")
        return None
    if found.missed > missed_starts.MANY:
        why = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        builder.emit("Warning", "TooManyMissedTimes", why)
    builder.again_at = found.next_at
    return found.scheduled_at


# --- starting


def _start_due_job(builder: _PlanBuilder, schedule: _ZonedSchedule, jobs: Sequence[Job]) -> None:
    """Start the Job that is due, unless its deadline is over or concurrencyPolicy forbids it."""
    scheduled_at = _find_due(builder, schedule)
    if scheduled_at is None:
        return
    spec, active = builder.cron_job.spec, builder.status.active
    if _is_too_late(spec.starting_deadline_seconds, scheduled_at, builder.now):
        time = scheduled_at.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
        builder.emit("Warning", "MissSchedule", f"Missed scheduled time to start a job: {time}")
        return
    name = job_name(builder.cron_job, scheduled_at)
    if scheduled_at == builder.status.last_schedule_time or any(each.name == name for each in active):
        return
    if spec.concurrency_policy == "Forbid" and active:
        why = "Not starting job because prior execution is running and concurrency policy is Forbid"
        builder.emit("Normal", "JobAlreadyActive", why)
        return
    if spec.concurrency_policy == "Replace":
        replaced = {each.uid for each in active}
        for job in jobs:
            if job.metadata.uid in replaced:
                builder.delete(job)
    _create_job(builder, scheduled_at)


def _is_too_late(seconds: int | None, scheduled_at: datetime, now: datetime) -> bool:
    return seconds is not None and scheduled_at + timedelta(seconds=min(seconds, _LONGEST)) < now


def _create_job(builder: _PlanBuilder, scheduled_at: datetime) -> None:
    cron_job = builder.cron_job
    job = build_job(cron_job, scheduled_at, builder.uids())
    existing = builder.find_job(job.metadata.name)
    if existing is not None and controller_uid(existing) != cron_job.metadata.uid:
        return  # a client or another CronJob created it
    if existing is None:
        try:
            builder.actions += [Create(job), *_charge_quotas(job, builder.rules, builder.now)]
        except ApiError as error:
            builder.refuse(error.message)
            return
        builder.emit("Normal", "SuccessfulCreate", f"Created job {job.metadata.name}")
    builder.status = replace(builder.status, last_schedule_time=scheduled_at)
    if existing is None or not is_finished(existing):
        active = (*builder.status.active, _reference(existing or job))
        builder.status = replace(builder.status, active=active)


def _charge_quotas(job: Job, rules: Rules, now: datetime) -> Sequence[Update]:
    """The quotas with the Job charged to them. Raises the refusal that a client would get.

    The template was valid; but with the name of its Job, the names of an Indexed Job's pods may be too long.
    """
    created = JOBS.on_create(JOBS.prepare(job), now)
    causes = validate_metadata(created.metadata, namespaced=True, name_format=JOBS.name_format) + JOBS.validate(created)
    if causes:
        raise unprocessable(JOBS.name, JOBS.group, job.metadata.name, causes)
    return admit(JOBS.resource, created, rules)


def job_name(cron_job: CronJob, scheduled_at: datetime) -> str:
    """One name for each scheduled time: none can start two Jobs."""
    return f"{cron_job.metadata.name}-{int(scheduled_at.timestamp()) // 60}"


def build_job(cron_job: CronJob, scheduled_at: datetime, uid: str) -> Job:
    """The Job for a scheduled time, from the CronJob's template."""
    meta, template = cron_job.metadata, cron_job.spec.job_template
    zone = zone_named(cron_job.spec.time_zone) if cron_job.spec.time_zone else UTC
    rfc3339 = scheduled_at.astimezone(zone).isoformat().replace("+00:00", "Z")
    return Job(
        api_version="batch/v1",
        kind="Job",
        metadata=ObjectMeta(
            name=job_name(cron_job, scheduled_at),
            namespace=meta.namespace,
            uid=uid,
            labels=template.metadata.labels,
            annotations={**template.metadata.annotations, SCHEDULED_AT: rfc3339},
            owner_references=(controller_reference("batch/v1", "CronJob", meta),),
        ),
        spec=template.spec,
    )


def _reference(job: Job) -> ObjectReference:
    meta = job.metadata
    return ObjectReference(kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="batch/v1")
