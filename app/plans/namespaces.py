"""What to do next about a namespace that is being deleted: empty it, say what holds it up, let it go. Pure.

Called by the namespace controller. Nothing is created in a namespace that is going: one that was found empty stays so.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.kinds.base import Condition, Object
from app.kinds.namespace import FINALIZER, Namespace
from app.plans.plan import Delete, Plan, Update

LOOK_AGAIN = timedelta(seconds=5)  # at content whose end nobody would tell of
REMAINING = "NamespaceContentRemaining"


def plan(namespace: Namespace, left: Mapping[str, int], living: Sequence[Object], now: datetime) -> Plan:
    """`left`: how many objects of which kinds are in it. `living`: some of those that nobody has asked to go yet, or all."""
    if not is_to_be_emptied(namespace):
        return Plan()
    if living:
        return Plan(tuple(Delete(each, propagation="Background") for each in living), again_at=now)
    if left:
        told = _telling(namespace, left, now)
        return Plan((Update(told, namespace),) if told != namespace else (), again_at=now + LOOK_AGAIN)
    finalizers = tuple(each for each in namespace.spec.finalizers if each != FINALIZER)
    return Plan((Update(replace(namespace, spec=replace(namespace.spec, finalizers=finalizers)), namespace),))


def is_to_be_emptied(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is not None and FINALIZER in namespace.spec.finalizers


def _telling(namespace: Namespace, left: Mapping[str, int], now: datetime) -> Namespace:
    """With the condition that says what is still there."""
    old = {each.type: each for each in namespace.status.conditions}
    since = old[REMAINING].last_transition_time if REMAINING in old else now
    counted = ", ".join(_counted(resource, left[resource]) for resource in sorted(left))
    remaining = Condition(
        type=REMAINING,
        status="True",
        last_transition_time=since,
        reason="SomeResourcesRemain",
        message=f"Some resources are remaining: {counted}",
    )
    conditions = tuple((old | {REMAINING: remaining}).values())
    return replace(namespace, status=replace(namespace.status, conditions=conditions))


def _counted(resource: str, count: int) -> str:
    """Kubernetes' wording, in which resources of the core group end in a dot."""
    plural, _, group = resource.partition(".")
    return f"{plural}.{group} has {count} resource instances"
