"""Annotation state: a count and a time that plans keep in an object's annotation, `<count>;<time>`.

Used by the back-off of Jobs and of indexes, and by refusals. Any client may write any annotation: text that is no such
pair, or cannot be one that a plan has written, counts as none.
"""

from datetime import UTC, datetime, timedelta

AHEAD = timedelta(minutes=10)
"""A time may be no further ahead of now than this: the longest back-off, and more than clocks differ."""
_MOST = 2**31


def read(annotations: dict[str, str], key: str, now: datetime) -> tuple[int, datetime] | None:
    number, _, time = annotations.get(key, "").partition(";")
    try:
        count, local = int(number), datetime.fromisoformat(time)
        at = local.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):  # the first and the last day of all have no other zone
        return None
    return (count, at) if local.tzinfo and 0 < count < _MOST and at - now <= AHEAD else None


def text(count: int, at: datetime) -> str:
    return f"{count};{moment(at)}"


def moment(at: datetime) -> str:
    """As the API writes moments."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def annotate(annotations: dict[str, str], key: str, value: str | None) -> dict[str, str]:
    """The annotations with this value, or without the key if it is None; the same dict if nothing changes."""
    if annotations.get(key) == value:
        return annotations
    others = {name: each for name, each in annotations.items() if name != key}
    return others if value is None else {**others, key: value}
