"""Placing many pods: spread by load, in order, with the reasons of all nodes; never more than there is."""

from app.kinds.core.node import Taint
from app.scheduler import Settings, pod_info_of
from tests.scheduler.cluster import a_cluster, a_node, a_pod, counts, many, on, placed, why

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
    cluster = a_cluster(nodes, {"n2": [a_pod("old", cpu="1", memory="1Gi")]}, Settings("MostAllocated"))

    assert counts(on(cluster, many(5, cpu="1", memory="1Gi"))) == {"n2": 3, "n1": 2}
