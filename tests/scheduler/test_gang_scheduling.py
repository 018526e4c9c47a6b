"""Gang scheduling: enough pods of a gang fit at the same time, or none is placed and nothing is held."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from app.kinds.core.node import Node
from app.kinds.scheduling.podgroup import PodGroup
from app.scheduler import PodInfos
from app.scheduler.gang_scheduling import GangAttempt, GangScheduler, PodGroups
from tests.scheduler.cluster import a_cluster, a_node, a_pod
from tests.scheduler.gangs import a_group, members, on_a_node, the_group, tried

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def said(attempt: GangAttempt) -> str:
    return f"{len(attempt.bound)} bound; {attempt.message}" if attempt.message else f"{len(attempt.bound)} bound"


ONE_SHORT = "0 bound; 4/5 pods of the group can be placed: 0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(
    ("group", "count", "sentence"),
    [
        pytest.param(a_group(least=4), 4, "4 bound", id="all fit, and all are bound"),
        pytest.param(a_group(least=5), 5, ONE_SHORT, id="one does not fit, and none is bound"),
        pytest.param(a_group(least=4), 6, "4 bound", id="more than must fit are bound as far as they fit"),
        pytest.param(
            a_group(least=4),
            3,
            "0 bound; waiting for minCount pods from a gang to appear in scheduling queue: "
            "3/4 pods of the group are there",
            id="not all pods are there yet",
        ),
        pytest.param(
            None,
            2,
            '0 bound; waiting for pod\'s pod group "g" to appear in scheduling queue',
            id="there is no such group",
        ),
    ],
)
def test_a_group_on_a_node_with_four_places(group: PodGroup | None, count: int, sentence: str) -> None:
    attempt, there = tried(group, members(count), [a_node()])

    assert said(attempt) == sentence
    assert there == len(attempt.bound)


def test_without_nodes() -> None:
    attempt, _ = tried(a_group(least=2), members(2), [])

    assert attempt.message == "0/2 pods of the group can be placed: no nodes available to schedule pods"


@pytest.mark.parametrize(
    ("group", "placed", "waiting", "whole", "needed"),
    [
        pytest.param(a_group(least=4), [], members(4), True, 4, id="all must find places at first"),
        pytest.param(
            a_group(least=4, scheduled="True"),
            [on_a_node(pod) for pod in members(3)],
            members(1, start=3),
            False,
            0,
            id="what was lost is replaced pod by pod",
        ),
        pytest.param(a_group(least=4, scheduled="True"), [], members(4), True, 4, id="resumed, it begins anew"),
        pytest.param(
            a_group(least=4, scheduled="True"),
            [on_a_node(pod, deletion_timestamp=NOW) for pod in members(4)],
            members(4, start=4),
            True,
            4,
            id="resumed while the old ones still end, too",
        ),
        pytest.param(
            a_group(least=4, scheduled="True"),
            [on_a_node(pod, phase="Succeeded") for pod in members(3)],
            members(1, start=3),
            True,
            1,
            id="what has succeeded needs no place again",
        ),
        pytest.param(
            a_group(least=4, scheduled="True"),
            [on_a_node(pod, phase="Failed", uid=f"old-{pod.metadata.uid}") for pod in members(4)],
            members(3),
            True,
            3,
            id="an index that failed and is not tried again does not keep the others",
        ),
        pytest.param(
            a_group(least=4),
            [on_a_node(pod) for pod in members(1)],
            members(3, start=1),
            True,
            3,
            id="who somebody else has placed counts",
        ),
        pytest.param(a_group(), [], members(2), False, 0, id="basic is pod by pod"),
    ],
)
def test_how_many_must_find_a_place(group: PodGroup, placed: list, waiting: list, whole: bool, needed: int) -> None:
    found = the_group(group, waiting, placed)

    assert (found.schedules_together, found.needed_count) == (whole, needed)


def place(groups: dict[str, tuple[int, int]], nodes: list[Node]) -> dict[str, int]:
    """In one round, in this order: of each group (count, least), how many are bound."""
    all_groups, infos, pending = PodGroups(), PodInfos(), []
    for name, (count, least) in groups.items():
        all_groups.set(("default", name), a_group(name, least))
        for pod in members(count, name):
            pending.append((pod, infos.get(pod)))
            all_groups.update_pod(None, pod, pending[-1])
    cluster = a_cluster(nodes)
    outcome = GangScheduler(all_groups)(pending, cluster)
    assert len(cluster.pods) == len(outcome.bound)
    assert len(outcome.bound) + len(outcome.unbound) == len(pending)
    assert all(min(node_info.free.values()) >= 0 for node_info in cluster.node_infos.values())
    of = [pod.spec.scheduling_group.pod_group_name for pod, _ in outcome.bound if pod.spec.scheduling_group]
    return {name: of.count(name) for name in groups}


def test_of_two_gangs_that_each_half_fit_one_gets_all() -> None:
    assert place({"a": (3, 3), "b": (3, 3)}, [a_node()]) == {"a": 3, "b": 0}


def test_a_gang_that_does_not_fit_keeps_nobody_out() -> None:
    assert place({"large": (9, 9), "small": (4, 4)}, [a_node()]) == {"large": 0, "small": 4}


def test_pods_without_a_group_are_placed_in_their_order_between_groups() -> None:
    groups, infos = PodGroups(), PodInfos()
    groups.set(("default", "g"), a_group(least=3))
    gang, loners = members(3), [a_pod(f"p{number}", cpu="1") for number in range(3)]
    for pod in gang:
        groups.update_pod(None, pod, (pod, infos.get(pod)))
    harness = [(pod, infos.get(pod)) for pod in (*loners[:1], *gang, *loners[1:])]

    outcome = GangScheduler(groups)(harness, a_cluster([a_node()]))

    assert [pod.metadata.name for pod, _ in outcome.bound] == ["p0", "g-000", "g-001", "g-002"]


@settings(max_examples=60)
@given(
    sizes=some.lists(some.tuples(some.integers(1, 6), some.integers(1, 6)), min_size=1, max_size=4),
    cpus=some.lists(some.integers(1, 5), min_size=1, max_size=4),
)
def test_no_gang_is_bound_in_part_and_the_first_that_fits_is_bound(
    sizes: list[tuple[int, int]], cpus: list[int]
) -> None:
    groups = {f"g{number}": size for number, size in enumerate(sizes)}
    free = sum(cpus)

    found = place(groups, [a_node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(cpus)])

    for name, (count, least) in groups.items():
        fits = least <= count and least <= free
        assert found[name] == (min(count, free) if fits else 0)
        free -= found[name]


def test_without_the_feature_gate_nobody_is_in_a_group() -> None:
    groups, (pod,) = PodGroups(is_enabled=False), members(1)
    groups.set(("default", "g"), a_group(least=2))
    groups.update_pod(None, pod, (pod, PodInfos().get(pod)))

    assert groups.gang_of(pod) is groups.group_of(pod) is None
