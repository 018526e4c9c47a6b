"""Hashed fields of a cron schedule: `H`, as in Jenkins, spreads CronJobs that only need to run once an hour, or a day.

`resolve` writes each `H` of a schedule as a number, or a range with a step, that follows from the seed: a CronJob's namespace
and name. Validation and the CronJob plan call it before `cron_schedule.parse`. Pure, and the same in every process.
"""

import re
from hashlib import sha256

from app.kinds.batch.cron_schedule import BOUNDS, ScheduleError

_SAFE_DAY = 28  # that every month has
_HASH = re.compile(r"H(?:\((\d{1,3})-(\d{1,3})\))?(?:/(\d{1,3}))?")
_ZONES = ("TZ=", "CRON_TZ=")


def is_hashed(text: str) -> bool:
    """Return whether a field of the schedule has an `H`."""
    return any(part.startswith("H") for field in text.split() for part in field.split(","))


def resolve(text: str, seed: str) -> str:
    """Return the schedule without `H`, or a ScheduleError. What has no `H`, or not five fields, is returned as it is."""
    if not is_hashed(text):
        return text
    fields = text.split()
    zone = [fields.pop(0)] if fields[0].startswith(_ZONES) else []
    if len(fields) != len(BOUNDS):
        return text
    return " ".join([*zone, *(_resolve_field(field, place, seed) for place, field in enumerate(fields))])


def _resolve_field(field: str, place: int, seed: str) -> str:
    parts = field.split(",")
    return ",".join(_resolve_part(part, place, seed) if part.startswith("H") else part for part in parts)


def _resolve_part(part: str, place: int, seed: str) -> str:
    found = _HASH.fullmatch(part)
    if found is None:
        raise ScheduleError(f"expected H, H/step, H(low-high) or H(low-high)/step, found {part}")
    bounds, high_by_default = BOUNDS[place], min(BOUNDS[place].high, _SAFE_DAY) if place == 2 else BOUNDS[place].high
    low, high = (int(found[1]), int(found[2])) if found[1] else (bounds.low, high_by_default)
    if low < bounds.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({bounds.low}): {part}")
    if high > bounds.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({bounds.high}): {part}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {part}")
    return _pick(low, high, found[3], part, f"{seed}#{place}")


def _pick(low: int, high: int, step: str | None, part: str, seed: str) -> str:
    size = high - low + 1 if step is None else int(step)
    if not 0 < size <= high - low + 1:
        raise ScheduleError(f"step of range should be from 1 to {high - low + 1}: {part}")
    first = low + int.from_bytes(sha256(seed.encode()).digest()[:8]) % size
    return str(first) if step is None else f"{first}-{high}/{size}"
