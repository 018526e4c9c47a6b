"""Packing: all pods of a group on nodes with the same value of a label, the fullest place that has room for them."""

import pytest

from app.scheduler.gangs import Attempt
from tests.scheduler.cluster import a_node
from tests.scheduler.gangs import a_group, members, on_a_node, tried

RACKS = [
    *(a_node(f"a{number}", {"rack": "a"}) for number in range(3)),
    *(a_node(f"b{number}", {"rack": "b"}) for number in range(2)),
    a_node("c0", {"rack": "c"}),
    a_node("loose"),
]


def racks(attempt: Attempt) -> set[str]:
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

    assert attempt.why == (
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

    assert attempt.why == "no node has the label zone, which all pods of the group must have in common"
