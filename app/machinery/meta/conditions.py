"""Conditions: reading one, and replacing one by another. For kinds, plans and controllers."""

from collections.abc import Iterable

from app.machinery.base import Condition


def condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    for each in conditions:  # a plain loop: plans ask nothing more often
        if each.type == type_:
            return each
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    found = condition(conditions, type_)
    return found is not None and found.status == "True"


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """In the place of the one of its type, or at the end."""
    if condition(conditions, new.type) is None:
        return (*conditions, new)
    return tuple(new if each.type == new.type else each for each in conditions)
