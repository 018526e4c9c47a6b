"""The condition of newer kinds (meta/v1 Condition), which says what generation it was observed of.

Older kinds have `base.Condition`; apart from it because both go by the same name.
"""

import re
from collections.abc import Iterator

import msgspec

from app.machinery import name_validation
from app.machinery.errors import Cause, invalid, not_supported, required
from app.machinery.meta.meta_condition_schema import Condition
from app.machinery.meta.metadata_validation import NEGATIVE

__all__ = ["Condition", "condition", "validate_conditions", "with_condition"]

_REASON = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


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


def validate_conditions(conditions: tuple[Condition, ...], path: str) -> Iterator[Cause]:
    """Yield the faults of the conditions in a status that a client writes."""
    for index, each in enumerate(conditions):
        yield from _condition(each, f"{path}[{index}]")


def _condition(each: Condition, here: str) -> Iterator[Cause]:
    if not each.type:
        yield required(f"{here}.type", "must be set")
    for text in name_validation.qualified_name(each.type) if each.type else ():
        yield invalid(f"{here}.type", each.type, text)
    if each.status not in ("True", "False", "Unknown"):
        yield not_supported(f"{here}.status", each.status, ("False", "True", "Unknown"))
    if each.observed_generation < 0:
        yield invalid(f"{here}.observedGeneration", each.observed_generation, NEGATIVE)
    if each.last_transition_time is None:
        yield required(f"{here}.lastTransitionTime", "must be set")
    if not each.reason:
        yield required(f"{here}.reason", "must be set")
    elif not re.fullmatch(_REASON, each.reason[:1025]):
        text = "a condition reason must start with alphabetic character, optionally followed by a string of "
        text += "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'"
        text += " (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', "
        yield invalid(f"{here}.reason", each.reason, f"{text}regex used for validation is '{_REASON}')")
