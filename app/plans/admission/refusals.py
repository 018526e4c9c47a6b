"""What an owner may not create, because a quota or another rule of its namespace refuses it: told with growing pauses, and
tried again. Jobs are refused pods, CronJobs Jobs.

How often and when it was last told is kept in the owner's annotation `jobplane.dev/refused`, `<times>;<time>`: any replica
may plan next. It is written together with the event, and goes as soon as nothing is refused.
"""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.machinery.base import Object
from app.machinery.durations import duration_text
from app.plans import annotation_state

ANNOTATION = "jobplane.dev/refused"
EXCEEDED = "exceeded quota: "  # what a refusal says for want of room
BASE = timedelta(seconds=1)
LONGEST = timedelta(seconds=60)


class Refusal(msgspec.Struct, frozen=True):
    """How many times in a row it was told, and when last. `message`: what to tell now, if anything."""

    times: int = 0
    told_at: datetime | None = None
    message: str = ""

    @property
    def pause(self) -> timedelta:
        return min(BASE * 2 ** min(self.times - 1, 10), LONGEST) if self.times > 0 else timedelta()

    @property
    def again_at(self) -> datetime | None:
        """Before this moment it is not told again."""
        return self.told_at + self.pause if self.told_at and self.times else None


NONE = Refusal()


def remembered(owner: Object, now: datetime) -> Refusal:
    """What the owner says of earlier refusals; what somebody garbled counts as nothing."""
    return Refusal(*(annotation_state.read(owner.metadata.annotations, ANNOTATION, now) or ()))


def refused(owner: Object, why: str, now: datetime) -> Refusal:
    """One more refusal, to be told if it is time, with when it is tried again."""
    before = remembered(owner, now)
    if before.again_at is not None and now < before.again_at:
        return before
    refusal = Refusal(before.times + 1, now)
    return replace(refusal, message=f"{why}; {_when(refusal, why)}") if why else refusal


def _when(refusal: Refusal, why: str) -> str:
    """Whoever refused wakes the owner. A quota does so when something leaves it, so of other times nobody need know.

    No moments: an event that says the same again is counted, not written again.
    """
    if EXCEEDED in why:
        return "tried again as soon as the quota has room"
    return f"tried again in {duration_text(refusal.pause)}, or as soon as the rules change"


def noted(annotations: dict[str, str], refusal: Refusal) -> dict[str, str]:
    """The annotations with the refusal in them, or without if there is none; the same dict if nothing changes."""
    mark = annotation_state.text(refusal.times, refusal.told_at) if refusal.told_at else None
    return annotation_state.noted(annotations, ANNOTATION, mark)
