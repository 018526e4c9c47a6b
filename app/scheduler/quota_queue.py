"""The places of those who wait in line for quota, and the words for them."""

from collections.abc import Sequence

from app.scheduler.fair_sharing import Waiting


def places(line: Sequence[Waiting]) -> dict[str, int]:
    """Who stands where, from 1. A Job has the place of its first pod."""
    found: dict[str, int] = {}
    for each in line:
        found.setdefault(each.asking.who, len(found) + 1)
    return found


def told(one: Waiting, standing: dict[str, int]) -> str:
    """`queue default: over its quota of cpu (10 of 10 used); job train-7 is 3rd of 7 in line`."""
    who = one.asking.who
    return f"{one.why}; {who} is {ordinal(standing[who])} of {len(standing)} in line"


def ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
