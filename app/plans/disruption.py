"""Disruption budgets (PodDisruptionBudget): how many more pods may be evicted, from the pods that the budget selects. Pure.

The disruption controller calls `plan`; `app.registry.verbs.eviction` calls `spend_disruption`, in the write set that deletes the
pod, so that no two evictions spend the same allowed disruption.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.kinds import by_name
from app.kinds.apps.deployment import KIND as DEPLOYMENTS
from app.kinds.apps.deployment import Deployment
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.apps.replicaset import ReplicaSet
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetStatus
from app.kinds.pod.pod import Pod, is_ready
from app.machinery.base import IntOrString, LabelSelector, Object, OwnerReference
from app.machinery.meta.meta_condition import Condition, with_condition
from app.machinery.meta.owner_references import controller_of
from app.plans.plan import Action, Emit, Plan, SetStatus, earliest

ALLOWED = "DisruptionAllowed"
SYNC_FAILED = "SyncFailed"
DELETION_TIMEOUT = timedelta(minutes=2)  # a pod that was evicted and is not deleted after that counts again
_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the "
    "PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set "
    '".spec.minAvailable" field of the PDB to an integer value.'
)


class _UncountableError(Exception):
    """The number of pods that there should be is unknown; says why."""


FindOwner = Callable[[str, str, str], Object | None]  # resource, namespace, name -> the object that is there


def find_nothing(*_: str) -> None:
    """Finds no owner."""


def plan(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime, find: FindOwner = find_nothing) -> Plan:
    """`pods` are all that the budget selects. Events are emitted only if the status changes."""
    try:
        expected, desired = _expected_pods(budget, pods, find)
    except _UncountableError as error:
        return _fail_sync(budget, str(error), now)
    evicted = _evicted_pods(budget, pods, now)
    healthy = sum(_is_healthy(pod, evicted) for pod in pods)
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=evicted,
        disruptions_allowed=max(0, healthy - desired) if expected > 0 else 0,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        conditions=budget.status.conditions,
    )
    again_at = earliest(at + DELETION_TIMEOUT for at in evicted.values())
    return Plan(tuple(_update_status(budget, add_condition(status, now), _build_events(budget, pods))), again_at)


def add_condition(status: PodDisruptionBudgetStatus, now: datetime) -> PodDisruptionBudgetStatus:
    """The status with the condition DisruptionAllowed that follows from it."""
    is_allowed = status.disruptions_allowed > 0
    condition = Condition(
        type=ALLOWED,
        status="True" if is_allowed else "False",
        observed_generation=status.observed_generation,
        last_transition_time=now,
        reason="SufficientPods" if is_allowed else "InsufficientPods",
    )
    return replace(status, conditions=with_condition(status.conditions, condition))


def spend_disruption(budget: PodDisruptionBudget, pod: str, now: datetime) -> PodDisruptionBudget:
    """The budget after one eviction, of a pod of this name. The controller counts again when the pod is deleted."""
    status = replace(
        budget.status,
        disruptions_allowed=budget.status.disruptions_allowed - 1,
        disrupted_pods={**budget.status.disrupted_pods, pod: now},
    )
    return replace(budget, status=status if status.disruptions_allowed else add_condition(status, now))


def _update_status(
    budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus, events: Iterable[Emit]
) -> Iterable[Action]:
    if status == budget.status:
        return ()
    return (SetStatus(replace(budget, status=status)), *events)


def _build_events(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> Iterable[Emit]:
    if not pods:
        yield Emit("Normal", "NoPods", "No matching pods found", budget)
    if _is_relative(budget) and any(controller_of(pod) is None for pod in pods):
        yield Emit("Warning", "UnmanagedPods", _UNMANAGED.format(_format_selector(budget.spec.selector)), budget)


def _format_selector(selector: LabelSelector | None) -> str:
    labels = selector.match_labels if selector else {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _fail_sync(budget: PodDisruptionBudget, why: str, now: datetime) -> Plan:
    """No pod may be evicted while the number of pods that there should be is unknown."""
    condition = Condition(
        type=ALLOWED,
        status="False",
        observed_generation=budget.status.observed_generation,
        last_transition_time=now,
        reason=SYNC_FAILED,
        message=why,
    )
    conditions = with_condition(budget.status.conditions, condition)
    status = replace(budget.status, disruptions_allowed=0, conditions=conditions)
    text = f"Failed to calculate the number of expected pods: {why}"
    return Plan(
        tuple(_update_status(budget, status, [Emit("Warning", "CalculateExpectedPodCountFailed", text, budget)]))
    )


def _is_relative(budget: PodDisruptionBudget) -> bool:
    """Return whether the budget depends on the number of pods that there should be."""
    return budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)


def _expected_pods(budget: PodDisruptionBudget, pods: Sequence[Pod], find: FindOwner) -> tuple[int, int]:
    """`status.expectedPods` and `status.desiredHealthy`."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        expected = _sum_scales(pods, find)
        return expected, max(0, expected - _resolve_percentage(spec.max_unavailable, expected))
    if spec.min_available is None:
        return 0, 0
    if isinstance(spec.min_available, int):
        return len(pods), spec.min_available
    expected = _sum_scales(pods, find)
    return expected, _resolve_percentage(spec.min_available, expected)


def _sum_scales(pods: Sequence[Pod], find: FindOwner) -> int:
    """The sum of the scales of the pods' controllers: of ReplicaSets and Deployments, as Jobs have no scale."""
    scales: dict[str, int] = {}
    for pod in pods:
        if (owner := controller_of(pod)) is None:
            continue
        kind = by_name(owner.api_version.rpartition("/")[0], owner.kind)
        if kind is None:
            raise _UncountableError(f'found no controllers for pod "{pod.metadata.name}"')
        if kind is not REPLICA_SETS:
            raise _UncountableError(f"{kind.resource} does not implement the scale subresource")
        scaled = _find_scaled(owner, pod.metadata.namespace, find)
        if scaled is None:
            raise _UncountableError(f'found no controllers for pod "{pod.metadata.name}"')
        scales[scaled.metadata.uid] = scaled.spec.replicas or 0
    return sum(scales.values())


def _find_scaled(owner: OwnerReference, namespace: str, find: FindOwner) -> Deployment | ReplicaSet | None:
    """The ReplicaSet that owns a pod; in its place the Deployment that it belongs to, if there is one."""
    found = find(REPLICA_SETS.resource, namespace, owner.name)
    if not isinstance(found, ReplicaSet) or found.metadata.uid != owner.uid:
        return None
    above = controller_of(found)
    deployment = find(DEPLOYMENTS.resource, namespace, above.name) if above is not None else None
    if isinstance(deployment, Deployment) and above is not None and deployment.metadata.uid == above.uid:
        return deployment
    return found


def _resolve_percentage(amount: IntOrString, whole: int) -> int:
    """A number as it is; a percentage of the whole, rounded up."""
    return amount if isinstance(amount, int) else -(-int(amount.removesuffix("%")) * whole // 100)


def _evicted_pods(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime) -> dict[str, datetime]:
    """Return when pods were evicted that are not deleted yet, but may still be."""
    disrupted = budget.status.disrupted_pods
    return {
        pod.metadata.name: disrupted[pod.metadata.name]
        for pod in (pods if disrupted else ())
        if pod.metadata.name in disrupted
        and pod.metadata.deletion_timestamp is None
        and disrupted[pod.metadata.name] + DELETION_TIMEOUT >= now
    }


def _is_healthy(pod: Pod, evicted: dict[str, datetime]) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.metadata.name not in evicted and is_ready(pod)
