"""What a controller hands to the runner."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.kinds.base import Object
from app.plans.plan import Plan


@dataclass(frozen=True)
class Work:
    """One plan, and the versions of the objects that it was made from: it is refused unless they are still the newest."""

    plan: Plan
    seen: Sequence[Object] = ()
