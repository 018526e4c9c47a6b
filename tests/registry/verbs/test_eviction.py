"""Evicting pods on a real store: the budget is asked, and pays in the write set that deletes the pod."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from app.kinds.pod.pod import Pod, condition
from app.machinery.base import Condition, LabelSelector, ObjectMeta
from app.machinery.errors import ApiError
from app.machinery.meta.meta_condition import Condition as MetaCondition
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.eviction import evict
from app.registry.verbs.objects import Preconditions, Registry
from tests.registry.examples import PODS, a_pod, create, get

LABELS = {"app": "w"}
READY = Condition(type="Ready", status="True")


async def run(registry: Registry, name: str = "p", phase: str = "Running", ready: bool = True) -> Pod:
    """A pod on a node, as its agent has reported it."""
    await create(registry, PODS, a_pod(name, {"labels": LABELS}, node_name="n"))

    def reported(pod: Any) -> Any:
        return replace(pod, status=replace(pod.status, phase=phase, conditions=(READY,) if ready else ()))

    await objects.rewrite(registry, PODS, "default", name, reported)
    pod: Pod = await get(registry, PODS, name)
    return pod


async def budget(registry: Registry, name: str = "w", policy: str | None = None, **status: Any) -> None:
    spec = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=LABELS), unhealthy_pod_eviction_policy=policy)
    await create(registry, BUDGETS, PodDisruptionBudget(metadata=ObjectMeta(name=name), spec=spec))
    counted = PodDisruptionBudgetStatus(**({"observed_generation": 1} | status))
    await objects.rewrite(registry, BUDGETS, "default", name, lambda old: replace(old, status=counted))


async def refusal(registry: Registry, name: str = "p", **more: Any) -> ApiError:
    with pytest.raises(ApiError) as raised:
        await evict(registry, "default", name, Demand(), **more)
    return raised.value


async def test_a_pod_that_no_budget_covers_goes_as_a_disruption(registry: Registry) -> None:
    await run(registry)

    await evict(registry, "default", "p", Demand(grace_seconds=7))

    pod = await get(registry, PODS, "p")
    assert pod.metadata.deletion_grace_period_seconds == 7
    target = condition(pod.status.conditions, "DisruptionTarget")
    assert (target.status, target.reason, target.message) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


async def test_an_eviction_takes_from_the_budget(registry: Registry) -> None:
    await run(registry)
    await budget(registry, disruptions_allowed=2)

    await evict(registry, "default", "p", Demand())

    status = (await get(registry, BUDGETS, "w")).status
    assert (status.disruptions_allowed, status.disrupted_pods) == (1, {"p": registry.now()})
    assert (await get(registry, PODS, "p")).metadata.deletion_timestamp is not None


async def test_no_two_evictions_take_the_same(registry: Registry) -> None:
    for name in "abcd":
        await run(registry, name)
    await budget(registry, disruptions_allowed=2)

    results = await asyncio.gather(
        *(evict(registry, "default", name, Demand()) for name in "abcd"), return_exceptions=True
    )

    assert sorted(isinstance(each, ApiError) for each in results) == [False, False, True, True]
    going = [(await get(registry, PODS, name)).metadata.deletion_timestamp is not None for name in "abcd"]
    assert sum(going) == 2
    assert (await get(registry, BUDGETS, "w")).status.disruptions_allowed == 0


SHORT = "The disruption budget w needs 3 healthy pods and has 2 currently"
BUSY = "The disruption budget w is still being processed by the server."
FAILED = MetaCondition(type="DisruptionAllowed", status="False", reason="SyncFailed", message="because")


@pytest.mark.parametrize(
    ("status", "cause", "seconds"),
    [
        pytest.param({"desired_healthy": 3, "current_healthy": 2}, SHORT, None, id="spent"),
        pytest.param({"observed_generation": 0, "disruptions_allowed": 1}, BUSY, 10, id="not counted yet"),
        pytest.param(
            {"conditions": (FAILED,)},
            "The disruption budget w does not allow evicting pods currently because it failed sync: because",
            None,
            id="uncountable",
        ),
    ],
)
async def test_a_budget_that_allows_none_refuses(
    registry: Registry, status: dict[str, Any], cause: str, seconds: int | None
) -> None:
    await run(registry)
    await budget(registry, **status)

    error = await refusal(registry)

    assert (error.code, error.reason) == (429, "TooManyRequests")
    assert error.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert error.details["causes"] == [{"reason": "DisruptionBudget", "message": cause}]
    assert error.details.get("retryAfterSeconds") == seconds
    assert (await get(registry, PODS, "p")).metadata.deletion_timestamp is None


async def test_two_budgets_are_one_too_many(registry: Registry) -> None:
    await run(registry)
    await budget(registry, "w", disruptions_allowed=1)
    await budget(registry, "v", disruptions_allowed=1)

    error = await refusal(registry)

    assert error.code == 500
    assert error.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_what_serves_nobody_goes_without_asking(registry: Registry, phase: str) -> None:
    await run(registry, phase=phase)
    await budget(registry)

    await evict(registry, "default", "p", Demand(grace_seconds=0))

    assert await get(registry, PODS, "p") is None
    assert (await get(registry, BUDGETS, "w")).status.disrupted_pods == {}


@pytest.mark.parametrize(
    ("policy", "healthy", "goes"),
    [
        pytest.param(None, 2, True, id="enough others are healthy"),
        pytest.param(None, 1, False, id="too few others are healthy"),
        pytest.param("AlwaysAllow", 1, True, id="the budget says so"),
    ],
)
async def test_a_pod_that_is_not_ready_goes_if(
    registry: Registry, policy: str | None, healthy: int, goes: bool
) -> None:
    await run(registry, ready=False)
    await budget(registry, policy=policy, desired_healthy=2, current_healthy=healthy)

    if goes:
        await evict(registry, "default", "p", Demand())
    else:
        assert (await refusal(registry)).code == 429
    assert ((await get(registry, PODS, "p")).metadata.deletion_timestamp is not None) is goes


async def test_a_dry_run_changes_nothing_but_refuses_all_the_same(registry: Registry) -> None:
    await run(registry)
    await budget(registry, disruptions_allowed=1)
    before = [await get(registry, PODS, "p"), await get(registry, BUDGETS, "w")]

    await evict(registry, "default", "p", Demand(), dry_run=True)

    assert [await get(registry, PODS, "p"), await get(registry, BUDGETS, "w")] == before
    await objects.rewrite(
        registry, BUDGETS, "default", "w", lambda old: replace(old, status=replace(old.status, disruptions_allowed=0))
    )
    assert (await refusal(registry, dry_run=True)).code == 429


async def test_preconditions_hold(registry: Registry) -> None:
    pod = await run(registry)

    assert (await refusal(registry, preconditions=Preconditions(uid="other"))).code == 409
    assert (await refusal(registry, preconditions=Preconditions(resource_version="1"))).code == 409
    await evict(registry, "default", "p", Demand(), Preconditions(uid=pod.metadata.uid))


async def test_a_pod_that_is_not_there_is_not_found(registry: Registry) -> None:
    assert (await refusal(registry)).code == 404
