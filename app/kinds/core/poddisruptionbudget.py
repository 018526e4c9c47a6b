"""The PodDisruptionBudget kind (policy/v1): how many of some pods may be evicted at a time.

`app.registry.eviction` asks it and takes from it; `app.plans.disruption` keeps its status.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from app.kinds.pod.placement_validation import validate_selector
from app.machinery.base import Column, Int32, Int64, IntOrString, Kind, LabelSelector, Object, Struct, Time, at
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid, not_supported
from app.machinery.meta_condition import Condition
from app.machinery.meta_condition_validation import validate_conditions
from app.machinery.metadata_validation import NEGATIVE

POLICIES = ("AlwaysAllow", "IfHealthyBudget")
PERCENT = "a valid percent string must be a numeric string followed by an ending '%'"


class PodDisruptionBudgetSpec(Struct):
    """Which pods, and how many of them must stay."""

    min_available: Annotated[
        IntOrString | None, at(1, "How many of the pods, or what part of them, must stay after an eviction.")
    ] = None
    selector: Annotated[
        LabelSelector | None,
        at(2, "The pods meant. An empty selector means all in the namespace, none means none.", patch="replace"),
    ] = None
    max_unavailable: Annotated[
        IntOrString | None, at(3, "How many of the pods, or what part of them, may be gone. Not with minAvailable.")
    ] = None
    unhealthy_pod_eviction_policy: Annotated[
        str | None,
        at(
            4,
            "Whether pods that are not ready may go: IfHealthyBudget, while enough others are; or AlwaysAllow.",
            enum=("AlwaysAllow", "IfHealthyBudget"),
        ),
    ] = None


def _always(number: int) -> Any:
    """A field that clients insist on, even where it says nothing."""
    return msgspec.field(default_factory=lambda: number)


class PodDisruptionBudgetStatus(Struct):
    """How many more may go now."""

    observed_generation: Annotated[Int64, at(1, "The generation that this was worked out for.")] = 0
    disrupted_pods: Annotated[
        dict[str, Time], at(2, "Pods that were evicted and are not gone yet, and when they were.")
    ] = msgspec.field(default_factory=dict)
    disruptions_allowed: Annotated[Int32, at(3, "How many may be evicted now.", required=True)] = _always(0)
    current_healthy: Annotated[Int32, at(4, "How many are ready.", required=True)] = _always(0)
    desired_healthy: Annotated[Int32, at(5, "How many must stay ready.", required=True)] = _always(0)
    expected_pods: Annotated[Int32, at(6, "How many there are, or should be.", required=True)] = _always(0)
    conditions: Annotated[tuple[Condition, ...], at(7, "DisruptionAllowed.", patch="merge", patch_key="type")] = ()


class PodDisruptionBudget(Object):
    """Keeps evictions from taking too many pods at a time."""

    spec: Annotated[PodDisruptionBudgetSpec, at(2, "Which pods, and how many of them must stay.")] = msgspec.field(
        default_factory=PodDisruptionBudgetSpec
    )
    status: Annotated[PodDisruptionBudgetStatus, at(3, "How many more may go now.")] = msgspec.field(
        default_factory=PodDisruptionBudgetStatus
    )


def on_create(budget: PodDisruptionBudget, _: datetime) -> PodDisruptionBudget:
    return replace(budget, metadata=replace(budget.metadata, generation=1), status=PodDisruptionBudgetStatus())


def on_update(new: PodDisruptionBudget, old: PodDisruptionBudget) -> PodDisruptionBudget:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def validate(budget: PodDisruptionBudget) -> list[Cause]:
    spec = budget.spec
    return [
        *_exclusive(spec),
        *_amount(spec.min_available, "spec.minAvailable"),
        *_amount(spec.max_unavailable, "spec.maxUnavailable"),
        *validate_selector(spec.selector, "spec.selector"),
        *_policy(spec.unhealthy_pod_eviction_policy),
    ]


def _exclusive(spec: PodDisruptionBudgetSpec) -> Iterator[Cause]:
    if spec.min_available is not None and spec.max_unavailable is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")


def _amount(amount: IntOrString | None, path: str) -> Iterator[Cause]:
    if isinstance(amount, str):
        if not re.fullmatch("[0-9]{1,18}%", amount):
            yield invalid(path, amount, f"{PERCENT} (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
        elif int(amount[:-1]) > 100:
            yield invalid(path, amount, "must not be greater than 100%")
    elif amount is not None and amount < 0:
        yield invalid(path, amount, NEGATIVE)


def _policy(policy: str | None) -> Iterator[Cause]:
    if policy is not None and policy not in POLICIES:
        yield not_supported("spec.unhealthyPodEvictionPolicy", policy, POLICIES)


def validate_status(new: PodDisruptionBudget, _: PodDisruptionBudget) -> list[Cause]:
    status = new.status
    counts = {
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
    }
    negative = [invalid(f"status.{name}", count, NEGATIVE) for name, count in counts.items() if count < 0]
    return [*validate_conditions(status.conditions, "status.conditions"), *negative]


def row(budget: PodDisruptionBudget, now: datetime) -> list[Any]:
    meta, spec = budget.metadata, budget.spec
    return [
        meta.name,
        "N/A" if spec.min_available is None else str(spec.min_available),
        "N/A" if spec.max_unavailable is None else str(spec.max_unavailable),
        budget.status.disruptions_allowed,
        age(meta.creation_timestamp, now),
    ]


KIND = Kind(
    type=PodDisruptionBudget,
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    short_names=("pdb",),
    has_status=True,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_status=validate_status,
    columns=(
        Column(name="Name", format="name", description="Name of the budget."),
        Column(name="Min Available", description="How many of the pods must stay."),
        Column(name="Max Unavailable", description="How many of the pods may be gone."),
        Column(name="Allowed Disruptions", type="integer", description="How many may be evicted now."),
        Column(name="Age", description="Time since the budget was created."),
    ),
    row=row,
    example="""\
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: workers
spec:
  minAvailable: 2
  selector:
    matchLabels:
      app: worker
""",
)
