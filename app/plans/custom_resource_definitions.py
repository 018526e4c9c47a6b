"""Deletion of a CustomResourceDefinition: its objects first, then its finalizer; and names that became free. Pure.

Called by the controller of definitions. Nothing is created of a kind whose definition is being deleted: once empty, it stays so.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.kinds.apiextensions.custom_resource_definition import FINALIZER
from app.kinds.apiextensions.custom_resource_schema import (
    CustomResourceDefinition,
    CustomResourceDefinitionCondition,
)
from app.kinds.apiextensions.definition_conditions import TERMINATING, with_conditions, with_names
from app.machinery.base import Object
from app.plans.plan import Delete, Plan, Update

RECHECK = timedelta(seconds=5)  # of objects that finalizers hold


def needs_cleanup(crd: CustomResourceDefinition) -> bool:
    return crd.metadata.deletion_timestamp is not None and FINALIZER in crd.metadata.finalizers


def plan_cleanup(crd: CustomResourceDefinition, living: Sequence[Object], left: int, now: datetime) -> Plan:
    """`living`: some of its objects that nobody has asked to go yet. `left`: how many there are."""
    if living:
        return Plan(tuple(Delete(each, propagation="Background") for each in living), again_at=now)
    if left:
        waiting = _terminating(crd, "InstanceDeletionInProgress", "CustomResource deletion is in progress", now)
        return Plan((Update(waiting, crd),) if waiting != crd else (), again_at=now + RECHECK)
    done = _terminating(crd, "InstanceDeletionCompleted", "removed all instances", now, status="False")
    finalizers = tuple(each for each in crd.metadata.finalizers if each != FINALIZER)
    return Plan((Update(replace(done, metadata=replace(done.metadata, finalizers=finalizers)), crd),))


def _terminating(
    crd: CustomResourceDefinition, reason: str, message: str, now: datetime, status: str = "True"
) -> CustomResourceDefinition:
    condition = CustomResourceDefinitionCondition(type=TERMINATING, status=status, reason=reason, message=message)
    return with_conditions(crd, [condition], now)


def plan_names(crd: CustomResourceDefinition, others: Sequence[CustomResourceDefinition], now: datetime) -> Plan:
    """Accept names that have become free."""
    named = with_names(crd, others, now)
    return Plan((Update(named, crd),)) if named != crd else Plan()
