"""Placement: pods spread over nodes, in order, with the reasons of all nodes; gangs in one topology domain."""

import pytest

from app.kinds.core.node import Taint
from app.scheduler import ScoringSettings, pod_info_of
from app.scheduler.gang_scheduling import GangAttempt
from tests.scheduler.cluster import a_cluster, a_node, a_pod, counts, many, on, placed, why
from tests.scheduler.gangs import a_group, members, on_a_node, tried

GPU = Taint(key="gpu", value="yes", effect="NoSchedule")


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


def test_pods_that_ask_for_the_same_are_of_one_class() -> None:
    assert pod_info_of(a_pod("a", cpu="1")).key == pod_info_of(a_pod("b", cpu="1")).key
    assert pod_info_of(a_pod("a", cpu="1")).key != pod_info_of(a_pod("a", cpu="2")).key
    assert pod_info_of(a_pod()).key != pod_info_of(a_pod(spec={"node_selector": {"a": "b"}})).key


def test_a_round_takes_its_room() -> None:
    cluster = a_cluster([a_node(cpu="1")])
    assert len(on(cluster, [a_pod("p", cpu="1")]).bound) == 1

    assert on(cluster, [a_pod("q", cpu="1")]).bound == []

    cluster.unplace("uid-of-default-p")
    assert len(on(cluster, [a_pod("q", cpu="1")]).bound) == 1


def test_the_fullest_first_leaves_others_empty() -> None:
    nodes = [a_node("n1"), a_node("n2"), a_node("n3")]
    cluster = a_cluster(nodes, {"n2": [a_pod("old", cpu="1", memory="1Gi")]}, ScoringSettings("MostAllocated"))

    assert counts(on(cluster, many(5, cpu="1", memory="1Gi"))) == {"n2": 3, "n1": 2}


RACKS = [
    *(a_node(f"a{number}", {"rack": "a"}) for number in range(3)),
    *(a_node(f"b{number}", {"rack": "b"}) for number in range(2)),
    a_node("c0", {"rack": "c"}),
    a_node("loose"),
]


def racks(attempt: GangAttempt) -> set[str]:
    return {node[0] for _, node in attempt.bound}


@pytest.mark.parametrize(
    ("count", "rack"),
    [
        pytest.param(3, "c", id="the smallest that is large enough"),
        pytest.param(5, "b", id="a larger one for more"),
        pytest.param(12, "a", id="the largest, if it must be"),
    ],
)
def test_a_gang_goes_to(count: int, rack: str) -> None:
    attempt, _ = tried(a_group(least=count, topology="rack"), members(count), RACKS)

    assert len(attempt.bound) == count
    assert racks(attempt) == {rack}
    assert all(not pod.spec.node_selector for pod, _ in attempt.bound)


def test_one_that_fits_no_rack_waits_though_the_cluster_has_room() -> None:
    attempt, there = tried(a_group(least=13, topology="rack"), members(13), RACKS)

    assert attempt.message == (
        "12/13 pods of the group can be placed on nodes with the same rack: "
        "0/7 nodes are available: 3 Insufficient cpu, 4 node(s) didn't match Pod's node affinity/selector."
    )
    assert there == 0


def test_what_uses_a_rack_already_counts() -> None:
    there = [on_a_node(pod, "c0") for pod in members(2, "other")]

    attempt, _ = tried(a_group(least=3, topology="rack"), members(3), RACKS, there)

    assert racks(attempt) == {"b"}


def test_replacements_go_where_the_others_are() -> None:
    there = [on_a_node(pod, "a0") for pod in members(3)]

    attempt, _ = tried(a_group(least=4, topology="rack", scheduled="True"), members(1, start=3), RACKS, there)

    assert racks(attempt) == {"a"}


def test_pod_by_pod_they_still_go_to_one_place() -> None:
    attempt, _ = tried(a_group(topology="rack"), members(6), RACKS)

    assert racks(attempt) == {"b"}


def test_a_rack_whose_room_is_of_no_use_is_passed_over() -> None:
    """There is enough of it, but in pieces that are too small."""
    nodes = [
        *(a_node(f"a{number}", {"rack": "a"}, cpu="3") for number in range(2)),
        a_node("b0", {"rack": "b"}, cpu="8"),
    ]

    attempt, _ = tried(a_group(least=4, topology="rack"), [*members(2, cpu="2"), *members(2, start=2)], nodes)

    assert len(attempt.bound) == 4


def test_without_the_label_on_any_node() -> None:
    attempt, _ = tried(a_group(least=1, topology="zone"), members(1), RACKS)

    assert attempt.message == "no node has the label zone, which all pods of the group must have in common"
