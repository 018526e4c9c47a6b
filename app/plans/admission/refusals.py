"""Refusals: a quota or another rule of the namespace refuses what an owner creates. Reported with growing pauses, and retried.

A Job is refused pods, a CronJob Jobs. How often and when this was last reported is kept in the owner's annotation
`jobplane.dev/refused`, `<times>;<time>`, as any replica may plan next. It is written together with the event, and removed as
soon as nothing is refused.
"""

from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from app.machinery.base import Object
from app.machinery.durations import human_duration
from app.plans import annotation_state

ANNOTATION = "jobplane.dev/refused"
EXCEEDED = "exceeded quota: "  # in the message of a refusal by a quota
BASE = timedelta(seconds=1)
LONGEST = timedelta(seconds=60)


class Refusal(msgspec.Struct, frozen=True):
    """How many times in a row it was reported, and when last. `message`: what to report now, if anything."""

    times: int = 0
    reported_at: datetime | None = None
    message: str = ""

    @property
    def pause(self) -> timedelta:
        return min(BASE * 2 ** min(self.times - 1, 10), LONGEST) if self.times > 0 else timedelta()

    @property
    def again_at(self) -> datetime | None:
        """It is not reported again before this moment."""
        return self.reported_at + self.pause if self.reported_at and self.times else None


NONE = Refusal()


def read(owner: Object, now: datetime) -> Refusal:
    """The earlier refusals in the owner's annotation; none if a client wrote something else there."""
    return Refusal(*(annotation_state.read(owner.metadata.annotations, ANNOTATION, now) or ()))


def record(owner: Object, why: str, now: datetime) -> Refusal:
    """One more refusal, with a message if it is time to report it, and with when to try again."""
    before = read(owner, now)
    if before.again_at is not None and now < before.again_at:
        return before
    refusal = Refusal(before.times + 1, now)
    return replace(refusal, message=f"{why}; {_next_try(refusal, why)}") if why else refusal


def _next_try(refusal: Refusal, why: str) -> str:
    """A change of the rule wakes the owner. A quota does so when it has room, so the message need not name another time.

    No times of day: an event with the same message is counted, not written again.
    """
    if EXCEEDED in why:
        return "tried again as soon as the quota has room"
    return f"tried again in {human_duration(refusal.pause)}, or as soon as the rules change"


def annotate(annotations: dict[str, str], refusal: Refusal) -> dict[str, str]:
    """The annotations with the refusal in them, or without if there is none; the same dict if nothing changes."""
    text = annotation_state.text(refusal.times, refusal.reported_at) if refusal.reported_at else None
    return annotation_state.annotate(annotations, ANNOTATION, text)
