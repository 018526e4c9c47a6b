"""Plan: actions to take together, and perhaps a time to look again.

Made by the modules of `app.plans`, carried out by the controllers' runner. All actions of a plan are one write set:
they happen together or not at all, guarded by the revisions of the objects that the plan was made from.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from app.machinery.base import Object
from app.machinery.meta.metadata_validation import Propagation

Names = Callable[[str], str]  # prefix -> an unused name that starts with it: randomness is handed in


class _Action(msgspec.Struct, frozen=True):
    """Base of all actions."""


class Create(_Action, frozen=True):
    """Create the object. Its name is set; creation time, defaults, and the uid if it has none, are the registry's."""

    object: Object


class Update(_Action, frozen=True):
    """Write the object in place of `old`, for instance without a finalizer or with an owner."""

    object: Object
    old: Object


class Delete(_Action, frozen=True):
    """Ask for deletion, with grace and finalizers as for any client.

    `object` is how it must be stored before that, in the same write: it may lack a finalizer that `old`, which is set
    only then, still had.
    """

    object: Object
    old: Object | None = None
    propagation: Propagation | None = None  # None is the kind's own
    grace_period_seconds: int | None = None


class SetStatus(_Action, frozen=True):
    """Write the object's status, and its annotations: some of what a controller must remember is kept there."""

    object: Object


class Emit(_Action, frozen=True):
    """Record an event about an object. `count` stands for that many like it.

    once: it occurs once in the object's life, so no stored event is looked for to count it with.
    """

    type: str  # Normal or Warning
    reason: str
    message: str
    about: Object
    count: int = 1
    once: bool = False


class Require(_Action, frozen=True):
    """Demand that an object exists and is not being deleted; else the whole plan is refused."""

    resource: str
    namespace: str
    name: str


Action = Create | Update | Delete | SetStatus | Emit | Require


class Plan(msgspec.Struct, frozen=True):
    """What to do now, and when to look again if nothing happens before.

    is_settled: once the actions are done, nothing is left to do before `again_at`. Its own writes then need no sync.
    """

    actions: tuple[Action, ...] = ()
    again_at: datetime | None = None
    is_settled: bool = False


def earliest(moments: Iterable[datetime | None]) -> datetime | None:
    """Return when to look again, of several reasons to."""
    return min((moment for moment in moments if moment), default=None)
