"""Putting a pod on a node. Pure; used by the scheduler and by POST pods/NAME/binding."""

from datetime import datetime

import msgspec

from app.kinds import conditions
from app.kinds.base import Condition
from app.kinds.pod import Pod


def bound(pod: Pod, node: str, now: datetime) -> Pod:
    """The pod as it is once bound: its node, and the condition PodScheduled. No node is kept for it any more."""
    scheduled = Condition(type="PodScheduled", status="True", last_transition_time=now)
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    status = pod.status
    if status.nominated_node_name:
        status = msgspec.structs.replace(status, nominated_node_name="")
    return with_condition(msgspec.structs.replace(pod, spec=spec, status=status), scheduled)


def with_condition(pod: Pod, condition: Condition) -> Pod:
    """The pod with this condition in place of one of the same type."""
    status = msgspec.structs.replace(pod.status, conditions=conditions.with_condition(pod.status.conditions, condition))
    return msgspec.structs.replace(pod, status=status)
