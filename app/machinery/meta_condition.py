"""The condition of newer kinds (meta/v1 Condition), which says what generation it was observed of.

Older kinds have `base.Condition`; apart from it because both go by the same name.
"""

from typing import Annotated

import msgspec

from app.machinery.base import TOLD, Int64, Struct, Time, at


class Condition(Struct):
    """One observation about an object."""

    type: Annotated[str, at(1, "What is observed.", required=True)] = TOLD
    status: Annotated[str, at(2, "True, False or Unknown.", required=True)] = TOLD
    observed_generation: Annotated[Int64, at(3, "The metadata.generation that it was observed of.")] = 0
    last_transition_time: Annotated[Time | None, at(4, "When status last changed.", required=True)] = None
    reason: Annotated[str, at(5, "One word for why.", required=True)] = TOLD
    message: Annotated[str, at(6, "A sentence for people; may be empty.", required=True)] = TOLD


def condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((each for each in conditions if each.type == type_), None)


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """`new` in the place of the one of its type, or at the end. The time of the change stays if nothing did change."""
    old = condition(conditions, new.type)
    if old is None:
        return (*conditions, new)
    if old.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return tuple(new if each is old else each for each in conditions)
