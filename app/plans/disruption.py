"""Disruption budgets: how many more pods may be evicted; the budget's status from the pods that it selects. Pure.

The disruption controller carries `plan` out; `app.registry.eviction` takes from what is allowed with `taken`, in the
write set that deletes the pod, so that no two evictions spend the same allowance.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.kinds import by_name
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetStatus
from app.kinds.pod.pod import Pod, is_ready
from app.machinery.base import IntOrString, LabelSelector
from app.machinery.meta_condition import Condition, with_condition
from app.machinery.owner_references import controller_of
from app.plans.plan import Action, Emit, Plan, SetStatus, earliest

ALLOWED = "DisruptionAllowed"
SYNC_FAILED = "SyncFailed"
GONE_WITHIN = timedelta(minutes=2)  # a pod that was evicted and still stays after that counts again
_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the "
    "PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set "
    '".spec.minAvailable" field of the PDB to an integer value.'
)


class _UncountableError(Exception):
    """It cannot be told how many pods there should be; says why."""


def plan(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime) -> Plan:
    """`pods` are all that the budget selects. Events tell of a status that has changed, not of every look."""
    try:
        expected, desired = _expected(budget, pods)
    except _UncountableError as error:
        return _failed(budget, str(error), now)
    going = _going(budget, pods, now)
    healthy = sum(_is_healthy(pod, going) for pod in pods)
    status = PodDisruptionBudgetStatus(
        observed_generation=budget.metadata.generation,
        disrupted_pods=going,
        disruptions_allowed=max(0, healthy - desired) if expected > 0 else 0,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        conditions=budget.status.conditions,
    )
    again_at = earliest(at + GONE_WITHIN for at in going.values())
    return Plan(tuple(_said(budget, told(status, now), _remarks(budget, pods))), again_at)


def told(status: PodDisruptionBudgetStatus, now: datetime) -> PodDisruptionBudgetStatus:
    """The status with the condition that says what it allows."""
    enough = status.disruptions_allowed > 0
    condition = Condition(
        type=ALLOWED,
        status="True" if enough else "False",
        observed_generation=status.observed_generation,
        last_transition_time=now,
        reason="SufficientPods" if enough else "InsufficientPods",
    )
    return replace(status, conditions=with_condition(status.conditions, condition))


def taken(budget: PodDisruptionBudget, pod: str, now: datetime) -> PodDisruptionBudget:
    """The budget once it has let a pod of this name go. The controller counts again when the pod is going."""
    left = replace(
        budget.status,
        disruptions_allowed=budget.status.disruptions_allowed - 1,
        disrupted_pods={**budget.status.disrupted_pods, pod: now},
    )
    return replace(budget, status=left if left.disruptions_allowed else told(left, now))


def _said(budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus, events: Iterable[Emit]) -> Iterable[Action]:
    if status == budget.status:
        return ()
    return (SetStatus(replace(budget, status=status)), *events)


def _remarks(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> Iterable[Emit]:
    if not pods:
        yield Emit("Normal", "NoPods", "No matching pods found", budget)
    if _is_relative(budget) and any(controller_of(pod) is None for pod in pods):
        yield Emit("Warning", "UnmanagedPods", _UNMANAGED.format(_shown(budget.spec.selector)), budget)


def _shown(selector: LabelSelector | None) -> str:
    labels = selector.match_labels if selector else {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _failed(budget: PodDisruptionBudget, why: str, now: datetime) -> Plan:
    """Nothing may go while it is not known how many there should be."""
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
    return Plan(tuple(_said(budget, status, [Emit("Warning", "CalculateExpectedPodCountFailed", text, budget)])))


def _is_relative(budget: PodDisruptionBudget) -> bool:
    """Whether it takes a number of pods that there should be."""
    return budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)


def _expected(budget: PodDisruptionBudget, pods: Sequence[Pod]) -> tuple[int, int]:
    """How many pods there should be, and how many of them healthy."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        expected = _scale(pods)
        return expected, max(0, expected - _part(spec.max_unavailable, expected))
    if spec.min_available is None:
        return 0, 0
    if isinstance(spec.min_available, int):
        return len(pods), spec.min_available
    expected = _scale(pods)
    return expected, _part(spec.min_available, expected)


def _scale(pods: Sequence[Pod]) -> int:
    """The sum of what the pods' controllers want. None of those that can own a pod here has a scale, Jobs included."""
    for pod in pods:
        owner = controller_of(pod)
        if owner is None:
            continue
        kind = by_name(owner.api_version.rpartition("/")[0], owner.kind)
        if kind is None:
            raise _UncountableError(f'found no controllers for pod "{pod.metadata.name}"')
        raise _UncountableError(f"{kind.resource} does not implement the scale subresource")
    return 0


def _part(amount: IntOrString, whole: int) -> int:
    """A number, or a percentage of the whole, rounded up."""
    return amount if isinstance(amount, int) else -(-int(amount.removesuffix("%")) * whole // 100)


def _going(budget: PodDisruptionBudget, pods: Sequence[Pod], now: datetime) -> dict[str, datetime]:
    """Of the pods that were evicted, those that do not show it yet, and may still do so."""
    evicted = budget.status.disrupted_pods
    return {
        pod.metadata.name: evicted[pod.metadata.name]
        for pod in (pods if evicted else ())
        if pod.metadata.name in evicted
        and pod.metadata.deletion_timestamp is None
        and evicted[pod.metadata.name] + GONE_WITHIN >= now
    }


def _is_healthy(pod: Pod, going: dict[str, datetime]) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.metadata.name not in going and is_ready(pod)
