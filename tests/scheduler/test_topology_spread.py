"""Topology spread constraints, required and preferred."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.node import Taint
from app.kinds.pod.affinity import Affinity, NodeAffinity, Toleration, TopologySpreadConstraint
from app.kinds.pod.pod import Pod
from app.scheduler import pod_info_of
from app.scheduler.topology_spread import SPREAD_LABEL_MISSING, SPREAD_MISMATCH
from tests.build import NOW
from tests.scheduler.cluster import (
    HOST,
    a_cluster,
    a_node,
    a_pod,
    a_selector,
    counts,
    even,
    many,
    placed,
    spread,
    where,
    why,
)

A = {"app": "a"}
ZONES = [a_node("n1", {"zone": "a"}), a_node("n2", {"zone": "b"}), a_node("n3", {"zone": "c"})]


def one(*constraints: TopologySpreadConstraint, labels: dict[str, str] = A, **spec: Any) -> Pod:
    return a_pod(labels=labels, spec=spread(*constraints) | spec)


def some(count: int, start: str = "q", **labels: str) -> list[Pod]:
    return many(count, start, labels=A | labels)


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        pytest.param(one(even()), {"n3"}, id="only where there are fewest"),
        pytest.param(one(even(skew=2)), {"n2", "n3"}, id="as far ahead as allowed"),
        pytest.param(one(even(skew=3)), {"n1", "n2", "n3"}, id="further"),
        pytest.param(one(even(), labels={}), {"n2", "n3"}, id="one that does not count itself"),
        pytest.param(one(even(min_domains=4)), {"n3"}, id="fewer places than there must be: an empty one more"),
        pytest.param(one(even(HOST)), {"n3"}, id="by host"),
        pytest.param(one(even("rack")), set(), id="a label that no node has"),
        pytest.param(one(even(label_selector=None)), {"n1", "n2", "n3"}, id="that counts nobody"),
        pytest.param(one(even(), node_selector={"zone": "a"}), {"n1"}, id="nodes that it cannot be on are no places"),
        pytest.param(
            one(even(node_affinity_policy="Ignore"), node_selector={"zone": "a"}), set(), id="unless they are to be"
        ),
    ],
)
def test_where_a_pod_may_go_while_there_are_two_in_a_and_one_in_b(pod: Pod, nodes: set[str]) -> None:
    cluster = a_cluster(ZONES, {"n1": some(2, "q"), "n2": some(1, "r")})

    assert {name for name in cluster.node_infos if not cluster.filter_reasons(pod, pod_info_of(pod), name)} == nodes


def test_node_affinity_limits_the_places() -> None:
    selector = a_selector(("zone", "In", ("a", "b")))
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
    pod = one(even(), affinity=affinity)

    assert where(placed([pod], ZONES, {"n1": some(1)})) == {"p": "n2"}


@pytest.mark.parametrize(
    ("policy", "tolerations", "bound"),
    [
        pytest.param("Ignore", (), 2, id="a tainted node is a place"),
        pytest.param("Honor", (), 4, id="unless taints are to be honoured"),
        pytest.param("Honor", (Toleration(operator="Exists"),), 4, id="and borne"),
    ],
)
def test_taints_may_limit_the_places(policy: str, tolerations: tuple[Toleration, ...], bound: int) -> None:
    tainted = a_node("n3", {"zone": "c"}, {"taints": (Taint(key="k", effect="NoSchedule"),)})
    pods = many(4, labels=A, spec=spread(even(node_taints_policy=policy)) | {"tolerations": tolerations})

    assert len(placed(pods, [*ZONES[:2], tainted]).bound) == bound


def test_all_are_spread_evenly() -> None:
    outcome = placed(many(8, labels=A, spec=spread(even())), ZONES)

    assert sorted(counts(outcome).values()) == [2, 3, 3]


def test_a_full_place_holds_up_the_others() -> None:
    nodes = [a_node("n1", {"zone": "a"}), a_node("n2", {"zone": "b"}, pods="1")]

    outcome = placed(many(5, labels=A, spec=spread(even())), nodes)

    assert counts(outcome) == {"n1": 2, "n2": 1}
    assert why(outcome) == [f"0/2 nodes are available: 1 Too many pods, 1 {SPREAD_MISMATCH}."] * 2


def test_a_node_without_the_label_is_told_apart() -> None:
    nodes = [a_node("n1", {"zone": "a"}, pods="0"), a_node("n2")]

    (text,) = why(placed([one(even())], nodes))

    assert text == f"0/2 nodes are available: 1 Too many pods, 1 {SPREAD_LABEL_MISSING}."


def test_pods_of_another_run_do_not_count() -> None:
    constraint = even(match_label_keys=("run",))
    pods = many(3, labels=A | {"run": "2"}, spec=spread(constraint))

    assert counts(placed(pods, ZONES, {"n1": some(4, run="1")})) == {"n1": 1, "n2": 1, "n3": 1}


def test_those_that_are_being_deleted_do_not_count() -> None:
    leaving = [replace(each, metadata=replace(each.metadata, deletion_timestamp=NOW)) for each in some(3)]

    assert len(placed(many(3, labels=A, spec=spread(even())), ZONES, {"n1": leaving}).bound) == 3


def test_nor_once_their_deletion_has_begun() -> None:
    cluster = a_cluster(ZONES, {"n1": some(1)})
    pod = one(even())
    assert cluster.filter_reasons(pod, pod_info_of(pod), "n1") == (SPREAD_MISMATCH,)

    there = cluster.pods["uid-of-default-q0"]
    meta = replace(there.pod.metadata, deletion_timestamp=NOW)
    cluster.place(replace(there.pod, metadata=meta), "n1", there.info)

    assert cluster.filter_reasons(pod, pod_info_of(pod), "n1") == ()


def test_as_a_wish_it_spreads_as_well_but_keeps_nobody_out() -> None:
    nodes = [a_node("n1", {"zone": "a"}), a_node("n2", {"zone": "b"}, pods="1"), a_node("n3")]

    assert counts(placed(many(4, labels=A, spec=spread(even(hard=False))), nodes)) == {"n1": 3, "n2": 1}


def test_a_place_that_comes_is_counted() -> None:
    cluster = a_cluster(ZONES[:2], {"n1": some(1, "q"), "n2": some(1, "r")})
    pod = one(even())
    assert cluster.filter_reasons(pod, pod_info_of(pod), "n1") == ()

    cluster.set_node(ZONES[2])

    assert cluster.filter_reasons(pod, pod_info_of(pod), "n1") == (SPREAD_MISMATCH,)
    cluster.remove_node("n3")
    assert cluster.filter_reasons(pod, pod_info_of(pod), "n1") == ()
