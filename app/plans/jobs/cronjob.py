"""CronJob decision: delete old Jobs, follow those that run, start the one that is due. Pure.

Called by the CronJob controller with the Jobs that the CronJob controls. A Job and the status that speaks of it are
written together, so a slot is started once, whoever else starts it: its name and the CronJob's revision guard it. Rules,
reasons and messages follow Kubernetes' CronJob controller, 1.33.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

from msgspec.structs import replace

from app.kinds.batch.cron_schedule import Schedule, ScheduleError, parse, zone_named
from app.kinds.batch.cronjob import CronJob, CronJobStatus
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job, is_finished
from app.machinery.base import ObjectMeta, ObjectReference, OwnerReference
from app.machinery.conditions import is_true
from app.machinery.errors import ApiError, unprocessable
from app.machinery.metadata_validation import validate_metadata
from app.machinery.owner_references import controller_uid
from app.plans.admission import refusals
from app.plans.admission.pod_admission import NO_RULES, Rules, judged
from app.plans.admission.refusals import NONE, Refusal
from app.plans.jobs import missed_starts
from app.plans.plan import Action, Create, Delete, Emit, Plan, SetStatus, Update, earliest


def charged(job: Job, rules: Rules, now: datetime) -> Sequence[Update]:
    """The quotas that pay for the Job, as they will be. Raises the refusal that a client would get.

    The template was valid; but with the slot's name, the names of an Indexed Job's pods may be too long.
    """
    made = JOBS.on_create(JOBS.prepare(job), now)
    causes = validate_metadata(made.metadata, namespaced=True, name_format=JOBS.name_format) + JOBS.validate(made)
    if causes:
        raise unprocessable(JOBS.name, JOBS.group, job.metadata.name, causes)
    return judged(JOBS.resource, made, rules)


SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"

Uids = Callable[[], str]  # an unused uid: randomness is handed in
Named = Callable[[str], Job | None]  # the Job of that name in the CronJob's namespace, whoever controls it


@dataclass
class _Stock:
    """A plan in the making."""

    cron_job: CronJob
    status: CronJobStatus
    actions: list[Action] = field(default_factory=list)
    again_at: datetime | None = None
    refusal: Refusal = NONE

    def say(self, type_: str, reason: str, message: str) -> None:
        self.actions.append(Emit(type_, reason, message, self.cron_job))

    def forget(self, uid: str) -> None:
        self.status = replace(self.status, active=tuple(each for each in self.status.active if each.uid != uid))

    def delete(self, job: Job) -> None:
        self.forget(job.metadata.uid)
        self.actions.append(Delete(job, propagation="Background"))
        self.say("Normal", "SuccessfulDelete", f"Deleted job {job.metadata.name}")

    def refuse(self, why: str, now: datetime) -> None:
        """The Job that is due may not be created: tell it now and then, and try again."""
        self.refusal = refusals.record(self.cron_job, why, now)
        if self.refusal.message:
            self.say("Warning", "FailedCreate", f"Error creating job: {self.refusal.message}")
        self.again_at = earliest((self.again_at, self.refusal.again_at))

    def plan(self) -> Plan:
        before = self.cron_job.metadata.annotations
        annotations = refusals.annotate(before, self.refusal)
        if self.status != self.cron_job.status or annotations is not before:
            metadata = replace(self.cron_job.metadata, annotations=annotations)
            self.actions.append(SetStatus(replace(self.cron_job, metadata=metadata, status=self.status)))
        return Plan(tuple(self.actions), self.again_at)


def plan(
    cron_job: CronJob,
    jobs: Sequence[Job],
    now: datetime,
    *,
    named: Named,
    uids: Uids,
    since: datetime | None = None,
    rules: Rules = NO_RULES,
) -> Plan:
    """`since`: when the schedule was last changed, if that is known: what it would have missed before does not count.

    `rules` are those of the CronJob's namespace.
    """
    stock = _Stock(cron_job, cron_job.status)
    gone = _forget_old(stock, jobs)
    living = [job for job in jobs if job.metadata.uid not in gone]
    _take_stock(stock, jobs, living)
    schedule = None
    if cron_job.metadata.deletion_timestamp is None:
        schedule = _schedule(stock)
    if schedule is not None:
        _start(stock, schedule, living, now, Source(named, uids, since, rules))
    return stock.plan()


# --- what there is


def _forget_old(stock: _Stock, jobs: Sequence[Job]) -> set[str]:
    """Delete finished Jobs beyond the limits, the oldest first; their UIDs."""
    spec = stock.cron_job.spec
    old = [
        *_beyond(spec.successful_jobs_history_limit, [each for each in jobs if _has(each, "Complete")]),
        *_beyond(spec.failed_jobs_history_limit, [each for each in jobs if _has(each, "Failed")]),
    ]
    for job in old:
        stock.delete(job)
    return {job.metadata.uid for job in old}


def _beyond(limit: int | None, jobs: list[Job]) -> list[Job]:
    if limit is None or len(jobs) <= limit:
        return []
    ranked = sorted(jobs, key=_age)
    return [job for job in ranked[: len(ranked) - limit] if job.metadata.deletion_timestamp is None]


def _age(job: Job) -> tuple[bool, datetime, str]:
    """Oldest first; those that never started are last."""
    started = job.status.start_time
    return started is None, started or datetime.max.replace(tzinfo=UTC), job.metadata.name


def _has(job: Job, condition: str) -> bool:
    return is_true(job.status.conditions, condition)


def _take_stock(stock: _Stock, jobs: Sequence[Job], living: Sequence[Job]) -> None:
    """Who still runs, who has ended, who is missing; and when one last succeeded."""
    active = {each.uid for each in stock.status.active}
    for job in living:
        _look_at(stock, job, is_active=job.metadata.uid in active)
    known = {job.metadata.uid for job in jobs}
    for each in stock.status.active:
        if each.uid not in known:
            stock.forget(each.uid)
            stock.say("Normal", "MissingJob", f"Active job went missing: {each.name}")
    ends = [job.status.completion_time for job in jobs if _has(job, "Complete") and job.status.completion_time]
    last = max([*ends, *filter(None, [stock.status.last_successful_time])], default=None)
    stock.status = replace(stock.status, last_successful_time=last)


def _look_at(stock: _Stock, job: Job, *, is_active: bool) -> None:
    name = job.metadata.name
    if is_active and is_finished(job):
        stock.forget(job.metadata.uid)
        condition = "Complete" if _has(job, "Complete") else "Failed"
        stock.say("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {condition}")
    elif not is_active and not is_finished(job):
        stock.say("Warning", "UnexpectedJob", f"Saw a job that the controller did not create or forgot: {name}")


# --- when


@dataclass(frozen=True)
class _When:
    """A schedule, and the zone whose clocks count."""

    schedule: Schedule
    zone: tzinfo


def _schedule(stock: _Stock) -> _When | None:
    """None while nothing is to be started, for a reason that only a change of the CronJob removes."""
    spec = stock.cron_job.spec
    try:
        zone = zone_named(spec.time_zone) if spec.time_zone else UTC
    except ScheduleError as error:
        stock.say("Warning", "UnknownTimeZone", f'invalid timeZone: "{spec.time_zone}": {error}')
        return None
    if spec.suspend:
        return None
    try:
        return _When(parse(spec.schedule), zone)
    except ScheduleError as error:
        stock.say("Warning", "UnparseableSchedule", f'unparseable schedule: "{spec.schedule}" : {error}')
        return None


@dataclass(frozen=True)
class Source:
    """What a plan is given beside the objects."""

    named: Named
    uids: Uids
    since: datetime | None
    rules: Rules


def _start(stock: _Stock, when: _When, jobs: Sequence[Job], now: datetime, source: Source) -> None:
    """Start the Job that is due, unless its time is over or another one is in the way."""
    found = _due(stock, when, now, source.since)
    if found is None or found.slot is None:
        return
    spec, slot = stock.cron_job.spec, found.slot
    if _is_too_late(spec.starting_deadline_seconds, slot, now):
        stock.say("Warning", "MissSchedule", f"Missed scheduled time to start a job: {_rfc1123(slot)}")
        return
    name = job_name(stock.cron_job, slot)
    if slot == stock.status.last_schedule_time or any(each.name == name for each in stock.status.active):
        return
    if spec.concurrency_policy == "Forbid" and stock.status.active:
        why = "Not starting job because prior execution is running and concurrency policy is Forbid"
        stock.say("Normal", "JobAlreadyActive", why)
        return
    if spec.concurrency_policy == "Replace":
        _replace(stock, jobs)
    _create(stock, slot, now, source)


def _due(stock: _Stock, when: _When, now: datetime, since: datetime | None) -> missed_starts.Due | None:
    cron_job = stock.cron_job
    seconds = cron_job.spec.starting_deadline_seconds
    begin = stock.status.last_schedule_time or cron_job.metadata.creation_timestamp or now
    deadline = None if seconds is None else timedelta(seconds=min(seconds, _LONGEST))
    try:
        found = missed_starts.due(when.schedule, when.zone, max(begin, since or begin), now, deadline)
    except ScheduleError as error:
        stock.say("Warning", "InvalidSchedule", f"invalid schedule: {cron_job.spec.schedule} : {error}")
        return None
    if found.missed > missed_starts.MANY:
        why = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        stock.say("Warning", "TooManyMissedTimes", why)
    stock.again_at = found.next_at
    return found


_LONGEST = 10 * 365 * 86400  # seconds; any more is for ever, and some would overflow


def _is_too_late(seconds: int | None, slot: datetime, now: datetime) -> bool:
    return seconds is not None and slot + timedelta(seconds=min(seconds, _LONGEST)) < now


def _rfc1123(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")


# --- starting


def _replace(stock: _Stock, jobs: Sequence[Job]) -> None:
    active = {each.uid for each in stock.status.active}
    for job in jobs:
        if job.metadata.uid in active:
            stock.delete(job)


def _create(stock: _Stock, slot: datetime, now: datetime, source: Source) -> None:
    cron_job = stock.cron_job
    job = job_of(cron_job, slot, source.uids())
    taken = source.named(job.metadata.name)
    if taken is not None and controller_uid(taken) != cron_job.metadata.uid:
        return  # somebody else's
    if taken is None:
        try:
            stock.actions += [Create(job), *charged(job, source.rules, now)]
        except ApiError as error:
            stock.refuse(error.message, now)
            return
        stock.say("Normal", "SuccessfulCreate", f"Created job {job.metadata.name}")
    stock.status = replace(stock.status, last_schedule_time=slot)
    if taken is None or not is_finished(taken):
        stock.status = replace(stock.status, active=(*stock.status.active, _reference(taken or job)))


def job_name(cron_job: CronJob, slot: datetime) -> str:
    """Of a slot's Job: no slot can be started twice."""
    return f"{cron_job.metadata.name}-{int(slot.timestamp()) // 60}"


def job_of(cron_job: CronJob, slot: datetime, uid: str) -> Job:
    """The Job of a slot: its template, its name, whose it is, and when it was due."""
    meta, template = cron_job.metadata, cron_job.spec.job_template
    owner = OwnerReference(
        api_version="batch/v1", kind="CronJob", name=meta.name, uid=meta.uid, controller=True, block_owner_deletion=True
    )
    return Job(
        api_version="batch/v1",
        kind="Job",
        metadata=ObjectMeta(
            name=job_name(cron_job, slot),
            namespace=meta.namespace,
            uid=uid,
            labels=template.metadata.labels,
            annotations={**template.metadata.annotations, SCHEDULED_AT: _scheduled_at(cron_job, slot)},
            owner_references=(owner,),
        ),
        spec=template.spec,
    )


def _scheduled_at(cron_job: CronJob, slot: datetime) -> str:
    """RFC 3339, in the CronJob's own zone."""
    zone = zone_named(cron_job.spec.time_zone) if cron_job.spec.time_zone else UTC
    return slot.astimezone(zone).isoformat().replace("+00:00", "Z")


def _reference(job: Job) -> ObjectReference:
    meta = job.metadata
    return ObjectReference(kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="batch/v1")
