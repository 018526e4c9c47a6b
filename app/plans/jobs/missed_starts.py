"""Missed starts of a CronJob: the latest scheduled time that has passed and that no Job was started for. Pure.

Slots that were missed are not made up for one by one: only the latest is started. How many were missed is an estimate
from the distance of the first two, as in Kubernetes; the slot itself is exact, also for schedules without a rhythm.
"""

from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from app.kinds.batch.cron_schedule import Schedule, ScheduleError

MANY = 100  # missed slots that somebody should hear of
_SECOND = timedelta(seconds=1)


class Due(NamedTuple):
    """`slot`: the latest one that was missed, if one was. `missed`: about how many. `next_at`: when to look again."""

    slot: datetime | None
    missed: int
    next_at: datetime | None


def due(schedule: Schedule, zone: tzinfo, since: datetime, now: datetime, deadline: timedelta | None = None) -> Due:
    """What has come after `since`; with a `deadline`, slots that are older than that do not count.

    ScheduleError for one that never fires, or twice in a second.
    """
    begin = since if deadline is None else max(since, now - deadline)
    first = schedule.next_after(begin, zone)
    second = schedule.next_after(first, zone) if first else None
    if first is None or second is None or second - first < _SECOND:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    if now < first:  # the deadline decides what is late, not when to look again: @every counts from the last start
        return Due(None, 0, first if deadline is None else due(schedule, zone, since, now).next_at)
    if now < second:
        return Due(first, 1, second)
    gap = second - first
    missed = (now - first) // gap + 1
    slot = _latest(schedule, zone, first, gap, now)
    return Due(slot, missed, schedule.next_after(slot, zone))


def _latest(schedule: Schedule, zone: tzinfo, first: datetime, gap: timedelta, now: datetime) -> datetime:
    """The last slot up to `now`, of which `first` is one.

    Steps from near the end, in the rhythm of the first two; where there is none so near, from twice as far back.
    """
    steps, back = (now - first) // gap, 1
    while True:
        begin = first + gap * (steps - back)
        slot = first if begin <= first else schedule.next_after(begin, zone)
        if slot is not None and slot <= now:
            return _last_from(schedule, zone, slot, now)
        back *= 2


def _last_from(schedule: Schedule, zone: tzinfo, slot: datetime, now: datetime) -> datetime:
    while (following := schedule.next_after(slot, zone)) is not None and following <= now:
        slot = following
    return slot
