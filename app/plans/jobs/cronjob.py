"""CronJob decision: delete old Jobs, update the list of active ones, start the Job that is due. Pure.

Called by the CronJob controller with the Jobs that the CronJob controls. A Job and the status that lists it are written
together, so each scheduled time starts one Job, whichever replica starts it: the Job's name and the CronJob's revision guard
it. Rules, reasons and messages follow Kubernetes' CronJob controller, 1.33; `catch_up` has what goes beyond that.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from app.kinds.batch.cron_schedule import ScheduleError
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import Job, is_finished
from app.machinery.durations import human_duration
from app.machinery.errors import ApiError
from app.machinery.meta.conditions import is_true
from app.machinery.meta.owner_references import controller_uid
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.plans.admission.refusals import NONE
from app.plans.annotation_state import moment
from app.plans.jobs import catch_up, missed_starts
from app.plans.jobs.catch_up import MOST_ACTIVE, MOST_STARTS, ON_TIME, Rule, Skipped
from app.plans.jobs.cronjob_job import build_job, charge_quotas, job_name, reference
from app.plans.jobs.cronjob_plan_builder import FindJob, PlanBuilder, Uids, ZonedSchedule, parse_schedule
from app.plans.plan import Create, Plan

_LONGEST = 10 * 365 * 86400  # seconds; any more is for ever, and some would overflow


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
    builder = PlanBuilder(cron_job, now, find_job, uids, since, rules, cron_job.status)
    old = {job.metadata.uid for job in _delete_old_jobs(builder, jobs)}
    remaining = [job for job in jobs if job.metadata.uid not in old]
    _update_active_jobs(builder, jobs, remaining)
    if cron_job.metadata.deletion_timestamp is None and (schedule := parse_schedule(builder)) is not None:
        if catch_up.read_policy(cron_job):
            _catch_up(builder, schedule, remaining)
        else:
            _start_due_job(builder, schedule, remaining)
    return builder.build()


# --- Jobs that exist


def _delete_old_jobs(builder: PlanBuilder, jobs: Sequence[Job]) -> list[Job]:
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


def _update_active_jobs(builder: PlanBuilder, jobs: Sequence[Job], remaining: Sequence[Job]) -> None:
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


def _update_active_job(builder: PlanBuilder, job: Job, *, is_active: bool) -> None:
    name = job.metadata.name
    if is_active and is_finished(job):
        builder.remove_active(job.metadata.uid)
        condition = "Complete" if _has_condition(job, "Complete") else "Failed"
        builder.emit("Normal", "SawCompletedJob", f"Saw completed job: {name}, condition: {condition}")
    elif not is_active and not is_finished(job):
        builder.emit("Warning", "UnexpectedJob", f"Saw a job that the controller did not create or forgot: {name}")


# --- schedule


def _begin(builder: PlanBuilder) -> datetime:
    """Scheduled times after this one may have been missed."""
    begin = builder.status.last_schedule_time or builder.cron_job.metadata.creation_timestamp or builder.now
    return max(begin, builder.since or begin)


def _deadline(builder: PlanBuilder) -> timedelta | None:
    seconds = builder.cron_job.spec.starting_deadline_seconds
    return None if seconds is None else timedelta(seconds=min(seconds, _LONGEST))


def _find_due(builder: PlanBuilder, schedule: ZonedSchedule) -> missed_starts.Due | None:
    """The latest scheduled time that has passed without a Job. Also sets when to look again."""
    try:
        found = missed_starts.find_due(
            schedule.schedule, schedule.zone, _begin(builder), builder.now, _deadline(builder)
        )
    except ScheduleError as error:
        builder.emit("Warning", "InvalidSchedule", f"invalid schedule: {builder.cron_job.spec.schedule} : {error}")
        return None
    if found.missed > missed_starts.MANY:
        why = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        builder.emit("Warning", "TooManyMissedTimes", why)
    builder.again_at = found.next_at
    return found


# --- starting, by the annotation jobplane.dev/catch-up


def _catch_up(builder: PlanBuilder, schedule: ZonedSchedule, jobs: Sequence[Job]) -> None:
    """Start the missed times that the policy names, explain those that are skipped, and remember up to where."""
    cron_job = builder.cron_job
    accounted = catch_up.read_accounted(cron_job, schedule.text, builder.now) or _begin(builder)
    since = max(accounted, _begin(builder))
    try:
        ticks = catch_up.find_ticks(_catch_up_rule(builder), schedule.schedule, schedule.zone, since, builder.now)
    except ScheduleError as error:
        builder.emit("Warning", "InvalidSchedule", f"invalid schedule: {cron_job.spec.schedule} : {error}")
        return
    builder.again_at = ticks.next_at
    since = max(since, ticks.skipped.last) if ticks.skipped else since
    _explain_skipped(builder, ticks.skipped)
    for scheduled_at in ticks.starts:
        _replace_active(builder, jobs)
        _create_job(builder, scheduled_at)
        if builder.refusal is not NONE:
            break  # in order: the next ones wait, too
        since = scheduled_at
    builder.accounted = catch_up.format_accounted(since, schedule.text)


def _catch_up_rule(builder: PlanBuilder) -> Rule:
    concurrency, active = builder.cron_job.spec.concurrency_policy, len(builder.status.active)
    return Rule(
        policy=catch_up.read_policy(builder.cron_job),
        deadline=_deadline(builder),
        is_blocked=concurrency == "Forbid" and active > 0,
        room=max(0, min(MOST_STARTS, MOST_ACTIVE - active)) if concurrency == "Allow" else 1,
    )


def _explain_skipped(builder: PlanBuilder, skipped: Skipped | None) -> None:
    if skipped is not None:
        builder.emit("Warning", "SkippedSchedule", skipped.message)


def _explain_late(builder: PlanBuilder, job: Job, scheduled_at: datetime) -> None:
    late = builder.now - scheduled_at
    if late > ON_TIME:
        text = (
            f"Started job {job.metadata.name} {human_duration(late)} late: it was scheduled at {moment(scheduled_at)}"
        )
        builder.emit("Normal", "StartedLate", text)


# --- starting, as Kubernetes does


def _start_due_job(builder: PlanBuilder, schedule: ZonedSchedule, jobs: Sequence[Job]) -> None:
    """Start the Job that is due, unless its deadline is over or concurrencyPolicy forbids it."""
    begin, due = _begin(builder), _find_due(builder, schedule)
    if due is None or (scheduled_at := due.scheduled_at) is None:
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
    _replace_active(builder, jobs)
    if _create_job(builder, scheduled_at):
        why = catch_up.ONLY_LATEST
        parts = (schedule.schedule, schedule.zone)
        _explain_skipped(builder, catch_up.skipped_between(*parts, begin, scheduled_at, due, why))


def _replace_active(builder: PlanBuilder, jobs: Sequence[Job]) -> None:
    if builder.cron_job.spec.concurrency_policy != "Replace":
        return
    replaced = {each.uid for each in builder.status.active}
    for job in jobs:
        if job.metadata.uid in replaced:
            builder.delete(job)


def _is_too_late(seconds: int | None, scheduled_at: datetime, now: datetime) -> bool:
    return seconds is not None and scheduled_at + timedelta(seconds=min(seconds, _LONGEST)) < now


def _create_job(builder: PlanBuilder, scheduled_at: datetime) -> bool:
    """Return whether the Job is new."""
    cron_job = builder.cron_job
    job = build_job(cron_job, scheduled_at, builder.uids())
    existing = builder.find_job(job.metadata.name)
    if existing is not None and controller_uid(existing) != cron_job.metadata.uid:
        return False  # a client or another CronJob created it
    is_new = existing is None and job.metadata.name not in builder.created
    if is_new:
        try:
            builder.actions += [Create(job), *charge_quotas(job, builder.rules, builder.now)]
        except ApiError as error:
            builder.refuse(error.message)
            return False
        builder.created.add(job.metadata.name)
        builder.emit("Normal", "SuccessfulCreate", f"Created job {job.metadata.name}")
        _explain_late(builder, job, scheduled_at)
    builder.status = replace(builder.status, last_schedule_time=scheduled_at)
    if is_new or (existing is not None and not is_finished(existing)):
        active = (*builder.status.active, reference(existing or job))
        builder.status = replace(builder.status, active=active)
    return is_new
