"""Eviction: deletes a pod unless a PodDisruptionBudget forbids it. Called by POST pods/NAME/eviction.

The budget's allowance is spent in the write set that deletes the pod, with the revisions of both: it is never spent for
a pod that stays, nor twice.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import cast

from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, condition, is_ready, is_terminal
from app.machinery import errors
from app.machinery.base import Condition
from app.machinery.errors import ApiError
from app.machinery.meta.meta_condition import condition as meta_condition
from app.machinery.selectors import from_label_selector
from app.plans.disruption import ALLOWED, SYNC_FAILED, spend_disruption
from app.registry.codec import decode, write_of
from app.registry.verbs import deletion
from app.registry.verbs.binding import with_condition
from app.registry.verbs.objects import Preconditions, Registry, check_preconditions, find
from app.store import Conflict, Query, Write

MOST_GOING = 2000  # evicted pods that a budget's controller has not seen go
_TRIES = 8
_NONE = Preconditions()
_VIOLATED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


async def evict(
    registry: Registry,
    namespace: str,
    name: str,
    demand: deletion.Demand,
    preconditions: Preconditions = _NONE,
    *,
    dry_run: bool = False,
) -> None:
    """Delete the pod, gracefully, as a disruption; 429 if its budget allows none now, 500 if it has several."""
    budget = None
    for _ in range(_TRIES):
        pod = cast("Pod", decode(PODS, await find(registry, PODS, namespace, name)))
        check_preconditions(PODS, pod, preconditions)
        budget = None if _needs_no_budget(pod) else only_budget(await _budgets(registry, pod))
        now = registry.now()
        after = charge(budget, pod, now) if budget else None
        writes = [_deletion_write(pod, demand, now)]
        if budget and after:
            writes.append(write_of(BUDGETS, after, "M", budget))
        if dry_run:
            return
        try:
            await registry.store.commit(writes)
        except Conflict:
            if preconditions.resource_version:
                raise errors.conflict(PODS.resource, name) from None
            continue
        return
    raise busy_error(budget.metadata.name) if budget else errors.conflict(PODS.resource, name)


def _needs_no_budget(pod: Pod) -> bool:
    """Nobody is served by a pod that has not started, has ended or is going anyway."""
    return is_terminal(pod) or pod.status.phase == "Pending" or pod.metadata.deletion_timestamp is not None


async def _budgets(registry: Registry, pod: Pod) -> list[PodDisruptionBudget]:
    page = await registry.store.list(Query(kind=BUDGETS.resource, namespace=pod.metadata.namespace))
    every = (cast("PodDisruptionBudget", decode(BUDGETS, head)) for head in page.heads)
    return [each for each in every if from_label_selector(each.spec.selector).matches(pod.metadata.labels)]


def only_budget(budgets: Iterable[PodDisruptionBudget]) -> PodDisruptionBudget | None:
    """The budget to ask, if there is one."""
    first, *others = [*budgets, None]
    if len(others) > 1:
        raise ApiError(500, "", _SEVERAL)
    return first


def charge(budget: PodDisruptionBudget, pod: Pod, now: datetime) -> PodDisruptionBudget | None:
    """The budget without what the eviction takes; None if it takes nothing, as the pod was not counted. Or a refusal."""
    if not is_ready(pod) and _lets_unhealthy_go(budget):
        return None
    status, name = budget.status, budget.metadata.name
    if status.observed_generation < budget.metadata.generation:
        raise busy_error(name)
    if len(status.disrupted_pods) > MOST_GOING:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden_error("poddisruptionbudget.policy", name, why)
    if status.disruptions_allowed <= 0:
        raise _refusal(_shortage(budget))
    return spend_disruption(budget, pod.metadata.name, now)


def busy_error(budget: str) -> ApiError:
    """Nobody can tell now; client libraries come again by themselves."""
    return _refusal(f"The disruption budget {budget} is still being processed by the server.", retryAfterSeconds=10)


def _lets_unhealthy_go(budget: PodDisruptionBudget) -> bool:
    status = budget.status
    if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
        return True
    return status.current_healthy >= status.desired_healthy > 0


def _shortage(budget: PodDisruptionBudget) -> str:
    status, name = budget.status, budget.metadata.name
    found = meta_condition(status.conditions, ALLOWED)
    if found is not None and found.reason == SYNC_FAILED:
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it failed sync: "
            f"{found.message}"
        )
    return (
        f"The disruption budget {name} needs {status.desired_healthy} healthy pods and has "
        f"{status.current_healthy} currently"
    )


def _refusal(why: str, **details: int) -> ApiError:
    cause = {"reason": "DisruptionBudget", "message": why}
    return ApiError(429, "TooManyRequests", _VIOLATED, causes=[cause], **details)


def _deletion_write(pod: Pod, demand: deletion.Demand, now: datetime) -> Write:
    """The pod as a Job's failure policy sees it: ended by a disruption."""
    begun = deletion.begin(PODS, _with_disruption_target(pod, now), now, demand)
    return write_of(PODS, begun.object, "D" if begun.is_over else "M", pod)


def _with_disruption_target(pod: Pod, now: datetime) -> Pod:
    old = condition(pod.status.conditions, "DisruptionTarget")
    since = old.last_transition_time if old and old.status == "True" else now
    target = Condition(
        type="DisruptionTarget",
        status="True",
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
        last_transition_time=since,
    )
    return with_condition(pod, target)
