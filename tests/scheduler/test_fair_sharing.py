"""Fair sharing and quotas: the order of namespaces, pending requests and their positions, reclaim."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import PodSchedulingGroup
from app.scheduler.fair_sharing import ordinal
from tests.scheduler.cluster import a_node
from tests.scheduler.gangs import a_group
from tests.scheduler.queues import SimulatedScheduler, a_queue
from tests.scheduler.test_preemption import a_budget

# Order


def test_without_queues_age_alone_decides() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="3")])
    scheduler.add_pods("a", 3, "a")
    scheduler.add_pods("b", 3, "b")

    assert scheduler.run_round() == ["a0", "a1", "a2"]


def test_who_has_the_least_comes_first() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="4")], a=a_queue())
    scheduler.add_pods("a", 4, "a")
    scheduler.add_pods("b", 4, "b")

    assert scheduler.run_round() == ["a0", "b0", "a1", "b1"]


def test_twice_the_weight_is_twice_the_share() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="6")], a=a_queue(weight=2))
    scheduler.add_pods("b", 6, "b")
    scheduler.add_pods("a", 6, "a")
    scheduler.run_round()

    assert scheduler.running() == {"a": 4, "b": 2}


def test_the_share_is_of_what_is_scarcest() -> None:
    """A pod of b takes a quarter of the memory, one of a only a sixth of the CPUs."""
    scheduler = SimulatedScheduler([a_node(cpu="6", memory="8Gi")], a=a_queue())
    scheduler.add_pods("a", 6, "a", cpu="1")
    scheduler.add_pods("b", 6, "b", cpu="1", memory="2Gi")
    scheduler.run_round()

    assert scheduler.running() == {"a": 4, "b": 2}


def test_what_runs_already_counts() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="4")], a=a_queue())
    scheduler.add_pods("a", 2, "a")
    scheduler.run_round()
    scheduler.add_pods("a", 4, "later")
    scheduler.add_pods("b", 4, "b")

    assert scheduler.run_round() == ["b0", "b1"]


def test_priority_comes_before_the_share() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="3")], a=a_queue())
    scheduler.add_pods("a", 3, "a", spec={"priority": 1})
    scheduler.add_pods("b", 3, "b")

    assert scheduler.run_round() == ["a0", "a1", "a2"]


def test_in_a_namespace_priority_decides_and_then_age() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="3")], a=a_queue())
    scheduler.add_pods("a", 3, "old")
    scheduler.add_pod("a", "great", {"priority": 1})

    assert scheduler.run_round() == ["great", "old0", "old1"]


# Quota


def test_no_more_runs_than_the_quota_allows() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}))
    scheduler.add_pods("a", 5)

    assert scheduler.run_round() == ["p0", "p1"]
    assert scheduler.run_round() == []


def test_who_ends_makes_room_for_the_next_in_line() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}))
    scheduler.add_pods("a", 5)
    scheduler.run_round()
    scheduler.end_pods("a", "p1")

    assert scheduler.run_round() == ["p2"]


@pytest.mark.parametrize(
    ("quota", "needs", "runs"),
    [
        pytest.param({"memory": "4Gi"}, {"memory": "1Gi"}, 4, id="memory is limited by its sum"),
        pytest.param({"pods": "3"}, {"cpu": "1"}, 3, id="pods are limited by their number"),
        pytest.param({"cpu": "1500m"}, {"cpu": "500m"}, 3, id="parts of a CPU count"),
        pytest.param({"cpu": "0"}, {"memory": "1Gi"}, 5, id="who asks for none of it may run"),
        pytest.param({"cpu": "0"}, {"cpu": "1"}, 0, id="no quota is none at all"),
        pytest.param({}, {"cpu": "1"}, 5, id="what is not named is not limited"),
    ],
)
def test_a_quota_limits_what_it_names(quota: dict[str, str], needs: dict[str, str], runs: int) -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota=quota))
    scheduler.add_pods("a", 5, **needs)

    assert len(scheduler.run_round()) == runs


def test_those_over_quota_hear_the_queue_the_resource_and_their_place() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}))
    pods = scheduler.add_pods("a", 5)
    scheduler.run_round()

    assert (
        scheduler.message_of(pods[3])
        == "queue default: over its quota of cpu (2 of 2 used); pod p3 is 2nd of 3 in line. "
        "Fits if 1 more of cpu becomes free in queue default when those before it have started."
    )


def test_a_pod_that_its_quota_can_never_hold_is_told_so_and_stops_nobody() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}))
    scheduler.add_pod("a", "giant", cpu="3")
    scheduler.add_pod("a", "next")

    assert scheduler.run_round() == ["next"]
    assert scheduler.why["giant"] == "queue default: asks for 3 of cpu, of which it may never have more than 2"


def test_nobody_overtakes_in_line() -> None:
    """Though it would fit."""
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "3"}))
    scheduler.add_pods("a", 2)
    scheduler.run_round()
    scheduler.add_pod("a", "large", cpu="2")
    scheduler.run_round()
    scheduler.add_pod("a", "small")

    assert scheduler.run_round() == []
    assert scheduler.pending_owners("a") == ["pod large", "pod small"]
    scheduler.end_pods("a", "p0")
    assert scheduler.run_round() == ["large"]
    scheduler.end_pods("a", "p1")
    assert scheduler.run_round() == ["small"]


def test_who_needs_nothing_of_what_is_short_passes() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "1"}))
    scheduler.add_pods("a", 2)
    scheduler.add_pod("a", "other", memory="1Gi")

    assert scheduler.run_round() == ["p0", "other"]


def test_a_pod_that_no_node_takes_keeps_no_quota_from_the_next() -> None:
    scheduler = SimulatedScheduler([a_node(cpu="3")], a=a_queue(quota={"cpu": "4"}))
    scheduler.add_pod("a", "wide", cpu="4")
    scheduler.add_pods("a", 3)

    assert scheduler.run_round() == ["p0", "p1", "p2"]


def test_more_quota_wakes_those_in_line() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "1"}))
    scheduler.add_pods("a", 3)
    scheduler.run_round()
    scheduler.set("a", a_queue(quota={"cpu": "2"}))

    assert scheduler.run_round() == ["p1"]
    scheduler.set("a", None)
    assert scheduler.run_round() == ["p2"]


def test_a_gang_over_quota_waits_whole() -> None:
    scheduler = SimulatedScheduler(default=a_queue(quota={"cpu": "3"}))
    scheduler.group(a_group("g", 3))
    scheduler.add_pod("default", "first")
    scheduler.run_round()
    gang: dict[str, Any] = {"scheduling_group": PodSchedulingGroup(pod_group_name="g")}
    pods = scheduler.add_pods("default", 3, "g", spec=gang)
    scheduler.now = scheduler.now.replace(minute=1)

    assert scheduler.run_round() == []
    assert (
        scheduler.message_of(pods[2])
        == "queue default: over its quota of cpu (1 of 3 used); pod g0 is 1st of 1 in line. "
        "Fits if 1 more of cpu becomes free in queue default."
    )
    scheduler.end_pods("default", "first")
    assert scheduler.run_round() == ["g0", "g1", "g2"]


# Borrowing


def test_what_a_cohort_leaves_idle_is_lent() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "3"}))
    scheduler.add_pods("a", 9)
    scheduler.run_round()

    assert scheduler.used("a") == 5


@pytest.mark.parametrize(
    ("limit", "runs"), [pytest.param("0", 2, id="none"), pytest.param("1", 3, id="one"), pytest.param("9", 5, id="all")]
)
def test_no_more_is_borrowed_than_the_limit(limit: str, runs: int) -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}, borrows={"cpu": limit}), b=a_queue(quota={"cpu": "3"}))
    scheduler.add_pods("a", 9)
    scheduler.run_round()

    assert scheduler.used("a") == runs


def test_another_cohort_lends_nothing() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "3"}, cohort="other"))
    scheduler.add_pods("a", 9)
    scheduler.run_round()

    assert scheduler.used("a") == 2


def test_the_owner_of_lent_quota_waits_and_comes_before_borrowers() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}))
    scheduler.add_pods("a", 9, "a")
    scheduler.run_round()
    large = scheduler.add_pod("b", "large", cpu="2")
    scheduler.run_round()

    assert "(0 of 2 used, the rest is lent)" in scheduler.message_of(large)
    scheduler.end_pods("a", "a0")
    assert scheduler.run_round() == []
    scheduler.end_pods("a", "a1")
    assert scheduler.run_round() == ["large"]


def test_an_owner_who_reclaims_has_the_youngest_borrowers_go_and_no_more_than_needed() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}, reclaims=True))
    scheduler.add_pods("a", 4, "a")
    scheduler.run_round()
    scheduler.add_pod("b", "b0")
    scheduler.run_round()

    assert list(scheduler.terminating) == ["a3"]
    scheduler.run_round()
    assert list(scheduler.terminating) == ["a3"]
    scheduler.end_pods("a", "a3")
    assert scheduler.run_round() == ["b0"]


def test_the_least_important_go_first() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "1"}), b=a_queue(quota={"cpu": "1"}, reclaims=True))
    scheduler.add_pod("a", "little", {"priority": -1})
    scheduler.add_pod("a", "young")
    scheduler.run_round()
    scheduler.add_pod("b", "b0")
    scheduler.run_round()

    assert list(scheduler.terminating) == ["little"]


def kept(allowed: int) -> PodDisruptionBudget:
    """Of pods in namespace a that are labelled so."""
    budget = a_budget(allowed, app="kept")
    return replace(budget, metadata=replace(budget.metadata, namespace="a"))


@pytest.mark.parametrize(
    ("labelled", "allowed", "claims", "gone"),
    [
        pytest.param("23", 0, 1, ["a1"], id="nobody goes whom it does not let go if others are enough"),
        pytest.param("23", 1, 2, ["a1", "a3"], id="of a budget as many go as it allows"),
        pytest.param("123", 0, 2, ["a0", "a3"], id="if others are not enough it is of no avail"),
        pytest.param("0", 0, 2, ["a2", "a3"], id="whom it does not concern are chosen as without it"),
    ],
)
def test_disruption_budgets_are_weighed_when_quota_is_returned(
    labelled: str, allowed: int, claims: int, gone: list[str]
) -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}, reclaims=True))
    scheduler.budgets = [kept(allowed)]
    for number in "0123":
        scheduler.add_pod("a", f"a{number}", labels={"app": "kept"} if number in labelled else {})
    scheduler.run_round()
    scheduler.add_pods("b", claims, "b")
    scheduler.run_round()

    assert sorted(scheduler.terminating) == gone


def test_a_gang_that_goes_as_a_whole_returns_all_its_quota() -> None:
    scheduler = SimulatedScheduler(default=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}, reclaims=True))
    scheduler.group(a_group("g", 3, mode="all"))
    scheduler.add_pod("default", "older")
    gang: dict[str, Any] = {"scheduling_group": PodSchedulingGroup(pod_group_name="g")}
    scheduler.add_pods("default", 3, "g", spec=gang)
    scheduler.run_round()
    assert scheduler.used("default") == 4
    scheduler.add_pod("b", "b0")
    scheduler.run_round()

    assert sorted(scheduler.terminating) == ["g0", "g1", "g2"]


def test_nobody_goes_for_who_would_borrow() -> None:
    scheduler = SimulatedScheduler(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "1"}, reclaims=True))
    scheduler.add_pods("a", 3, "a")
    scheduler.run_round()
    scheduler.add_pod("b", "large", cpu="2")
    scheduler.run_round()

    assert not scheduler.terminating


def test_who_uses_only_what_is_theirs_stays() -> None:
    scheduler = SimulatedScheduler(
        a=a_queue(quota={"cpu": "1"}), b=a_queue(quota={"cpu": "2"}, reclaims=True), c=a_queue(quota={"cpu": "1"})
    )
    scheduler.add_pods("a", 3, "a")
    scheduler.add_pods("c", 1, "c")
    scheduler.run_round()
    scheduler.add_pods("b", 2, "b")
    scheduler.run_round()

    assert sorted(scheduler.terminating) == ["a1", "a2"]


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (13, "13th"),
        (21, "21st"),
        (112, "112th"),
    ],
)
def test_places_are_told_in_words(number: int, word: str) -> None:
    assert ordinal(number) == word


# In the long run


@pytest.mark.parametrize(("weights"), [{"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 5}], ids=["equal", "by weight"])
def test_with_equal_demand_and_pods_that_end_shares_follow_weights(weights: dict[str, int]) -> None:
    scheduler = SimulatedScheduler(
        [a_node(cpu="16", pods="100")], **{name: a_queue(weight=weight) for name, weight in weights.items()}
    )
    for number in range(60):
        for name in weights:
            scheduler.add_pod(name, f"{name}{number}")
    for _ in range(12):
        scheduler.run_round()
        for each in sorted(scheduler.cluster.pods.values(), key=lambda one: one.pod.metadata.name)[::3]:
            scheduler.end_pods(each.pod.metadata.namespace, each.pod.metadata.name)
    scheduler.run_round()

    running = scheduler.running()
    for name, weight in weights.items():
        assert abs(running[name] - 16 * weight / sum(weights.values())) <= 1
