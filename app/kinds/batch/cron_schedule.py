"""Cron schedules as Kubernetes reads them (the standard parser of robfig/cron v3). Pure: the moment is an argument.

Validation of CronJobs calls `parse` for its faults, in that parser's words; the CronJob plan asks a schedule for the
moment that follows. What the clock skips in a zone's daylight saving is skipped, and what it repeats comes twice.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

from app.machinery.durations import parse_nanoseconds

_SECOND, _MINUTE, _HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
_YEARS = 5  # looked ahead; what has not come by then is taken never to come
_LONGEST = 10_000  # a text that is read in a moment, and more than anybody needs
_INT64 = 2**63 - 1


class ScheduleError(ValueError):
    """The text is no schedule; says why."""


class Schedule(Protocol):
    def next_after(self, moment: datetime, zone: tzinfo, /) -> datetime | None:
        """The first moment of the schedule after `moment`, in UTC; None if there is none for years.

        `zone` is the one whose clocks count, unless the schedule names its own.
        """


def parse(text: str) -> Schedule:
    """The schedule that the text describes, or a ScheduleError."""
    if not text:
        raise ScheduleError("empty spec string")
    if len(text) > _LONGEST:
        raise ScheduleError(f"invalid schedule format: more than {_LONGEST} characters")
    zone, text = _zone_prefix(text)
    if text.startswith("@"):
        return _parse_descriptor(text, zone)
    fields = text.split()
    if len(fields) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    return _cron(fields, zone)


def zone_named(name: str) -> tzinfo:
    """The zone of the tz database that has this name, as Go looks it up; a ScheduleError if there is none."""
    if name in ("", "UTC"):
        return UTC
    if ".." in name or name[0] in "/\\" or "\0" in name:
        raise ScheduleError("time: invalid location name")
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ScheduleError(f"unknown time zone {name}") from None


def _zone_prefix(text: str) -> tuple[tzinfo | None, str]:
    """`CRON_TZ=Europe/Berlin 0 4 * * *`: a zone of the schedule's own."""
    if not text.startswith(("TZ=", "CRON_TZ=")):
        return None, text
    head, space, rest = text.partition(" ")
    if not space:
        raise ScheduleError("invalid schedule format: a schedule must follow the time zone")
    name = head.partition("=")[2]
    try:
        return zone_named(name), rest.strip()
    except ScheduleError as error:
        raise ScheduleError(f"provided bad location {name}: {error}") from None


# --- five fields


class Bounds(NamedTuple):
    """The numbers that a field may have, and the names of some."""

    low: int
    high: int
    names: tuple[str, ...] = ()


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
BOUNDS = (Bounds(0, 59), Bounds(0, 23), Bounds(1, 31), Bounds(1, 12, _MONTHS), Bounds(0, 6, _WEEKDAYS))


@dataclass(frozen=True, slots=True)
class Field:
    """The values that one field accepts. `star`: nothing was demanded of it, which matters for days."""

    values: frozenset[int]
    star: bool = False


def _cron(fields: Sequence[str], zone: tzinfo | None) -> "Cron":
    minute, hour, day, month, weekday = map(_field, fields, BOUNDS)
    return Cron(minute, hour, day, month, weekday, zone)


def _field(text: str, bounds: Bounds) -> Field:
    parts = [_range(part, bounds) for part in text.split(",") if part]
    return Field(frozenset[int]().union(*(part.values for part in parts)), any(part.star for part in parts))


def _range(text: str, bounds: Bounds) -> Field:
    """`number[-number][/step]`, with `*` or `?` for all of them."""
    span, *steps = text.split("/")
    first, *last = span.split("-")
    star = first in ("*", "?")
    if star:
        low, high = bounds.low, bounds.high
    else:
        low = high = _parse_name(first, bounds)
        if len(last) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        if last:
            high = _parse_name(last[0], bounds)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _number(steps[0]) if steps else 1
    if steps and not last:
        high = bounds.high  # "5/10" is "5-max/10"
    _check_range(low, high, step, bounds, text)
    return Field(frozenset(range(low, high + 1, step)), star and step == 1)


def _check_range(low: int, high: int, step: int, bounds: Bounds, text: str) -> None:
    if low < bounds.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {text}")
    if high > bounds.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {text}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _parse_name(text: str, bounds: Bounds) -> int:
    name = text.lower()
    return bounds.names.index(name) + bounds.low if name in bounds.names else _number(text)


