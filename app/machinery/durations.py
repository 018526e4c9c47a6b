"""Durations: kubectl's human-readable form (45s, 5m30s, 3h, 12d, 2y35d), and safe arithmetic with seconds that clients chose.

Kinds call `age` for their AGE column, and `parse_seconds` for durations in annotations; plans call `span` and `after`, which
never overflow; commands call `parse_span`; schedules and requests, whose durations are Go's, `parse_nanoseconds`.
"""

import re
from datetime import UTC, datetime, timedelta

LONGEST_SECONDS = 10**10  # about three hundred years; more would overflow a datetime
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC, microsecond=0)
_WRITTEN = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,9})s)?")
_PART = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_UNIT_NAMES = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_GO_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_GO_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_INT64 = 2**63 - 1
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(span: timedelta) -> str:
    """Return two or three digits' precision, as apimachinery's HumanDuration; `<invalid>` below minus one second."""
    seconds = int(span.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    if seconds < 10 * _MINUTE:
        return _format_two_units(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _format_two_units(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _format_two_units(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _format_two_units(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _format_two_units(seconds: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = seconds % unit // smaller
    return f"{seconds // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")


def parse_seconds(text: str) -> int:
    """Parse what people write, such as `90s`, `5m` and `1h30m`, into seconds; ValueError says what is wrong."""
    match = _WRITTEN.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * _HOUR + minutes * _MINUTE + seconds
    if not total:
        raise ValueError("must be a duration above zero, such as 90s, 5m or 1h30m")
    return total


def age(created: datetime | None, now: datetime) -> str:
    """Return the time since creation for an AGE column; `<unknown>` without a creation time."""
    return human_duration(now - created) if created else "<unknown>"


def span(seconds: int) -> timedelta:
    """Return so many seconds as a timedelta, clamped to `LONGEST_SECONDS` either way."""
    return timedelta(seconds=max(-LONGEST_SECONDS, min(seconds, LONGEST_SECONDS)))


def after(moment: datetime, seconds: int) -> datetime:
    """Return the moment so many seconds later, clamped to `FIRST` and `LAST`: clients choose both arguments."""
    try:
        return moment + span(seconds)
    except OverflowError:
        return LAST if seconds > 0 else FIRST


def parse_span(text: str) -> timedelta | None:
    """Parse a duration such as 8h, 1d12h or 90m; None if it is none."""
    parts = _PART.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum((timedelta(**{_UNIT_NAMES[unit]: int(count)}) for count, unit in parts), timedelta())


def parse_nanoseconds(text: str) -> int:
    """Return the nanoseconds in a duration of Go's, such as 1h30m. Raises ValueError in the words of time.ParseDuration."""
    rest = text[1:] if text[:1] in {"-", "+"} else text
    if rest == "0":
        return 0
    if not rest or len(text) > 100:
        raise ValueError(f'time: invalid duration "{text}"')
    total = 0
    while rest:
        part = _GO_PART.match(rest)
        if part is None or not (part[1] or part[3]):
            raise ValueError(f'time: invalid duration "{text}"')
        total += _nanoseconds(part, text)
        rest = rest[part.end() :]
    if total > _INT64:
        raise ValueError(f'time: invalid duration "{text}"')
    return -total if text.startswith("-") else total


def _nanoseconds(part: re.Match[str], text: str) -> int:
    if not part[4]:
        raise ValueError(f'time: missing unit in duration "{text}"')
    if part[4] not in _GO_UNITS:
        raise ValueError(f'time: unknown unit "{part[4]}" in duration "{text}"')
    unit, fraction = _GO_UNITS[part[4]], part[3] or ""
    whole: int = int(part[1] or 0) * unit
    return whole + int(fraction or 0) * unit // int(10 ** len(fraction))
