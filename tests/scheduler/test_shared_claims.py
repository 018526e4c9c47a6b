"""A gang whose pods share a claim of one node: all on the node that takes all of them, or none anywhere."""

import dataclasses
from collections.abc import Sequence

import pytest

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.plans.volumes.pod_volumes import ON_ANOTHER_NODE, PodVolumes, UnboundClaim
from app.scheduler import Cluster, PodInfos
from app.scheduler.gang_scheduling import GangAttempt, PodGroups, schedule_gang
from app.scheduler.placement import Pending
from app.scheduler.shared_claims import find_sharers
from tests.plans.volumes.storage import HAND_MADE, LOCAL, SHARED, a_claim, a_volume
from tests.scheduler.cluster import a_cluster, a_node, a_pod
from tests.scheduler.gangs import a_group, members

ON_DISK = UnboundClaim(a_claim(), (), LOCAL)
MANY = ("ReadWriteMany",)


def a_gang(volumes: Sequence[PodVolumes | None], nodes: Sequence[Node], least: int, **group: str) -> GangAttempt:
    return try_gang(members(len(volumes)), volumes, a_cluster(nodes), least, **group)


def try_gang(
    pods: Sequence[Pod], volumes: Sequence[PodVolumes | None], cluster: Cluster, least: int, **group: str
) -> GangAttempt:
    groups = PodGroups()
    groups.set(("default", "g"), a_group(least=least, **group))
    for pending in with_volumes(pods, volumes):
        groups.update_pod(None, pending[0], pending)
    return schedule_gang(groups._groups["default", "g"], cluster)


def with_volumes(pods: Sequence[Pod], volumes: Sequence[PodVolumes | None]) -> list[Pending]:
    """Keys as different as the volumes, as `pod_volumes.resolve` makes them."""
    infos = PodInfos()
    keyed = [each and dataclasses.replace(each, key=repr(each).encode()) for each in volumes]
    return [(pod, infos.get(pod, each)) for pod, each in zip(pods, keyed, strict=True)]


def nodes_of(attempt: GangAttempt) -> list[str]:
    return [node for _, node in sorted(attempt.bound, key=lambda pair: pair[0].metadata.name)]


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param(PodVolumes(unbound=(ON_DISK,)), id="a claim that will be on a node's disk"),
        pytest.param(PodVolumes(unbound=(UnboundClaim(a_claim(modes=MANY), (), LOCAL),)), id="of many, on a disk"),
        pytest.param(PodVolumes(unbound=(UnboundClaim(a_claim(), (), SHARED),)), id="ReadWriteOnce, not bound yet"),
        pytest.param(PodVolumes(single_node=("uid-of-data",)), id="ReadWriteOnce, bound, and used by no pod"),
        pytest.param(
            PodVolumes(unbound=(UnboundClaim(a_claim(), (a_volume(node="big"),), HAND_MADE),)), id="disks made by hand"
        ),
    ],
)
def test_all_are_on_the_node_that_takes_all(volumes: PodVolumes) -> None:
    nodes = [a_node("a", cpu="2"), a_node("big", cpu="4"), a_node("c", cpu="2")]

    assert nodes_of(a_gang([volumes] * 4, nodes, 4)) == ["big"] * 4


def test_of_nodes_that_take_all_the_fullest_has_them() -> None:
    nodes = [a_node("a", cpu="8"), a_node("b", cpu="3"), a_node("c", cpu="4")]

    assert nodes_of(a_gang([PodVolumes(unbound=(ON_DISK,))] * 3, nodes, 3)) == ["b"] * 3


def test_without_such_a_node_none_is_placed_and_the_reason_is_told() -> None:
    cluster = a_cluster([a_node("a", cpu="2"), a_node("b", cpu="2")])
    attempt = try_gang(members(3), [PodVolumes(unbound=(ON_DISK,))] * 3, cluster, 3)

    assert not attempt.bound
    assert not cluster.pods
    assert attempt.message == (
        f"2/3 pods of the group can be placed: 0/2 nodes are available: 1 Insufficient cpu, 1 {ON_ANOTHER_NODE}."
    )


def test_more_than_the_least_are_placed_as_far_as_that_node_takes_them() -> None:
    attempt = a_gang([PodVolumes(unbound=(ON_DISK,))] * 4, [a_node("a", cpu="2"), a_node("b", cpu="3")], 2)

    assert nodes_of(attempt) == ["b"] * 3
    assert len(attempt.unbound) == 1


def test_others_of_the_gang_go_where_they_fit() -> None:
    volumes = [PodVolumes(unbound=(ON_DISK,))] * 2 + [None, None]

    assert sorted(nodes_of(a_gang(volumes, [a_node("a", cpu="2"), a_node("b", cpu="2")], 4))) == ["a", "a", "b", "b"]


def test_within_a_topology_domain() -> None:
    nodes = [
        a_node(name, {"zone": zone}, cpu=cpu) for name, zone, cpu in (("a", "x", "1"), ("b", "x", "2"), ("c", "y", "2"))
    ]
    attempt = a_gang([PodVolumes(unbound=(ON_DISK,))] * 2, nodes, 2, topology="zone")

    assert len({*nodes_of(attempt)}) == 1
    assert len(attempt.bound) == 2


def test_what_is_shared_by_way_of_others_belongs_together() -> None:
    left, right = (UnboundClaim(a_claim(name), (), LOCAL) for name in ("left", "right"))
    volumes = [PodVolumes(unbound=each) for each in ((left,), (right,), (left, right))]

    assert [len(each) for each in find_sharers(with_volumes([a_pod(str(n)) for n in range(3)], volumes))] == [3]


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param(PodVolumes(unbound=(UnboundClaim(a_claim(modes=MANY), (), SHARED),)), id="many nodes reach it"),
        pytest.param(PodVolumes(unbound=(UnboundClaim(a_claim(), (a_volume(),), HAND_MADE),)), id="what is no disk"),
        pytest.param(None, id="no claim"),
    ],
)
def test_what_keeps_nobody_on_a_node(volumes: PodVolumes | None) -> None:
    assert find_sharers(with_volumes([a_pod(str(n)) for n in range(2)], [volumes] * 2)) == []
