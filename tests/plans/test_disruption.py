"""What a disruption budget allows: counted from its pods, told in a condition, and spent by evictions."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import LabelSelector, ObjectMeta, OwnerReference
from app.plans.disruption import add_condition, plan, spend_disruption
from app.plans.plan import Emit, Plan, SetStatus
from tests.build import LONG_AGO, NOW, a_pod


def a_budget(status: PodDisruptionBudgetStatus | None = None, **spec: Any) -> PodDisruptionBudget:
    selector = LabelSelector(match_labels={"app": "w"})
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="w", namespace="default", generation=1, uid="uid-of-w"),
        spec=PodDisruptionBudgetSpec(selector=selector, **spec),
        status=status or PodDisruptionBudgetStatus(),
    )


def pods(letters: str, owner: OwnerReference | None = None) -> list[Pod]:
    """r: ready, n: not ready, d: ready and on its way out; owned by a Job unless told otherwise."""
    made = []
    for number, letter in enumerate(letters):
        pod = a_pod(name=f"w-{number}", ready=letter in "rd", deleted_at=LONG_AGO if letter == "d" else None)
        if owner is not None:
            owners = (owner,) if owner.name else ()
            pod = replace(pod, metadata=replace(pod.metadata, owner_references=owners))
        made.append(pod)
    return made


BARE = OwnerReference()
FOREIGN = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="1", controller=True)


def status_of(made: Plan) -> PodDisruptionBudgetStatus:
    return next(each.object.status for each in made.actions if isinstance(each, SetStatus))


def events_of(made: Plan) -> list[str]:
    return [each.reason for each in made.actions if isinstance(each, Emit)]


def counts(status: PodDisruptionBudgetStatus) -> tuple[int, int, int, int]:
    """Expected, desired, healthy, allowed."""
    return status.expected_pods, status.desired_healthy, status.current_healthy, status.disruptions_allowed


@pytest.mark.parametrize(
    ("minimum", "letters", "expected", "reason"),
    [
        pytest.param(2, "rrr", (3, 2, 3, 1), "SufficientPods", id="one more than needed"),
        pytest.param(3, "rrr", (3, 3, 3, 0), "InsufficientPods", id="all are needed"),
        pytest.param(2, "rrn", (3, 2, 2, 0), "InsufficientPods", id="one that is not ready does not count"),
        pytest.param(2, "rrd", (3, 2, 2, 0), "InsufficientPods", id="nor does one on its way out"),
        pytest.param(0, "r", (1, 0, 1, 1), "SufficientPods", id="none are needed"),
        pytest.param(0, "", (0, 0, 0, 0), "InsufficientPods", id="there are none"),
    ],
)
def test_a_minimum(minimum: int, letters: str, expected: tuple[int, ...], reason: str) -> None:
    status = status_of(plan(a_budget(min_available=minimum), pods(letters), NOW))

    assert counts(status) == expected
    assert status.observed_generation == 1
    assert [(each.type, each.status, each.reason) for each in status.conditions] == [
        ("DisruptionAllowed", "True" if reason == "SufficientPods" else "False", reason)
    ]


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        pytest.param(None, "jobs.batch does not implement the scale subresource", id="Jobs"),
        pytest.param(FOREIGN, 'found no controllers for pod "w-0"', id="what is no kind here"),
    ],
)
@pytest.mark.parametrize("spec", [{"max_unavailable": 1}, {"min_available": "50%"}], ids=str)
def test_what_has_no_scale_allows_nothing(spec: dict[str, Any], owner: OwnerReference | None, why: str) -> None:
    before = PodDisruptionBudgetStatus(disruptions_allowed=3)
    made = plan(a_budget(before, **spec), pods("rr", owner), NOW)

    status = status_of(made)
    assert status.disruptions_allowed == 0
    assert [(each.reason, each.message) for each in status.conditions] == [("SyncFailed", why)]
    assert events_of(made) == ["CalculateExpectedPodCountFailed"]


def test_pods_of_nobody_are_not_expected() -> None:
    made = plan(a_budget(max_unavailable=1), pods("rr", BARE), NOW)

    assert counts(status_of(made)) == (0, 0, 2, 0)
    assert events_of(made) == ["UnmanagedPods"]


def test_nothing_is_said_twice() -> None:
    budget = a_budget(min_available=1)
    first = plan(budget, [], NOW)
    again = plan(replace(budget, status=status_of(first)), [], NOW + timedelta(hours=1))

    assert events_of(first) == ["NoPods"]
    assert again == Plan()


def test_the_condition_keeps_its_time_while_it_holds() -> None:
    status = add_condition(PodDisruptionBudgetStatus(disruptions_allowed=1), NOW)
    later = NOW + timedelta(minutes=1)

    assert add_condition(replace(status, disruptions_allowed=2), later).conditions == status.conditions
    assert add_condition(replace(status, disruptions_allowed=0), later).conditions[0].last_transition_time == later


def test_an_evicted_pod_does_not_count_until_it_is_plain_that_it_stays() -> None:
    budget = spend_disruption(a_budget(PodDisruptionBudgetStatus(disruptions_allowed=1), min_available=1), "w-0", NOW)

    made = plan(budget, pods("rr"), NOW + timedelta(minutes=2))
    assert counts(status_of(made)) == (2, 1, 1, 0)
    assert made.again_at == NOW + timedelta(minutes=2)
    late = status_of(plan(budget, pods("rr"), NOW + timedelta(minutes=2, seconds=1)))
    assert (late.disrupted_pods, late.disruptions_allowed) == ({}, 1)
    assert status_of(plan(budget, pods("dr"), NOW)).disrupted_pods == {}


def test_the_last_allowance_is_told_of() -> None:
    budget = a_budget(add_condition(PodDisruptionBudgetStatus(disruptions_allowed=2), NOW))
    one = spend_disruption(budget, "a", NOW).status
    none = spend_disruption(spend_disruption(budget, "a", NOW), "b", NOW).status

    assert (one.disruptions_allowed, one.conditions[0].status) == (1, "True")
    assert (none.disruptions_allowed, none.conditions[0].status) == (0, "False")
    assert set(none.disrupted_pods) == {"a", "b"}


@given(letters=some.text("rnd", max_size=8), minimum=some.integers(0, 8), evicted=some.sets(some.integers(0, 7)))
def test_what_is_allowed_leaves_the_minimum(letters: str, minimum: int, evicted: set[int]) -> None:
    before = PodDisruptionBudgetStatus(disrupted_pods={f"w-{number}": NOW for number in evicted})
    status = status_of(plan(a_budget(before, min_available=minimum), pods(letters), NOW))

    ready = sum(letter == "r" and number not in evicted for number, letter in enumerate(letters))
    assert status.current_healthy == ready
    assert status.disruptions_allowed == max(0, ready - minimum)
