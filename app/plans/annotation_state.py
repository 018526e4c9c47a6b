"""State that plans keep in an object's annotations: a count and a time, `<count>;<time>`.

Anybody may write annotations, and anything. What is no such pair, or cannot be one that a plan has written, is nothing.
"""

from datetime import UTC, datetime, timedelta

AHEAD = timedelta(minutes=10)
"""So far ahead of now a moment may be: the longest pause that there is, and more than clocks are apart."""
_MOST = 2**31


def read(annotations: dict[str, str], key: str, now: datetime) -> tuple[int, datetime] | None:
    number, _, said = annotations.get(key, "").partition(";")
    try:
        count, local = int(number), datetime.fromisoformat(said)
        at = local.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):  # the first and the last day of all have no other zone
        return None
    return (count, at) if local.tzinfo and 0 < count < _MOST and at - now <= AHEAD else None


def text(count: int, at: datetime) -> str:
    return f"{count};{moment(at)}"


def moment(at: datetime) -> str:
    """As the API writes moments."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def noted(annotations: dict[str, str], key: str, mark: str | None) -> dict[str, str]:
    """The annotations with the mark in them, or without if there is none; the same dict if nothing changes."""
    if annotations.get(key) == mark:
        return annotations
    others = {name: value for name, value in annotations.items() if name != key}
    return others if mark is None else {**others, key: mark}
