"""The condition of newer kinds (meta/v1 Condition), which says what generation it was observed of.

Older kinds have `base.Condition`; apart from it because both go by the same name.
"""

import msgspec

from app.machinery.meta_condition_schema import Condition

__all__ = ["Condition", "condition", "with_condition"]


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
