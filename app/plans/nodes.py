"""What to do about one node: whether it counts as lost, which taints say so, and which of its pods that ends. Pure.

Follows Kubernetes' node life cycle and taint eviction, with one difference: pods of a lost node are failed at once when
their toleration ends, rather than left terminating for ever, because an agent that cannot renew its lease stops its pods
before that (fencing).
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from app.kinds.base import Condition
from app.kinds.durations import after
from app.kinds.node import NOT_READY, UNREACHABLE, UNSCHEDULABLE, Node, NodeCondition, Taint
from app.kinds.pod import Pod, is_terminal
from app.plans.plan import Action, Delete, Emit, Plan, Update, earliest
from app.plans.schedule import tolerates

MISSING_GRACE = timedelta(seconds=50)
_OURS = frozenset({UNREACHABLE, NOT_READY, UNSCHEDULABLE})


def plan(node: Node, pods: Sequence[Pod], lease_seen_at: datetime, grace: timedelta, now: datetime) -> Plan:
    """`lease_seen_at` is when a renewal of the node's lease was last seen here, by this process's own clock."""
    lost_at = lease_seen_at + grace
    after = judged(node, lost=now >= lost_at, now=now)
    evictions = [(evict_at(pod, after), pod) for pod in pods if not is_terminal(pod)]
    due = [pod for at, pod in evictions if at is not None and at <= now]
    later = earliest(at for at, _ in evictions if at is not None and at > now)
    actions: list[Action] = [ended(pod, "DeletionByTaintManager", "NodeLost", _why(node), now) for pod in due]
    if after != node:
        actions += [Update(after, node), *_told(node, after)]
    return Plan(tuple(actions), earliest((later, lost_at if now < lost_at else None)))


def judged(node: Node, *, lost: bool, now: datetime) -> Node:
    """The node with the conditions and taints that its silence, or its return, calls for."""
    conditions = tuple(_silent(each, now) if lost else _back(each, now) for each in node.status.conditions)
    if conditions != node.status.conditions:
        node = msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))
    taints = _taints(node, now)
    if taints == node.spec.taints:
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints))


_SILENCE = "NodeStatusUnknown"


def _silent(condition: NodeCondition, now: datetime) -> NodeCondition:
    if condition.status == "Unknown":
        return condition
    why = "The agent stopped renewing its lease."
    return msgspec.structs.replace(condition, status="Unknown", reason=_SILENCE, message=why, last_transition_time=now)


def _back(condition: NodeCondition, now: datetime) -> NodeCondition:
    """Until the agent's next status, its renewed lease is what is known: it is back, and under no pressure."""
    if condition.status != "Unknown" or condition.reason != _SILENCE:
        return condition
    status = "True" if condition.type == "Ready" else "False"
    return msgspec.structs.replace(
        condition,
        status=status,
        reason="LeaseRenewed",
        message="The agent renews its lease again.",
        last_transition_time=now,
    )


def _taints(node: Node, now: datetime) -> tuple[Taint, ...]:
    """Other people's taints, then ours; a taint that stays keeps the time at which it was added."""
    ready = next((each.status for each in node.status.conditions if each.type == "Ready"), "True")
    wanted = {"Unknown": [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]}.get(ready, [])
    if ready == "False":
        wanted = [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    there = {(each.key, each.effect): each for each in node.spec.taints}
    kept = [each for each in node.spec.taints if each.key not in _OURS or (each.key, each.effect) in wanted]
    kept += [Taint(key=key, effect=effect, time_added=now) for key, effect in wanted if (key, effect) not in there]
    return tuple(kept)


def evict_at(pod: Pod, node: Node) -> datetime | None:
    """When the node's NoExecute taints end the pod; None while it may stay."""
    moments = [_ends_at(pod, taint) for taint in node.spec.taints if taint.effect == "NoExecute"]
    lost = any(taint.key == UNREACHABLE for taint in node.spec.taints)
    if lost and pod.metadata.deletion_timestamp is not None:
        moments.append(pod.metadata.deletion_timestamp)  # nobody is there to say that it has ended
    return earliest(moments)


def _ends_at(pod: Pod, taint: Taint) -> datetime | None:
    since = taint.time_added or datetime.min.replace(tzinfo=UTC)
    tolerated = [each for each in pod.spec.tolerations if tolerates(each, taint)]
    if not tolerated:
        return since
    seconds = [each.toleration_seconds for each in tolerated if each.toleration_seconds is not None]
    return after(since, max(0, min(seconds))) if seconds else None


def ended(pod: Pod, disruption: str, reason: str, message: str, now: datetime) -> Delete:
    """Fail a pod whose node cannot do it, and delete it: its Job counts it and starts another."""
    target = Condition(
        type="DisruptionTarget", status="True", reason=disruption, message=message, last_transition_time=now
    )
    others = tuple(each for each in pod.status.conditions if each.type not in {"DisruptionTarget", "Ready"})
    not_ready = Condition(type="Ready", status="False", reason="PodFailed", last_transition_time=now)
    status = msgspec.structs.replace(
        pod.status, phase="Failed", reason=reason, message=message, conditions=(*others, not_ready, target)
    )
    return Delete(msgspec.structs.replace(pod, status=status), pod, grace_period_seconds=0)


def _why(node: Node) -> str:
    return f"Node {node.metadata.name} has been lost or is being emptied by a taint."


def _told(before: Node, after: Node) -> Iterable[Emit]:
    was, now = (next((c.status for c in each.status.conditions if c.type == "Ready"), "") for each in (before, after))
    if was != now:
        reason = "NodeReady" if now == "True" else "NodeNotReady"
        yield Emit("Normal", reason, f"Node {after.metadata.name} status is now: {reason}", after)


def plan_without_node(node_name: str, pods: Sequence[Pod], missing_since: datetime, now: datetime) -> Plan:
    """Pods that are bound to a node that does not exist: ended when it has been away for so long that it stays away."""
    ends_at = missing_since + MISSING_GRACE
    left = [pod for pod in pods if not is_terminal(pod)]
    if not left:
        return Plan()
    if now < ends_at:
        return Plan(again_at=ends_at)
    why = f"Node {node_name} no longer exists."
    return Plan(tuple(ended(pod, "DeletionByPodGC", "NodeLost", why, now) for pod in left))
