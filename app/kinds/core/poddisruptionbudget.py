"""The PodDisruptionBudget kind (policy/v1): how many of some pods may be evicted at a time.

`app.registry.verbs.eviction` asks it and takes from it; `app.plans.disruption` keeps its status.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from app.kinds.core.poddisruptionbudget_schema import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from app.kinds.pod.placement_validation import validate_selector
from app.machinery.base import Column, IntOrString, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid, not_supported
from app.machinery.meta.meta_condition import validate_conditions
from app.machinery.meta.metadata_validation import NEGATIVE

__all__ = [
    "KIND",
    "PERCENT",
    "POLICIES",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "on_create",
    "on_update",
    "row",
    "validate",
    "validate_status",
]


POLICIES = ("AlwaysAllow", "IfHealthyBudget")
PERCENT = "a valid percent string must be a numeric string followed by an ending '%'"


def _always(number: int) -> Any:
    """A field that clients insist on, even where it says nothing."""
    return msgspec.field(default_factory=lambda: number)


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
