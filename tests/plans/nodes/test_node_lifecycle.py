"""One node and its lease: when it counts as lost, what is written on it, and when its pods end."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from app.kinds.pod.affinity import Toleration
from app.kinds.pod.pod import Pod
from app.machinery.base import ObjectMeta
from app.plans.nodes.node_lifecycle import (
    OUT_OF_SERVICE,
    evict_at,
    plan,
    plan_without_node,
    stopped_unreported_at,
    update_health,
)
from app.plans.plan import Delete, Emit, Plan, Update
from tests.build import NOW, a_pod

GRACE = timedelta(seconds=40)
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


def a_node(ready: str = "True", *taints: Taint, **spec: Any) -> Node:
    conditions = (NodeCondition(type="Ready", status=ready, reason="AgentReady"),)
    return Node(
        metadata=ObjectMeta(name="node-1"),
        spec=NodeSpec(taints=taints, **spec),
        status=NodeStatus(conditions=conditions),
    )


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def said(result: Plan) -> str:
    """What the plan does, in a line."""
    parts = []
    for action in result.actions:
        match action:
            case Update(Node() as node):
                ready = next(each.status for each in node.status.conditions if each.type == "Ready")
                parts.append(f"ready {ready}, taints {len(node.spec.taints)}")
            case Delete(Pod() as pod, grace_period_seconds=grace):
                parts.append(f"{'evict' if grace is None else 'end'} {pod.metadata.name}")
            case Emit(_, reason):
                parts.append(reason)
    return "; ".join(parts) or "nothing"


@pytest.mark.parametrize(
    ("node", "silent", "expected"),
    [
        pytest.param(a_node(), 0, "nothing", id="healthy"),
        pytest.param(a_node(), 39, "nothing", id="late, but within its grace"),
        pytest.param(a_node(), 40, "ready Unknown, taints 2; NodeNotReady", id="lost"),
        pytest.param(a_node("False"), 0, "ready False, taints 2", id="not ready, by its own word"),
        pytest.param(a_node(unschedulable=True), 0, "ready True, taints 1", id="cordoned"),
        pytest.param(
            a_node("True", Taint(key=UNREACHABLE, effect="NoSchedule"), Taint(key=UNREACHABLE, effect="NoExecute")),
            0,
            "ready True, taints 0",
            id="healthy again",
        ),
    ],
)
def test_plan(node: Node, silent: float, expected: str) -> None:
    assert said(plan(node, [], ago(silent), GRACE, NOW)) == expected


def test_it_looks_again_when_the_grace_would_be_over() -> None:
    assert plan(a_node(), [], ago(10), GRACE, NOW).again_at == NOW + timedelta(seconds=30)


def lost_since(seconds: float) -> Node:
    return update_health(a_node(), lost=True, now=ago(seconds))


def test_what_was_written_stays_as_it_is() -> None:
    node = lost_since(100)

    assert update_health(node, lost=True, now=NOW) == node
    assert {each.time_added for each in node.spec.taints} == {ago(100)}


def test_back_it_is_what_it_was_but_for_the_reason() -> None:
    back = update_health(lost_since(100), lost=False, now=NOW)

    (ready,) = back.status.conditions
    assert (ready.status, ready.reason, ready.last_transition_time) == ("True", "LeaseRenewed", NOW)
    assert back.spec.taints == ()


MAINTENANCE = Taint(key="maintenance", effect="NoExecute", time_added=NOW)


def over_at(pod: Pod, node: Node, lost_at: datetime = NOW - timedelta(hours=1)) -> datetime | None:
    return stopped_unreported_at(pod, node, lost_at)


def tolerating(*tolerations: Toleration) -> Pod:
    return a_pod(tolerations=tolerations)


def seconds(count: int | None, key: str = UNREACHABLE) -> Toleration:
    return Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=count)


@pytest.mark.parametrize(
    ("pod", "after"),
    [
        pytest.param(tolerating(), 0, id="at once, without a toleration"),
        pytest.param(tolerating(seconds(300)), 300, id="when its toleration is over"),
        pytest.param(tolerating(seconds(300), seconds(60)), 60, id="when the shortest is over"),
        pytest.param(tolerating(seconds(-5)), 0, id="at once, with one that is negative"),
        pytest.param(tolerating(seconds(None)), None, id="never, if it tolerates for ever"),
        pytest.param(tolerating(seconds(None), seconds(60)), 60, id="when the one that ends is over"),
        pytest.param(tolerating(seconds(300, NOT_READY)), 0, id="at once, if it tolerates something else"),
    ],
)
def test_a_pod_of_a_lost_node_ends(pod: Pod, after: int | None) -> None:
    moment = over_at(pod, lost_since(0))

    assert moment == (None if after is None else NOW + timedelta(seconds=after))


def test_a_toleration_without_measure_is_as_good_as_for_ever() -> None:
    moment = over_at(tolerating(seconds(2**63 - 1)), lost_since(0))

    assert moment
    assert moment > NOW + timedelta(days=100_000)


def test_a_pod_of_a_healthy_node_stays() -> None:
    assert evict_at(tolerating(), a_node()) is None
    assert evict_at(tolerating(), a_node("True", Taint(key="x", effect="NoSchedule"))) is None


@pytest.mark.parametrize(
    ("count", "after"),
    [pytest.param(300, 300, id="when its toleration is over"), pytest.param(None, None, id="never, if it has no end")],
)
def test_a_deleted_pod_of_a_lost_node_ends(count: int | None, after: int | None) -> None:
    pod = a_pod(deleted_at=NOW + timedelta(seconds=30), tolerations=(seconds(count),))

    assert over_at(pod, lost_since(0)) == (None if after is None else NOW + timedelta(seconds=after))
    assert over_at(pod, a_node()) is None
    assert evict_at(pod, lost_since(0)) is None


def test_the_taint_of_a_clock_that_was_behind_counts_for_no_more_than_this_one_s() -> None:
    assert over_at(tolerating(seconds(300)), lost_since(1000), lost_at=ago(10)) == NOW + timedelta(seconds=290)


def test_another_taint_says_nothing_of_what_a_lost_node_runs() -> None:
    node = lost_since(100)
    tainted = replace(node, spec=replace(node.spec, taints=(*node.spec.taints, MAINTENANCE)))

    assert said(plan(tainted, [tolerating(seconds(300))], ago(200), GRACE, NOW)) == "nothing"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(lost_since(100), "end pi-0", id="ends its pods, whatever else they tolerate"),
        pytest.param(a_node(), "evict pi-0", id="while the node is heard, is a taint like others"),
    ],
)
def test_the_word_that_a_machine_is_off(node: Node, expected: str) -> None:
    off = Taint(key=OUT_OF_SERVICE, value="nodeshutdown", effect="NoExecute")
    node = replace(node, spec=replace(node.spec, taints=(*node.spec.taints, off)))

    silent = 200 if expected.startswith("end") else 0
    assert said(plan(node, [tolerating(seconds(None))], ago(silent), GRACE, NOW)).startswith(expected)


def test_a_pod_that_does_not_tolerate_a_taint_is_deleted_with_its_grace() -> None:
    bears = tolerating(Toleration(key="maintenance", operator="Exists"))
    others = replace(bears, metadata=replace(bears.metadata, name="bears"))

    result = plan(a_node("True", MAINTENANCE), [tolerating(), others], ago(0), GRACE, NOW)

    assert said(result) == "evict pi-0; TaintManagerEviction"
    pod = result.actions[0].object
    assert [(each.type, each.reason) for each in pod.status.conditions] == [
        ("DisruptionTarget", "DeletionByTaintManager")
    ]
    assert pod.status.phase == a_pod().status.phase


def test_pods_that_have_ended_are_left_alone() -> None:
    ended = [a_pod("Succeeded", name="a"), a_pod("Failed", name="b")]

    assert said(plan(lost_since(100), ended, ago(200), GRACE, NOW)) == "nothing"


def test_only_those_whose_time_has_come_end() -> None:
    soon = replace(tolerating(seconds(120)), metadata=replace(a_pod().metadata, name="soon"))
    due = replace(tolerating(seconds(60)), metadata=replace(a_pod().metadata, name="due"))

    result = plan(lost_since(100), [soon, due], ago(200), GRACE, NOW)

    assert said(result) == "end due"
    assert result.again_at == NOW + timedelta(seconds=20)


def test_an_ended_pod_says_why() -> None:
    result = plan(lost_since(100), [a_pod(ready=True)], ago(200), GRACE, NOW)

    (action,) = result.actions
    assert isinstance(action, Delete)
    pod = action.object
    assert isinstance(pod, Pod)
    assert (pod.status.phase, pod.status.reason) == ("Failed", "NodeLost")
    assert [(each.type, each.status, each.reason) for each in pod.status.conditions] == [
        ("Ready", "False", "PodFailed"),
        ("DisruptionTarget", "True", "DeletionByTaintManager"),
    ]
    assert action.grace_period_seconds == 0
    assert action.old == a_pod(ready=True)
    assert pod.metadata.finalizers == a_pod().metadata.finalizers  # its Job has yet to count it


@pytest.mark.parametrize(
    ("missing", "expected", "again"),
    [
        pytest.param(0, "nothing", 50, id="it may come back"),
        pytest.param(49, "nothing", 1, id="it may still"),
        pytest.param(50, "end pi-0", None, id="it will not"),
    ],
)
def test_pods_of_a_node_that_is_gone(missing: int, expected: str, again: int | None) -> None:
    result = plan_without_node("node-1", [a_pod(), a_pod("Failed", name="x")], ago(missing), NOW)

    assert said(result) == expected
    assert result.again_at == (None if again is None else NOW + timedelta(seconds=again))


def test_without_pods_a_node_that_is_gone_is_forgotten() -> None:
    assert plan_without_node("node-1", [], ago(0), NOW) == Plan()


@given(
    silent=some.integers(0, 100),
    ready=some.sampled_from(["True", "False", "Unknown"]),
    cordoned=some.booleans(),
    others=some.sets(some.sampled_from(["a", "b"])),
)
def test_what_is_planned_is_done_at_once_and_keeps_what_is_not_ours(
    silent: int, ready: str, cordoned: bool, others: set[str]
) -> None:
    theirs = tuple(Taint(key=key, effect="NoSchedule") for key in sorted(others))
    node = a_node(ready, *theirs, unschedulable=cordoned)

    first = plan(node, [], ago(silent), GRACE, NOW)
    after = next((each.object for each in first.actions if isinstance(each, Update)), node)

    assert isinstance(after, Node)
    assert plan(after, [], ago(silent), GRACE, NOW).actions == ()
    assert [each for each in after.spec.taints if each.key in others] == list(theirs)
    assert first.again_at is None or first.again_at > NOW


@pytest.mark.parametrize(
    ("condition", "status", "expected"),
    [
        pytest.param("MemoryPressure", "True", ["memory-pressure"], id="short of memory"),
        pytest.param("DiskPressure", "True", ["disk-pressure"], id="short of disk"),
        pytest.param("PIDPressure", "True", ["pid-pressure"], id="short of process ids"),
        pytest.param("NetworkUnavailable", "True", ["network-unavailable"], id="without its network"),
        pytest.param("MemoryPressure", "False", [], id="with plenty"),
        pytest.param("MemoryPressure", "Unknown", [], id="nobody knows"),
    ],
)
def test_a_node_under_pressure_takes_no_new_pods(condition: str, status: str, expected: list[str]) -> None:
    node = a_node()
    conditions = (*node.status.conditions, NodeCondition(type=condition, status=status))
    found = update_health(replace(node, status=replace(node.status, conditions=conditions)), lost=False, now=NOW)

    assert [(each.key, each.effect) for each in found.spec.taints] == [
        (f"node.kubernetes.io/{each}", "NoSchedule") for each in expected
    ]
    assert update_health(replace(found, status=node.status), lost=False, now=NOW).spec.taints == ()
