"""Fair share and quotas of namespaces: who comes first, who waits, in what line, and what is taken back."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import PodSchedulingGroup
from app.scheduler.fair_sharing import ordinal
from tests.scheduler.cluster import a_node
from tests.scheduler.gangs import a_group
from tests.scheduler.queues import Town, a_queue
from tests.scheduler.test_preemption import a_budget

# Order


def test_without_queues_age_alone_decides() -> None:
    town = Town([a_node(cpu="3")])
    town.many("a", 3, "a")
    town.many("b", 3, "b")

    assert town.turns() == ["a0", "a1", "a2"]


def test_who_has_the_least_comes_first() -> None:
    town = Town([a_node(cpu="4")], a=a_queue())
    town.many("a", 4, "a")
    town.many("b", 4, "b")

    assert town.turns() == ["a0", "b0", "a1", "b1"]


def test_twice_the_weight_is_twice_the_share() -> None:
    town = Town([a_node(cpu="6")], a=a_queue(weight=2))
    town.many("b", 6, "b")
    town.many("a", 6, "a")
    town.turns()

    assert town.running() == {"a": 4, "b": 2}


def test_the_share_is_of_what_is_scarcest() -> None:
    """A pod of b takes a quarter of the memory, one of a only a sixth of the CPUs."""
    town = Town([a_node(cpu="6", memory="8Gi")], a=a_queue())
    town.many("a", 6, "a", cpu="1")
    town.many("b", 6, "b", cpu="1", memory="2Gi")
    town.turns()

    assert town.running() == {"a": 4, "b": 2}


def test_what_runs_already_counts() -> None:
    town = Town([a_node(cpu="4")], a=a_queue())
    town.many("a", 2, "a")
    town.turns()
    town.many("a", 4, "later")
    town.many("b", 4, "b")

    assert town.turns() == ["b0", "b1"]


def test_priority_comes_before_the_share() -> None:
    town = Town([a_node(cpu="3")], a=a_queue())
    town.many("a", 3, "a", spec={"priority": 1})
    town.many("b", 3, "b")

    assert town.turns() == ["a0", "a1", "a2"]


def test_in_a_namespace_priority_decides_and_then_age() -> None:
    town = Town([a_node(cpu="3")], a=a_queue())
    town.many("a", 3, "old")
    town.comes("a", "great", {"priority": 1})

    assert town.turns() == ["great", "old0", "old1"]


# Quota


def test_no_more_runs_than_the_quota_allows() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}))
    town.many("a", 5)

    assert town.turns() == ["p0", "p1"]
    assert town.turns() == []


def test_who_ends_makes_room_for_the_next_in_line() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}))
    town.many("a", 5)
    town.turns()
    town.ends("a", "p1")

    assert town.turns() == ["p2"]


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
    town = Town(a=a_queue(quota=quota))
    town.many("a", 5, **needs)

    assert len(town.turns()) == runs


def test_those_over_quota_hear_the_queue_the_resource_and_their_place() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}))
    pods = town.many("a", 5)
    town.turns()

    assert town.told(pods[3]) == "queue default: over its quota of cpu (2 of 2 used); pod p3 is 2nd of 3 in line"


def test_a_pod_that_its_quota_can_never_hold_is_told_so_and_stops_nobody() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}))
    town.comes("a", "giant", cpu="3")
    town.comes("a", "next")

    assert town.turns() == ["next"]
    assert town.why["giant"] == "queue default: asks for 3 of cpu, of which it may never have more than 2"


def test_nobody_overtakes_in_line() -> None:
    """Though it would fit."""
    town = Town(a=a_queue(quota={"cpu": "3"}))
    town.many("a", 2)
    town.turns()
    town.comes("a", "large", cpu="2")
    town.turns()
    town.comes("a", "small")

    assert town.turns() == []
    assert town.line("a") == ["pod large", "pod small"]
    town.ends("a", "p0")
    assert town.turns() == ["large"]
    town.ends("a", "p1")
    assert town.turns() == ["small"]


def test_who_needs_nothing_of_what_is_short_passes() -> None:
    town = Town(a=a_queue(quota={"cpu": "1"}))
    town.many("a", 2)
    town.comes("a", "other", memory="1Gi")

    assert town.turns() == ["p0", "other"]


def test_a_pod_that_no_node_takes_keeps_no_quota_from_the_next() -> None:
    town = Town([a_node(cpu="3")], a=a_queue(quota={"cpu": "4"}))
    town.comes("a", "wide", cpu="4")
    town.many("a", 3)

    assert town.turns() == ["p0", "p1", "p2"]


def test_more_quota_wakes_those_in_line() -> None:
    town = Town(a=a_queue(quota={"cpu": "1"}))
    town.many("a", 3)
    town.turns()
    town.set("a", a_queue(quota={"cpu": "2"}))

    assert town.turns() == ["p1"]
    town.set("a", None)
    assert town.turns() == ["p2"]


def test_a_gang_over_quota_waits_whole() -> None:
    town = Town(default=a_queue(quota={"cpu": "3"}))
    town.group(a_group("g", 3))
    town.comes("default", "first")
    town.turns()
    gang: dict[str, Any] = {"scheduling_group": PodSchedulingGroup(pod_group_name="g")}
    pods = town.many("default", 3, "g", spec=gang)
    town.now = town.now.replace(minute=1)

    assert town.turns() == []
    assert town.told(pods[2]) == "queue default: over its quota of cpu (1 of 3 used); pod g0 is 1st of 1 in line"
    town.ends("default", "first")
    assert town.turns() == ["g0", "g1", "g2"]


# Borrowing


def test_what_a_cohort_leaves_idle_is_lent() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "3"}))
    town.many("a", 9)
    town.turns()

    assert town.used("a") == 5


@pytest.mark.parametrize(
    ("limit", "runs"), [pytest.param("0", 2, id="none"), pytest.param("1", 3, id="one"), pytest.param("9", 5, id="all")]
)
def test_no_more_is_borrowed_than_the_limit(limit: str, runs: int) -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}, borrows={"cpu": limit}), b=a_queue(quota={"cpu": "3"}))
    town.many("a", 9)
    town.turns()

    assert town.used("a") == runs


def test_another_cohort_lends_nothing() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "3"}, cohort="other"))
    town.many("a", 9)
    town.turns()

    assert town.used("a") == 2


def test_the_owner_of_lent_quota_waits_and_comes_before_borrowers() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}))
    town.many("a", 9, "a")
    town.turns()
    large = town.comes("b", "large", cpu="2")
    town.turns()

    assert "(0 of 2 used, the rest is lent)" in town.told(large)
    town.ends("a", "a0")
    assert town.turns() == []
    town.ends("a", "a1")
    assert town.turns() == ["large"]


def test_an_owner_who_reclaims_has_the_youngest_borrowers_go_and_no_more_than_needed() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}, reclaims=True))
    town.many("a", 4, "a")
    town.turns()
    town.comes("b", "b0")
    town.turns()

    assert list(town.going) == ["a3"]
    town.turns()
    assert list(town.going) == ["a3"]
    town.ends("a", "a3")
    assert town.turns() == ["b0"]


def test_the_least_important_go_first() -> None:
    town = Town(a=a_queue(quota={"cpu": "1"}), b=a_queue(quota={"cpu": "1"}, reclaims=True))
    town.comes("a", "little", {"priority": -1})
    town.comes("a", "young")
    town.turns()
    town.comes("b", "b0")
    town.turns()

    assert list(town.going) == ["little"]


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
    town = Town(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}, reclaims=True))
    town.budgets = [kept(allowed)]
    for number in "0123":
        town.comes("a", f"a{number}", labels={"app": "kept"} if number in labelled else {})
    town.turns()
    town.many("b", claims, "b")
    town.turns()

    assert sorted(town.going) == gone


def test_a_gang_that_goes_as_a_whole_returns_all_its_quota() -> None:
    town = Town(default=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "2"}, reclaims=True))
    town.group(a_group("g", 3, mode="PodGroup"))
    town.comes("default", "older")
    gang: dict[str, Any] = {"scheduling_group": PodSchedulingGroup(pod_group_name="g")}
    town.many("default", 3, "g", spec=gang)
    town.turns()
    assert town.used("default") == 4
    town.comes("b", "b0")
    town.turns()

    assert sorted(town.going) == ["g0", "g1", "g2"]


def test_nobody_goes_for_who_would_borrow() -> None:
    town = Town(a=a_queue(quota={"cpu": "2"}), b=a_queue(quota={"cpu": "1"}, reclaims=True))
    town.many("a", 3, "a")
    town.turns()
    town.comes("b", "large", cpu="2")
    town.turns()

    assert not town.going


def test_who_uses_only_what_is_theirs_stays() -> None:
    town = Town(
        a=a_queue(quota={"cpu": "1"}), b=a_queue(quota={"cpu": "2"}, reclaims=True), c=a_queue(quota={"cpu": "1"})
    )
    town.many("a", 3, "a")
    town.many("c", 1, "c")
    town.turns()
    town.many("b", 2, "b")
    town.turns()

    assert sorted(town.going) == ["a1", "a2"]


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
    town = Town([a_node(cpu="16", pods="100")], **{name: a_queue(weight=weight) for name, weight in weights.items()})
    for number in range(60):
        for name in weights:
            town.comes(name, f"{name}{number}")
    for _ in range(12):
        town.turns()
        for each in sorted(town.cluster.pods.values(), key=lambda one: one.pod.metadata.name)[::3]:
            town.ends(each.pod.metadata.namespace, each.pod.metadata.name)
    town.turns()

    running = town.running()
    for name, weight in weights.items():
        assert abs(running[name] - 16 * weight / sum(weights.values())) <= 1
