"""Catch-up of a CronJob: which missed scheduled times are started, and which are skipped and why. Pure.

Called by `cronjob`. The annotation `jobplane.dev/catch-up` chooses: `none` starts what is on time, `last` the latest missed
time, `all` every one in order, a few in each plan. The annotation `jobplane.dev/accounted` remembers up to which time all
are started or skipped, and for which schedule: a time is skipped, and explained, once, whichever process plans.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise

import msgspec

from app.kinds.batch.cron_schedule import Schedule
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.cronjob_validation import CATCH_UP, CATCH_UP_POLICIES
from app.machinery.durations import human_duration
from app.plans.annotation_state import moment
from app.plans.jobs import missed_starts

ACCOUNTED = "jobplane.dev/accounted"
ON_TIME = timedelta(minutes=1)  # a start that comes later is late
MOST_STARTS = 10  # in one plan
MOST_ACTIVE = 100  # Jobs at once of a CronJob that starts every missed time
COUNTED = 100  # skipped times that are counted one by one, which takes a few milliseconds
_LISTED = 10  # skipped times that are named one by one

ONLY_LATEST = "only the latest missed time is started"
STILL_ACTIVE = "the Job before still runs, and concurrencyPolicy is Forbid"


class Rule(msgspec.Struct, frozen=True):
    """Inputs for missed times. A Job that is active blocks the next; `room`: how many may start now under `all`."""

    policy: str
    deadline: timedelta | None = None
    is_blocked: bool = False
    room: int = MOST_STARTS


class Skipped(msgspec.Struct, frozen=True):
    """Scheduled times that no Job is started for. `times` are the first of `count`; `last` is the latest."""

    times: tuple[datetime, ...]
    last: datetime
    count: int
    why: str

    @property
    def message(self) -> str:
        if self.count == 1:
            return f"Skipped the scheduled time {moment(self.last)}: {self.why}"
        if self.count <= _LISTED:
            return f"Skipped {self.count} scheduled times ({', '.join(map(moment, self.times))}): {self.why}"
        number = self.count if self.count <= COUNTED else f"about {self.count}"
        return f"Skipped {number} scheduled times from {moment(self.times[0])} to {moment(self.last)}: {self.why}"


class Ticks(msgspec.Struct, frozen=True):
    """Scheduled times to start now, the oldest first; what is skipped; when the next one comes."""

    starts: tuple[datetime, ...] = ()
    skipped: Skipped | None = None
    next_at: datetime | None = None


def read_policy(cron_job: CronJob) -> str:
    """`none`, `last` or `all`; empty for Kubernetes' own rule, also if the annotation has another value."""
    policy = cron_job.metadata.annotations.get(CATCH_UP, "")
    return policy if policy in CATCH_UP_POLICIES else ""


def read_accounted(cron_job: CronJob, schedule: str, now: datetime) -> datetime | None:
    """The time up to which all is started or skipped. If the schedule was another one, nothing before now was missed."""
    time, _, accounted_schedule = cron_job.metadata.annotations.get(ACCOUNTED, "").partition(";")
    try:
        at = datetime.fromisoformat(time).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return min(at, now) if accounted_schedule == schedule else now


def format_accounted(at: datetime, schedule: str) -> str:
    return f"{moment(at)};{schedule}"


def find_ticks(rule: Rule, schedule: Schedule, zone: tzinfo, since: datetime, now: datetime) -> Ticks:
    """The scheduled times after `since`, up to `now`. ScheduleError for a schedule that never fires."""
    due = missed_starts.find_due(schedule, zone, since, now)
    if due.scheduled_at is None:
        return Ticks(next_at=due.next_at)
    if rule.policy == "all":
        return _find_all(rule, schedule, zone, since, now, due)
    limit = ON_TIME if rule.deadline is None and rule.policy == "none" else rule.deadline
    if limit is not None and now - due.scheduled_at > limit:
        why = f"more than {human_duration(limit)} late"
        return Ticks((), skipped_between(schedule, zone, since, due.next_at, due, why), due.next_at)
    why = STILL_ACTIVE if rule.is_blocked else ONLY_LATEST
    skipped = skipped_between(schedule, zone, since, due.scheduled_at, due, why)
    return Ticks(() if rule.is_blocked else (due.scheduled_at,), skipped, due.next_at)


def _find_all(
    rule: Rule, schedule: Schedule, zone: tzinfo, since: datetime, now: datetime, due: missed_starts.Due
) -> Ticks:
    """Every missed time that is not too late, in order, as many as there is room for."""
    begin, skipped = since, None
    if rule.deadline is not None and now - rule.deadline > since:
        begin = now - rule.deadline
        why = f"more than {human_duration(rule.deadline)} late"
        skipped = skipped_between(schedule, zone, since, begin, due, why)
    starts = tuple(islice(_walk(schedule, zone, begin, now), 0 if rule.is_blocked else rule.room))
    return Ticks(starts, skipped, due.next_at)


def skipped_between(
    schedule: Schedule, zone: tzinfo, since: datetime, end: datetime | None, due: missed_starts.Due, why: str
) -> Skipped | None:
    """The scheduled times after `since` and before `end`; None if there is none. Of many, the number is an estimate."""
    before = (end or datetime.max.replace(tzinfo=UTC)) - timedelta(seconds=1)
    times = tuple(islice(_walk(schedule, zone, since, before), COUNTED + 1))
    if not times:
        return None
    if len(times) <= COUNTED:
        return Skipped(times, times[-1], len(times), why)
    gap = min(later - earlier for earlier, later in pairwise(times))
    latest = missed_starts.find_due(schedule, zone, since, before).scheduled_at or times[-1]
    return Skipped(times, latest, max((latest - times[0]) // gap + 1, due.missed - 1), why)


def _walk(schedule: Schedule, zone: tzinfo, since: datetime, until: datetime) -> Iterator[datetime]:
    at = schedule.next_after(since, zone)
    while at is not None and at <= until:
        yield at
        at = schedule.next_after(at, zone)
