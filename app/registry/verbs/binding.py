"""Binding: puts a pod on a node. Pure; used by the scheduler and by POST pods/NAME/binding."""

from datetime import datetime
from functools import lru_cache

import msgspec

from app.kinds.pod.pod import Pod, PodStatus
from app.machinery.base import Condition
from app.machinery.meta import conditions


def bound(pod: Pod, node: str, now: datetime) -> Pod:
    """The pod as it is once bound: its node, and the condition PodScheduled. No node is kept for it any more."""
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    status = pod.status
    if status.nominated_node_name:
        status = msgspec.structs.replace(status, nominated_node_name="")
    status = _with_condition(status, _scheduled_condition(now))
    return msgspec.structs.replace(pod, spec=spec, status=status)


@lru_cache(maxsize=2)
def _scheduled_condition(now: datetime) -> Condition:
    """Many pods are bound at one time."""
    return Condition(type="PodScheduled", status="True", last_transition_time=now)


def with_condition(pod: Pod, condition: Condition) -> Pod:
    """The pod with this condition in place of one of the same type."""
    return msgspec.structs.replace(pod, status=_with_condition(pod.status, condition))


def _with_condition(status: PodStatus, condition: Condition) -> PodStatus:
    return msgspec.structs.replace(status, conditions=conditions.with_condition(status.conditions, condition))
