"""Placing pods: by what fits, spread by load, with Kubernetes' words for what does not; never more than there is."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)
from app.kinds.base import ObjectMeta
from app.kinds.container import Container, ResourceRequirements
from app.kinds.node import Node, NodeSpec, NodeStatus, Taint
from app.kinds.pod import Pod, PodSpec
from app.plans.schedule import Outcome, room, schedule, take, tolerates, why_not, wish

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


def a_node(
    name: str = "n1", labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **has: str
) -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"} | has
    meta = ObjectMeta(name=name, labels=labels or {})
    return Node(metadata=meta, spec=NodeSpec(**(spec or {})), status=NodeStatus(allocatable=allocatable))


def a_pod(name: str = "p", spec: dict[str, Any] | None = None, **needs: str) -> Pod:
    main = Container(name="main", resources=ResourceRequirements(requests=needs))
    return Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=PodSpec(containers=(main,), **(spec or {})))


def placed(pods: list[Pod], nodes: list[Node], there: dict[str, list[Pod]] | None = None) -> Outcome:
    rooms = {each.metadata.name: room(each) for each in nodes}
    for node, running in (there or {}).items():
        for pod in running:
            take(rooms, node, wish(pod).needs)
    return schedule([(pod, wish(pod)) for pod in pods], rooms)


def counts(outcome: Outcome) -> Counter[str]:
    return Counter(node for _, node in outcome.bound)


def why(outcome: Outcome) -> list[str]:
    return [text for _, text in outcome.unbound]


def many(count: int, **needs: str) -> list[Pod]:
    return [a_pod(f"p{number}", **needs) for number in range(count)]


@pytest.mark.parametrize(
    ("pod", "node", "expected"),
    [
        pytest.param(a_pod(), a_node(), "", id="asks for nothing"),
        pytest.param(a_pod(cpu="4"), a_node(), "", id="asks for all there is"),
        pytest.param(a_pod(cpu="4001m"), a_node(), "1 Insufficient cpu", id="too much cpu"),
        pytest.param(a_pod(memory="9Gi"), a_node(), "1 Insufficient memory", id="too much memory"),
        pytest.param(a_pod(gpu="1"), a_node(), "1 Insufficient gpu", id="a resource that the node has not"),
        pytest.param(a_pod(gpu="1"), a_node(gpu="1"), "", id="a resource that it has"),
        pytest.param(a_pod(gpu="0"), a_node(), "", id="none of a resource that it has not"),
        pytest.param(a_pod(), a_node(pods="0"), "1 Too many pods", id="no place for a pod"),
        pytest.param(
            a_pod(cpu="9", memory="9Gi"), a_node(), "1 Insufficient cpu, 1 Insufficient memory", id="both too much"
        ),
        pytest.param(a_pod(), a_node(spec={"unschedulable": True}), "1 node(s) were unschedulable", id="cordoned"),
        pytest.param(
            a_pod(), a_node(spec={"taints": (GPU,)}), "1 node(s) had untolerated taint {gpu: yes}", id="tainted"
        ),
        pytest.param(
            a_pod(),
            a_node(spec={"taints": (replace(GPU, effect="PreferNoSchedule"),)}),
            "",
            id="tainted with a mere preference",
        ),
        pytest.param(
            a_pod(spec={"tolerations": (Toleration(key="gpu", value="yes"),)}),
            a_node(spec={"taints": (GPU,)}),
            "",
            id="tainted and tolerated",
        ),
        pytest.param(
            a_pod(spec={"node_selector": {"disk": "ssd"}}),
            a_node(labels={"disk": "hdd"}),
            "1 node(s) didn't match Pod's node affinity/selector",
            id="another label",
        ),
        pytest.param(
            a_pod(spec={"node_selector": {"disk": "ssd"}}), a_node(labels={"disk": "ssd"}), "", id="the label it wants"
        ),
    ],
)
def test_one_pod_and_one_node(pod: Pod, node: Node, expected: str) -> None:
    outcome = placed([pod], [node])

    assert why(outcome) == ([f"0/1 nodes are available: {expected}."] if expected else [])
    assert len(outcome.bound) == (0 if expected else 1)


def wanting(*demands: tuple[str, str, tuple[str, ...]], field: bool = False) -> Pod:
    needs = tuple(NodeSelectorRequirement(key=key, operator=op, values=values) for key, op, values in demands)
    term = NodeSelectorTerm(match_fields=needs) if field else NodeSelectorTerm(match_expressions=needs)
    selector = NodeSelector(node_selector_terms=(term,))
    affinity = NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    return a_pod(spec={"affinity": Affinity(node_affinity=affinity)})


@pytest.mark.parametrize(
    ("pod", "fits"),
    [
        pytest.param(wanting(("zone", "In", ("a", "b"))), True, id="in"),
        pytest.param(wanting(("zone", "In", ("c",))), False, id="not among"),
        pytest.param(wanting(("zone", "NotIn", ("c",))), True, id="not in"),
        pytest.param(wanting(("absent", "NotIn", ("c",))), True, id="not in, for want of the label"),
        pytest.param(wanting(("zone", "Exists", ())), True, id="exists"),
        pytest.param(wanting(("zone", "DoesNotExist", ())), False, id="does not exist"),
        pytest.param(wanting(("cores", "Gt", ("7",))), True, id="greater"),
        pytest.param(wanting(("cores", "Gt", ("8",))), False, id="not greater"),
        pytest.param(wanting(("cores", "Lt", ("9",))), True, id="less"),
        pytest.param(wanting(("zone", "Gt", ("1",))), False, id="no number"),
        pytest.param(wanting(("zone", "In", ("a",)), ("cores", "Gt", ("9",))), False, id="only one of two"),
        pytest.param(wanting(("metadata.name", "In", ("n1",)), field=True), True, id="the node itself"),
        pytest.param(wanting(("metadata.name", "In", ("n2",)), field=True), False, id="another node"),
        pytest.param(wanting(), False, id="an empty term, which selects nothing"),
    ],
)
def test_node_affinity(pod: Pod, fits: bool) -> None:
    node = a_node(labels={"zone": "a", "cores": "8"})

    assert why_not(pod, node) == ("" if fits else "node(s) didn't match Pod's node affinity/selector")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param(Toleration(key="gpu", value="yes", effect="NoSchedule"), True, id="all equal"),
        pytest.param(Toleration(key="gpu", operator="Equal", value="yes"), True, id="any effect"),
        pytest.param(Toleration(key="gpu", operator="Exists"), True, id="any value"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration(key="gpu", value="no"), False, id="another value"),
        pytest.param(Toleration(key="tpu", operator="Exists"), False, id="another key"),
        pytest.param(Toleration(key="gpu", operator="Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration(), False, id="nothing at all"),
    ],
)
def test_tolerations(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, GPU) is tolerated


def test_pods_are_spread_by_load() -> None:
    nodes = [a_node("n1"), a_node("n2"), a_node("n3", cpu="8")]

    assert counts(placed(many(8, cpu="1"), nodes)) == {"n1": 2, "n2": 2, "n3": 4}


def test_what_runs_already_counts() -> None:
    there = {"n1": [a_pod(f"old{number}", cpu="1") for number in range(3)]}

    outcome = placed(many(6, cpu="1"), [a_node("n1"), a_node("n2")], there)

    assert counts(outcome) == {"n1": 1, "n2": 4}
    assert why(outcome) == ["0/2 nodes are available: 2 Insufficient cpu."]


def test_those_that_come_first_are_served_first() -> None:
    outcome = placed(many(6, cpu="1"), [a_node()])

    assert [pod.metadata.name for pod, _ in outcome.bound] == ["p0", "p1", "p2", "p3"]
    assert [pod.metadata.name for pod, _ in outcome.unbound] == ["p4", "p5"]


def test_a_large_pod_does_not_keep_a_small_one_out() -> None:
    outcome = placed([a_pod("large", cpu="50"), a_pod("small", cpu="1")], [a_node()])

    assert [pod.metadata.name for pod, _ in outcome.bound] == ["small"]


def test_the_reasons_of_all_nodes_are_counted() -> None:
    nodes = [
        a_node("n1", cpu="1"),
        a_node("n2", cpu="1"),
        a_node("n3", spec={"unschedulable": True}),
        a_node("n4", spec={"taints": (GPU,)}),
    ]

    (text,) = why(placed([a_pod(cpu="2")], nodes))

    start, parts = text.removesuffix(".").split(": ", 1)
    assert start == "0/4 nodes are available"
    assert sorted(parts.split(", ")) == [
        "1 node(s) had untolerated taint {gpu: yes}",
        "1 node(s) were unschedulable",
        "2 Insufficient cpu",
    ]


def test_without_nodes() -> None:
    assert why(placed([a_pod()], [])) == ["no nodes available to schedule pods"]


def test_room_given_back_is_room() -> None:
    rooms = {"n1": room(a_node(cpu="1"))}
    needs = wish(a_pod(cpu="1")).needs
    take(rooms, "n1", needs)
    assert schedule([(a_pod("q", cpu="1"), wish(a_pod(cpu="1")))], rooms).bound == []

    take(rooms, "n1", needs, sign=-1)

    assert len(schedule([(a_pod("q", cpu="1"), wish(a_pod(cpu="1")))], rooms).bound) == 1


def test_pods_that_ask_for_the_same_are_of_one_class() -> None:
    assert wish(a_pod("a", cpu="1")).key == wish(a_pod("b", cpu="1")).key
    assert wish(a_pod("a", cpu="1")).key != wish(a_pod("a", cpu="2")).key
    assert wish(a_pod()).key != wish(a_pod(spec={"node_selector": {"a": "b"}})).key


_NEEDS = some.fixed_dictionaries(
    {}, optional={"cpu": some.integers(0, 5000).map(lambda n: f"{n}m"), "memory": some.integers(0, 4000).map(str)}
)
_NODE = some.fixed_dictionaries(
    {"cpu": some.integers(0, 8000).map(lambda n: f"{n}m"), "memory": some.integers(0, 8000).map(str)},
    optional={"pods": some.integers(0, 5).map(str)},
)


@given(
    needs=some.lists(_NEEDS, max_size=12),
    nodes=some.lists(_NODE, max_size=4),
    cordoned=some.sets(some.integers(0, 3)),
)
def test_never_more_than_there_is_and_never_less_than_fits(
    needs: list[dict[str, str]], nodes: list[dict[str, str]], cordoned: set[int]
) -> None:
    machines = [
        a_node(f"n{number}", spec={"unschedulable": number in cordoned}, **each) for number, each in enumerate(nodes)
    ]
    pods = [a_pod(f"p{number}", **each) for number, each in enumerate(needs)]
    rooms = {each.metadata.name: room(each) for each in machines}

    outcome = schedule([(pod, wish(pod)) for pod in pods], rooms)

    assert len(outcome.bound) + len(outcome.unbound) == len(pods)
    for number, node in enumerate(machines):
        here = [pod for pod, name in outcome.bound if name == node.metadata.name]
        left = dict(room(node).free)
        for pod in here:
            for resource, amount in wish(pod).needs.items():
                left[resource] = left.get(resource, 0) - amount
        assert not here or number not in cordoned
        assert all(amount >= 0 for amount in left.values())
        assert len(here) <= left["pods"]
        for pod, text in outcome.unbound:  # nobody is turned away from where there is room
            short = [name for name, amount in wish(pod).needs.items() if amount > left.get(name, 0)]
            assert number in cordoned or short or len(here) == left["pods"]
            assert text.startswith(f"0/{len(machines)} nodes are available: ")
