"""What an owner may not create, because a quota or another rule of its namespace refuses it: told with growing pauses, and
tried again. Jobs are refused pods, CronJobs Jobs.

How often and when it was last told is kept in the owner's annotation `jobplane.dev/refused`, `<times>;<time>`: any replica
may plan next. It is written together with the event, and goes as soon as nothing is refused.
"""

from datetime import datetime, timedelta

import msgspec

from app.kinds.base import Object

ANNOTATION = "jobplane.dev/refused"
BASE = timedelta(seconds=1)
LONGEST = timedelta(seconds=60)


class Refusal(msgspec.Struct, frozen=True):
    """How many times in a row it was told, and when last. `message`: what to tell now, if anything."""

    times: int = 0
    told_at: datetime | None = None
    message: str = ""

    @property
    def again_at(self) -> datetime | None:
        """Before this moment it is not told again."""
        return self.told_at + min(BASE * 2 ** min(self.times - 1, 10), LONGEST) if self.told_at and self.times else None


NONE = Refusal()


def remembered(owner: Object) -> Refusal:
    """What the owner says of earlier refusals; what somebody garbled counts as nothing."""
    times, _, told_at = owner.metadata.annotations.get(ANNOTATION, "").partition(";")
    try:
        told = datetime.fromisoformat(told_at)
        return Refusal(int(times), told) if told.tzinfo else NONE
    except ValueError:
        return NONE


def refused(owner: Object, message: str, now: datetime) -> Refusal:
    """One more refusal, to be told if it is time."""
    before = remembered(owner)
    quiet = before.again_at is not None and now < before.again_at
    return before if quiet else Refusal(before.times + 1, now, message)


def noted(annotations: dict[str, str], refusal: Refusal) -> dict[str, str]:
    """The annotations with the refusal in them, or without if there is none; the same dict if nothing changes."""
    text = f"{refusal.times};{refusal.told_at:%Y-%m-%dT%H:%M:%SZ}" if refusal.told_at else None
    if annotations.get(ANNOTATION) == text:
        return annotations
    others = {key: value for key, value in annotations.items() if key != ANNOTATION}
    return {**others, ANNOTATION: text} if text else others
