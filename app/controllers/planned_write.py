"""Planned write: what a controller returns to the runner."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.machinery.base import Object
from app.plans.plan import Plan


@dataclass(frozen=True)
class PlannedWrite:
    """One plan, and the versions of the objects that it was made from. It is refused unless they are still the newest."""

    plan: Plan
    seen: Sequence[Object] = ()
