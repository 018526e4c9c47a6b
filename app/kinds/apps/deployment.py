"""The Deployment kind: keep pods of one template running, and replace them step by step when it changes.

`app.plans.deployments.deployment` decides about its ReplicaSets, one for each template that it has had.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.apps.apps_schema import (
    Deployment,
    DeploymentCondition,
    DeploymentSpec,
    DeploymentStatus,
    DeploymentStrategy,
    RollingUpdateDeployment,
)
from app.kinds.apps.replica_validation import not_negative, validate_counts, validate_pods
from app.kinds.core.poddisruptionbudget import PERCENT
from app.kinds.pod.pod_warnings import warnings_of_spec
from app.kinds.pod.shared_specs import TEMPLATE_SPECS
from app.machinery.base import Column, IntOrString, Kind, ScalePaths
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid, not_supported
from app.machinery.meta.metadata_validation import IMMUTABLE, NEGATIVE
from app.machinery.selectors import format_selector

__all__ = [
    "KIND",
    "RECREATE",
    "Deployment",
    "DeploymentCondition",
    "DeploymentSpec",
    "DeploymentStatus",
    "DeploymentStrategy",
    "RollingUpdateDeployment",
]

RECREATE, ROLLING = "Recreate", "RollingUpdate"
_QUARTER = "25%"


def prepare(deployment: Deployment) -> Deployment:
    """The defaults. Idempotent."""
    spec = deployment.spec
    numbers = {"replicas": 1, "revision_history_limit": 10, "progress_deadline_seconds": 600}
    unset = {name: value for name, value in numbers.items() if getattr(spec, name) is None}
    template = replace(spec.template, spec=TEMPLATE_SPECS.share(spec.template.spec))
    return replace(
        deployment, spec=replace(spec, template=template, strategy=_default_strategy(spec.strategy), **unset)
    )


def _default_strategy(strategy: DeploymentStrategy) -> DeploymentStrategy:
    strategy = replace(strategy, type=strategy.type or ROLLING)
    if strategy.type != ROLLING:
        return strategy
    steps = strategy.rolling_update or RollingUpdateDeployment()
    unset = {name: _QUARTER for name in ("max_unavailable", "max_surge") if getattr(steps, name) is None}
    return replace(strategy, rolling_update=replace(steps, **unset))


def on_create(deployment: Deployment, _: datetime) -> Deployment:
    return replace(deployment, metadata=replace(deployment.metadata, generation=1), status=DeploymentStatus())


def on_update(new: Deployment, old: Deployment) -> Deployment:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def validate(deployment: Deployment) -> list[Cause]:
    spec = deployment.spec
    deadline = spec.progress_deadline_seconds
    causes = [
        *not_negative("spec", replicas=spec.replicas),
        *validate_pods(spec.selector, spec.template),
        *_strategy(spec.strategy),
        *not_negative(
            "spec",
            minReadySeconds=spec.min_ready_seconds,
            revisionHistoryLimit=spec.revision_history_limit,
            progressDeadlineSeconds=deadline,
        ),
    ]
    if deadline is not None and deadline <= spec.min_ready_seconds:
        causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes


def _strategy(strategy: DeploymentStrategy) -> Iterator[Cause]:
    steps = strategy.rolling_update
    if strategy.type not in (RECREATE, ROLLING):
        yield not_supported("spec.strategy", strategy, (RECREATE, ROLLING))
    elif strategy.type == RECREATE and steps is not None:
        yield forbidden("spec.strategy.rollingUpdate", f"may not be specified when strategy `type` is '{RECREATE}'")
    elif strategy.type == ROLLING and steps is not None:
        yield from _steps(steps, "spec.strategy.rollingUpdate")


def _steps(steps: RollingUpdateDeployment, path: str) -> Iterator[Cause]:
    yield from _amount(steps.max_unavailable, f"{path}.maxUnavailable")
    yield from _amount(steps.max_surge, f"{path}.maxSurge")
    if _is_zero(steps.max_unavailable) and _is_zero(steps.max_surge):
        yield invalid(f"{path}.maxUnavailable", steps.max_unavailable, "may not be 0 when `maxSurge` is 0")
    most = steps.max_unavailable
    if isinstance(most, str) and re.fullmatch("[0-9]{1,9}%", most) and int(most[:-1]) > 100:
        yield invalid(f"{path}.maxUnavailable", most, "must not be greater than 100%")


def _amount(amount: IntOrString | None, path: str) -> Iterator[Cause]:
    if isinstance(amount, str) and not re.fullmatch("[0-9]{1,9}%", amount):
        yield invalid(path, amount, f"{PERCENT} (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
    elif isinstance(amount, int) and amount < 0:
        yield invalid(path, amount, NEGATIVE)


def _is_zero(amount: IntOrString | None) -> bool:
    return amount in (0, None) or (isinstance(amount, str) and not amount.rstrip("%").strip("0"))


def validate_update(new: Deployment, old: Deployment) -> list[Cause]:
    if new.spec.selector == old.spec.selector:
        return []
    return [invalid("spec.selector", new.spec.selector, IMMUTABLE)]


def validate_status(new: Deployment, old: Deployment) -> list[Cause]:
    status = new.status
    causes = validate_counts(
        status.replicas,
        observedGeneration=status.observed_generation,
        updatedReplicas=status.updated_replicas,
        readyReplicas=status.ready_replicas,
        availableReplicas=status.available_replicas,
        unavailableReplicas=status.unavailable_replicas,
        terminatingReplicas=status.terminating_replicas or 0,
        collisionCount=status.collision_count or 0,
    )
    if (status.collision_count or 0) < (old.status.collision_count or 0):
        return [*causes, invalid("status.collisionCount", status.collision_count or 0, "cannot be decremented")]
    return [*causes]


def warnings(new: Deployment, old: Deployment | None) -> list[str]:
    if old is not None and old.spec.template == new.spec.template:
        return []
    return warnings_of_spec(new.spec.template.spec, "spec.template.spec")


def row(deployment: Deployment, now: datetime) -> list[Any]:
    meta, spec, status = deployment.metadata, deployment.spec, deployment.status
    containers = spec.template.spec.containers
    return [
        meta.name,
        f"{status.ready_replicas}/{1 if spec.replicas is None else spec.replicas}",
        status.updated_replicas,
        status.available_replicas,
        age(meta.creation_timestamp, now),
        ",".join(each.name for each in containers),
        ",".join(each.image for each in containers),
        format_selector(spec.selector) or "<none>",
    ]


EXAMPLE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: operator
spec:
  replicas: 2
  selector:
    matchLabels:
      app: operator
  template:
    metadata:
      labels:
        app: operator
    spec:
      containers:
      - name: manager
        image: busybox:1.37
        command: [sleep, infinity]
"""

KIND = Kind(
    type=Deployment,
    group="apps",
    version="v1",
    plural="deployments",
    short_names=("deploy",),
    categories=("all",),
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    warnings=warnings,
    columns=(
        Column(name="Name", format="name", description="Name of the Deployment."),
        Column(name="Ready", description="Pods that are ready, and how many should be."),
        Column(name="Up-to-date", type="integer", description="Pods of the newest template."),
        Column(name="Available", type="integer", description="Pods that have been ready for minReadySeconds."),
        Column(name="Age", description="Time since the Deployment was created."),
        Column(name="Containers", description="Names of the template's containers.", priority=1),
        Column(name="Images", description="Images of the template's containers.", priority=1),
        Column(name="Selector", description="Labels that the pods have.", priority=1),
    ),
    row=row,
    scale=ScalePaths(
        spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"), selector=("spec", "selector")
    ),
    example=EXAMPLE,
)
