"""Spans of time: as kubectl shows them (45s, 5m30s, 3h, 12d, 2y35d), and as clients write them, who may write any number."""

from datetime import UTC, datetime, timedelta

LONGEST_SECONDS = 10**10  # three hundred years; any more is for ever, and would overflow
FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC, microsecond=0)
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def duration_text(span: timedelta) -> str:
    """Two or three digits' worth of precision. A clock may be off by a second; more than that is `<invalid>`."""
    seconds = int(span.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _two(seconds: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = seconds % unit // smaller
    return f"{seconds // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")


def age(created: datetime | None, now: datetime) -> str:
    """How long ago something was created, for an Age column."""
    return duration_text(now - created) if created else "<unknown>"


def span(seconds: int) -> timedelta:
    """So many seconds, but never more than anybody could wait for."""
    return timedelta(seconds=max(-LONGEST_SECONDS, min(seconds, LONGEST_SECONDS)))


def after(moment: datetime, seconds: int) -> datetime:
    """So many seconds after a moment, or the end of time. Clients choose both."""
    try:
        return moment + span(seconds)
    except OverflowError:
        return LAST if seconds > 0 else FIRST
