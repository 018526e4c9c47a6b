"""Node lifecycle: conditions and taints of nodes whose lease is not renewed, taint eviction, and pods of lost nodes. Pure.

Follows Kubernetes' node lifecycle and taint eviction controllers, with one difference: pods of a lost node are failed when
their toleration ends, rather than left terminating for ever, because an agent that cannot renew its lease stops its pods
before that (`node_loss_timing`). Otherwise a pod fails without a report of its agent only by the out-of-service taint, or
because its node was deleted.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from app.kinds.core.node import NOT_READY, UNREACHABLE, UNSCHEDULABLE, Node, NodeCondition, Taint
from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.base import Condition
from app.machinery.durations import FIRST, after
from app.plans.nodes.tolerations import tolerates
from app.plans.plan import Action, Delete, Emit, Plan, Update, earliest

MISSING_GRACE = timedelta(seconds=50)
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"  # an operator sets it: the machine is off
BY_TAINT = "DeletionByTaintManager"
# By type of a condition: the taint that keeps new pods away while it is true.
_PRESSURES = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS = frozenset({UNREACHABLE, NOT_READY, UNSCHEDULABLE, *_PRESSURES.values()})


def plan(node: Node, pods: Sequence[Pod], lease_seen_at: datetime, grace: timedelta, now: datetime) -> Plan:
    """`lease_seen_at` is when a renewal of the node's lease was last seen here, by this process's own clock."""
    lost_at = lease_seen_at + grace
    updated = update_health(node, lost=now >= lost_at, now=now)
    left = [pod for pod in pods if not is_terminal(pod)]
    stopped = [(stopped_unreported_at(pod, updated, lost_at), pod) for pod in left]
    evictions = [(evict_at(pod, updated), pod) for pod in left]
    actions: list[Action] = [
        fail_pod(pod, BY_TAINT, "NodeLost", _lost_message(node), now) for pod in _due(stopped, now)
    ]
    actions += [action for pod in _due(evictions, now) for action in evict(pod, now)]
    if updated != node:
        actions += [Update(updated, node), *_readiness_events(node, updated)]
    later = [at for at, _ in (*stopped, *evictions) if at is not None and at > now]
    return Plan(tuple(actions), earliest((*later, lost_at if now < lost_at else None)))


def _due(pods: Iterable[tuple[datetime | None, Pod]], now: datetime) -> list[Pod]:
    return [pod for at, pod in pods if at is not None and at <= now]


def update_health(node: Node, *, lost: bool, now: datetime) -> Node:
    """The node with its conditions Unknown while it is lost, known again after that, and with the taints that follow."""
    conditions = tuple(
        _set_unknown(each, now) if lost else _clear_unknown(each, now) for each in node.status.conditions
    )
    if conditions != node.status.conditions:
        node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))
    taints = _build_taints(node, now)
    if taints == node.spec.taints:
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


_STATUS_UNKNOWN = "NodeStatusUnknown"


def _set_unknown(condition: NodeCondition, now: datetime) -> NodeCondition:
    if condition.status == "Unknown":
        return condition
    why = "The agent stopped renewing its lease."
    return msgspec.structs.replace(
        condition, status="Unknown", reason=_STATUS_UNKNOWN, message=why, last_transition_time=now
    )


def _clear_unknown(condition: NodeCondition, now: datetime) -> NodeCondition:
    """The lease is renewed again: until the agent reports its status, the node counts as ready and under no pressure."""
    if condition.status != "Unknown" or condition.reason != _STATUS_UNKNOWN:
        return condition
    status = "True" if condition.type == "Ready" else "False"
    return msgspec.structs.replace(
        condition,
        status=status,
        reason="LeaseRenewed",
        message="The agent renews its lease again.",
        last_transition_time=now,
    )


def _build_taints(node: Node, now: datetime) -> tuple[Taint, ...]:
    """Taints that other clients set, then ours; a taint that stays keeps the time at which it was added."""
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "True")
    wanted = {"Unknown": [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]}.get(ready, [])
    if ready == "False":
        wanted = [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    true = {each.type for each in node.status.conditions if each.status == "True"}
    wanted += [(key, "NoSchedule") for condition, key in _PRESSURES.items() if condition in true]
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    present = {(each.key, each.effect): each for each in node.spec.taints}
    kept = [each for each in node.spec.taints if each.key not in _OURS or (each.key, each.effect) in wanted]
    kept += [Taint(key=key, effect=effect, time_added=now) for key, effect in wanted if (key, effect) not in present]
    return tuple(kept)


def evict_at(pod: Pod, node: Node) -> datetime | None:
    """Return when the node's NoExecute taints evict the pod; None while it may stay, or if it is deleted already.

    Never while the node is lost: its agent would not learn of it, and Jobs replace pods that are only being deleted.
    """
    taints = [taint for taint in node.spec.taints if taint.effect == "NoExecute"]
    if pod.metadata.deletion_timestamp is not None or any(taint.key == UNREACHABLE for taint in taints):
        return None
    return earliest(_toleration_ends_at(pod, taint) for taint in taints)


def stopped_unreported_at(pod: Pod, node: Node, lost_at: datetime) -> datetime | None:
    """Return when a lost node's agent has certainly stopped the pod, though it cannot report that. None: unknown.

    Neither the time of its deletion nor any other taint counts, as the agent may have learned of neither.
    """
    taints = {taint.key: taint for taint in node.spec.taints if taint.effect == "NoExecute"}
    unreachable, off = taints.get(UNREACHABLE), taints.get(OUT_OF_SERVICE)
    if unreachable is None:
        return None
    if off is not None and _toleration_ends_at(pod, off) is not None:
        return _toleration_ends_at(pod, off)  # the operator vouches for it
    # The taint may have been written by another process, by another clock; `lost_at` is this one's own.
    since = max(unreachable.time_added or FIRST, lost_at)
    return _toleration_ends_at(pod, msgspec.structs.replace(unreachable, time_added=since))


def _toleration_ends_at(pod: Pod, taint: Taint) -> datetime | None:
    since = taint.time_added or FIRST
    tolerated = [each for each in pod.spec.tolerations if tolerates(each, taint)]
    if not tolerated:
        return since
    seconds = [each.toleration_seconds for each in tolerated if each.toleration_seconds is not None]
    return after(since, max(0, min(seconds))) if seconds else None


def evict(pod: Pod, now: datetime) -> tuple[Action, ...]:
    """Delete a pod with its grace period: its agent reports when it has ended."""
    why = "taint-eviction-controller: deleting due to NoExecute taint"
    target = Condition(type="DisruptionTarget", status="True", reason=BY_TAINT, message=why, last_transition_time=now)
    others = tuple(each for each in pod.status.conditions if each.type != "DisruptionTarget")
    status = msgspec.structs.replace(pod.status, conditions=(*others, target))
    message = f"Marking for deletion Pod {pod.metadata.namespace}/{pod.metadata.name}"
    event = Emit("Normal", "TaintManagerEviction", message, pod)
    return Delete(msgspec.structs.replace(pod, status=status), pod), event


def fail_pod(pod: Pod, disruption: str, reason: str, message: str, now: datetime) -> Delete:
    """Fail and delete a pod whose agent cannot report its end: its Job counts it and replaces it."""
    target = Condition(
        type="DisruptionTarget", status="True", reason=disruption, message=message, last_transition_time=now
    )
    others = tuple(each for each in pod.status.conditions if each.type not in {"DisruptionTarget", "Ready"})
    not_ready = Condition(type="Ready", status="False", reason="PodFailed", last_transition_time=now)
    status = msgspec.structs.replace(
        pod.status, phase="Failed", reason=reason, message=message, conditions=(*others, not_ready, target)
    )
    return Delete(msgspec.structs.replace(pod, status=status), pod, grace_period_seconds=0)


def _lost_message(node: Node) -> str:
    return f"Node {node.metadata.name} has been lost or is being emptied by a taint."


def _readiness_events(before: Node, after: Node) -> Iterable[Emit]:
    was, now = (next((c.status for c in each.status.conditions if c.type == "Ready"), "") for each in (before, after))
    if was != now:
        reason = "NodeReady" if now == "True" else "NodeNotReady"
        yield Emit("Normal", reason, f"Node {after.metadata.name} status is now: {reason}", after)


def plan_without_node(node_name: str, pods: Sequence[Pod], missing_since: datetime, now: datetime) -> Plan:
    """Fail pods that are bound to a node that does not exist, once it has been missing for `MISSING_GRACE`."""
    ends_at = missing_since + MISSING_GRACE
    left = [pod for pod in pods if not is_terminal(pod)]
    if not left:
        return Plan()
    if now < ends_at:
        return Plan(again_at=ends_at)
    why = f"Node {node_name} no longer exists."
    return Plan(tuple(fail_pod(pod, "DeletionByPodGC", "NodeLost", why, now) for pod in left))
