"""Which part of the pods' network each node gets."""

from ipaddress import IPv4Network

import pytest
from msgspec.structs import replace

from app.kinds.core.node import Node, NodeSpec
from app.machinery.base import ObjectMeta
from app.machinery.cidr import parse_cidr
from app.plans.nodes.node_ipam import CLUSTER_CIDR, MOST, plan
from app.plans.plan import Emit, Update

CLUSTER = IPv4Network("10.244.0.0/22")  # four nodes


def a_node(name: str, cidr: str = "") -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=name), spec=NodeSpec(pod_cidr=cidr, pod_cidrs=(cidr,) if cidr else ())
    )


def given(*nodes: Node, cluster: IPv4Network = CLUSTER) -> dict[str, str]:
    """Who gets what."""
    updates = [each for each in plan(nodes, cluster).actions if isinstance(each, Update)]
    assert all(
        isinstance(each.object, Node) and each.object.spec.pod_cidrs == (each.object.spec.pod_cidr,) for each in updates
    )
    return {each.object.metadata.name: each.object.spec.pod_cidr for each in updates if isinstance(each.object, Node)}


def test_each_node_gets_the_first_that_is_free() -> None:
    assert given(a_node("b"), a_node("a", "10.244.1.0/24"), a_node("c")) == {"b": "10.244.0.0/24", "c": "10.244.2.0/24"}


def test_a_node_keeps_what_it_has() -> None:
    assert given(a_node("a", "192.168.7.0/24")) == {}


def test_a_node_is_told_of_the_whole() -> None:
    (action,) = plan([a_node("a")], CLUSTER).actions
    assert isinstance(action, Update)
    assert action.object.metadata.annotations == {CLUSTER_CIDR: "10.244.0.0/22"}


def test_a_node_that_comes_too_late_has_an_event() -> None:
    nodes = [a_node(f"n{number}") for number in range(5)]
    assert list(given(*nodes)) == ["n0", "n1", "n2", "n3"]
    (event,) = [each for each in plan(nodes, CLUSTER).actions if isinstance(each, Emit)]
    assert (event.reason, event.about) == ("CIDRNotAvailable", nodes[4])


def test_a_fleet_is_served_in_parts() -> None:
    nodes = [a_node(f"n{number:03}") for number in range(600)]
    cluster, served = IPv4Network("10.0.0.0/8"), 0
    while found := given(*nodes, cluster=cluster):
        assert len(found) <= MOST
        served += len(found)
        nodes = [
            replace(each, spec=NodeSpec(pod_cidr=found.get(each.metadata.name, each.spec.pod_cidr))) for each in nodes
        ]
    assert (served, len({each.spec.pod_cidr for each in nodes})) == (600, 600)


@pytest.mark.parametrize("text", ["", "10.244.0.1/16", "10.0.0.0/7", "10.0.0.0/25", "fd00::/64", "x"])
def test_what_is_no_network_for_pods_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"10\.244\.0\.0/16|must be of"):
        parse_cidr(text)
