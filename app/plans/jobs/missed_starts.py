"""Missed starts of a CronJob: the latest scheduled time that has passed and that no Job was started for. Pure.

Used by `cronjob`. Missed starts are not made up for one by one: a Job is started for the latest only. How many were missed
is an estimate from the distance of the first two, as in Kubernetes; the latest is exact, also for irregular schedules.
"""

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from app.kinds.batch.cron_schedule import Schedule, ScheduleError

MANY = 100  # missed starts; more have an event
_SECOND = timedelta(seconds=1)


class Due(NamedTuple):
    """`scheduled_at`: the latest missed start, if there is one. `missed`: about how many. `next_at`: when to look again."""

    scheduled_at: datetime | None
    missed: int
    next_at: datetime | None


def find_due(
    schedule: Schedule, zone: tzinfo, since: datetime, now: datetime, deadline: timedelta | None = None
) -> Due:
    """The scheduled times after `since`; with a `deadline`, those that are older than that do not count.

    ScheduleError for one that never fires, or twice in a second.
    """
    begin = since if deadline is None else max(since, now - deadline)
    first = schedule.next_after(begin, zone)
    second = schedule.next_after(first, zone) if first else None
    if first is None or second is None or second - first < _SECOND:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    if now < first:  # the deadline decides what is late, not when to look again: @every counts from the last start
        return Due(None, 0, first if deadline is None else find_due(schedule, zone, since, now).next_at)
    if now < second:
        return Due(first, 1, second)
    gap = second - first
    missed = (now - first) // gap + 1
    latest = _find_latest(schedule, zone, first, gap, now)
    return Due(latest, missed, schedule.next_after(latest, zone))


def _find_latest(schedule: Schedule, zone: tzinfo, first: datetime, gap: timedelta, now: datetime) -> datetime:
    """The latest scheduled time up to `now`, of which `first` is one.

    Steps from near the end, in the rhythm of the first two; where there is none so near, from twice as far back.
    """
    steps, back = (now - first) // gap, 1
    while True:
        begin = first + gap * (steps - back)
        found = first if begin <= first else schedule.next_after(begin, zone)
        if found is not None and found <= now:
            return _step_to_latest(schedule, zone, found, now)
        back *= 2


def _step_to_latest(schedule: Schedule, zone: tzinfo, scheduled_at: datetime, now: datetime) -> datetime:
    while (following := schedule.next_after(scheduled_at, zone)) is not None and following <= now:
        scheduled_at = following
    return scheduled_at