def _number(text: str) -> int:
    fault = "" if re.fullmatch(r"[+-]?[0-9]+", text) else "invalid syntax"
    if not fault and (len(text) > 30 or abs(int(text)) > _INT64):
        fault = "value out of range"
    if fault:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {fault}')
    if int(text) < 0:
        raise ScheduleError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Cron:
    """Five fields, each of which the clock must match."""

    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    zone: tzinfo | None = None

    def next_after(self, moment: datetime, zone: tzinfo, /) -> datetime | None:
        if not (self.minute.values and self.hour.values and self.month.values):
            return None  # a field of nothing but commas
        try:
            return _Search(self, self.zone or zone).after(moment)
        except OverflowError:  # the end of the calendar
            return None

    def falls_on(self, day: datetime) -> bool:
        """Either day field may say so if both demand something; else the one that does."""
        by_date, by_weekday = day.day in self.day.values, day.isoweekday() % 7 in self.weekday.values
        if self.day.star or self.weekday.star:
            return by_date and by_weekday
        return by_date or by_weekday


class _Search:
    """Moves a clock in a zone forward, month by month, then day, hour and minute, and begins anew where one wraps."""

    def __init__(self, cron: Cron, zone: tzinfo) -> None:
        self._cron = cron
        self._zone = zone
        self._now = self._clock = datetime.min.replace(tzinfo=UTC)
        self._moved = False  # whether it already stands at the beginning of something

    def after(self, moment: datetime) -> datetime | None:
        self._at(moment.astimezone(UTC).replace(microsecond=0) + _SECOND)
        last_year = self._clock.year + _YEARS
        while self._clock.year <= last_year:
            if self._to_month() and self._to_day() and self._to_hour() and self._to_minute() and self._to_second():
                return self._now
        return None

    def _at(self, now: datetime) -> None:
        self._now, self._clock = now, now.astimezone(self._zone).replace(tzinfo=None)

    def _set(self, clock: datetime) -> None:
        """To when the clock shows this; where it never does, to where Go's time.Date says that it would."""
        guess = clock.replace(tzinfo=UTC)
        self._at(guess - self._offset(guess - self._offset(guess)))

    def _offset(self, now: datetime) -> timedelta:
        return now.astimezone(self._zone).utcoffset() or timedelta()

    def _first_move(self, clock: datetime) -> None:
        if not self._moved:
            self._moved = True
            self._set(clock)

    def _to_month(self) -> bool:
        while self._clock.month not in self._cron.month.values:
            self._first_move(self._clock.replace(day=1, hour=0, minute=0, second=0))
            self._set(_next_month(self._clock))
            if self._clock.month == 1:
                return False
        return True

    def _to_day(self) -> bool:
        while not self._cron.falls_on(self._clock):
            self._first_move(self._clock.replace(hour=0, minute=0, second=0))
            before = self._now
            self._set(self._clock + timedelta(days=1))
            if hour := self._clock.hour:  # no midnight on this day
                self._at(self._now + _HOUR * (24 - hour if hour > 12 else -hour))
            if self._now <= before:  # a zone once left a whole day out
                self._at(before + timedelta(days=1))
            if self._clock.day == 1:
                return False
        return True

    def _to_hour(self) -> bool:
        while self._clock.hour not in self._cron.hour.values:
            self._first_move(self._clock.replace(minute=0, second=0))
            self._at(self._now + _HOUR)
            if self._clock.hour == 0:
                return False
        return True

    def _to_minute(self) -> bool:
        while self._clock.minute not in self._cron.minute.values:
            if not self._moved:
                self._moved = True
                self._at(self._now.replace(second=0))
            self._at(self._now + _MINUTE)
            if self._clock.minute == 0:
                return False
        return True

    def _to_second(self) -> bool:
        """Slots are on the minute."""
        if not self._clock.second:
            return True
        self._moved = True
        self._at(self._now + _SECOND * (60 - self._clock.second))
        return False


def _next_month(clock: datetime) -> datetime:
    """A day past the end of the next month runs over into the one after it."""
    first = (clock.replace(day=1) + timedelta(days=32)).replace(day=1)
    return first + timedelta(days=clock.day - 1)


# --- descriptors

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = "@every "


def _parse_descriptor(text: str, zone: tzinfo | None) -> Schedule:
    if text in _MACROS:
        return _cron(_MACROS[text].split(), zone)
    if not text.startswith(_EVERY):
        raise ScheduleError(f"unrecognized descriptor: {text}")
    try:
        nanoseconds = parse_nanoseconds(text.removeprefix(_EVERY))
    except ValueError as error:
        raise ScheduleError(f"failed to parse duration {text}: {error}") from None
    return Every(timedelta(seconds=max(1, nanoseconds // 10**9)))


@dataclass(frozen=True, slots=True)
class Every:
    """Always so long after the time before."""

    delay: timedelta

    def next_after(self, moment: datetime, _: tzinfo, /) -> datetime | None:
        try:
            return moment.astimezone(UTC).replace(microsecond=0) + self.delay
        except OverflowError:
            return None
