"""Validation of the conditions of newer kinds, when a client writes a status. Their kinds call it."""

import re
from collections.abc import Iterator

from app.machinery import name_validation
from app.machinery.errors import Cause, invalid, not_supported, required
from app.machinery.meta_condition import Condition
from app.machinery.metadata_validation import NEGATIVE

_REASON = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"


def validate_conditions(conditions: tuple[Condition, ...], path: str) -> Iterator[Cause]:
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
