"""The PriorityClass kind: how important pods are, by name.

Pods get their priority from it in `app.plans.admission.pod_admission`.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.scheduling.priorityclass_schema import PriorityClass
from app.machinery.base import Column, Kind, ObjectMeta
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid, one_of
from app.machinery.meta.metadata_validation import IMMUTABLE

__all__ = ["HIGHEST", "KIND", "RESERVED", "SYSTEM", "PriorityClass", "prepare", "row", "validate", "validate_update"]


HIGHEST = 1_000_000_000  # of what users may define
RESERVED = "system-"


SYSTEM = (
    PriorityClass(
        metadata=ObjectMeta(name="system-cluster-critical"),
        value=2_000_000_000,
        description=(
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
        ),
    ),
    PriorityClass(
        metadata=ObjectMeta(name="system-node-critical"),
        value=2_000_001_000,
        description="Used for system critical pods that must not be moved from their current node.",
    ),
)
"""The classes that every cluster starts with."""


def prepare(priority_class: PriorityClass) -> PriorityClass:
    return replace(
        priority_class,
        value=priority_class.value or 0,
        preemption_policy=priority_class.preemption_policy or "PreemptLowerPriority",
    )


def validate(priority_class: PriorityClass) -> list[Cause]:
    name, value = priority_class.metadata.name, priority_class.value or 0
    causes = one_of("preemptionPolicy", priority_class.preemption_policy, ("PreemptLowerPriority", "Never"))
    if name.startswith(RESERVED):
        if fault := _unlike_system(priority_class):
            text = f"priority class names with '{RESERVED}' prefix are reserved for system use only. error: {fault}"
            causes.append(forbidden("metadata.name", text))
    elif value > HIGHEST:
        causes.append(forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST}"))
    return causes


def _unlike_system(given: PriorityClass) -> str:
    """In what it differs from the system's class of that name."""
    name = given.metadata.name
    known = next((each for each in SYSTEM if each.metadata.name == name), None)
    if known is None:
        return f"{name} is not a known system priority class"
    if given.value != known.value:
        return f"value of {name} PriorityClass must be {known.value}"
    return f"globalDefault of {name} PriorityClass must be false" if given.global_default else ""


def validate_update(new: PriorityClass, old: PriorityClass) -> list[Cause]:
    causes = []
    if new.value != old.value:
        causes.append(forbidden("value", "may not be changed in an update."))
    if new.preemption_policy != old.preemption_policy:
        causes.append(invalid("preemptionPolicy", new.preemption_policy, IMMUTABLE))
    return causes


def row(priority_class: PriorityClass, now: datetime) -> list[Any]:
    meta = priority_class.metadata
    return [
        meta.name,
        priority_class.value or 0,
        priority_class.global_default,
        age(meta.creation_timestamp, now),
        priority_class.preemption_policy,
    ]


KIND = Kind(
    type=PriorityClass,
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    short_names=("pc",),
    namespaced=False,
    prepare=prepare,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the class."),
        Column(name="Value", type="integer", description="The priority that it stands for."),
        Column(name="Global-Default", type="boolean", description="Whether pods that name no class have it."),
        Column(name="Age", description="Time since the class was created."),
        Column(name="PreemptionPolicy", description="Whether others are evicted for its pods.", priority=0),
    ),
    row=row,
    example="""\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: urgent
value: 1000
description: For what somebody waits for.
preemptionPolicy: Never
""",
)
