"""The ReplicaSet kind: keep a number of equal pods running. A Deployment has one for each template that it has had.

`app.plans.deployments.replica_set` decides about its pods.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.apps.apps_schema import ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus
from app.kinds.apps.replica_validation import not_negative, validate_counts, validate_pods
from app.kinds.pod.pod_warnings import warnings_of_spec
from app.kinds.pod.shared_specs import TEMPLATE_SPECS
from app.machinery.base import Column, Kind, ScalePaths
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid
from app.machinery.meta.metadata_validation import IMMUTABLE
from app.machinery.selectors import format_selector

__all__ = ["KIND", "ReplicaSet", "ReplicaSetCondition", "ReplicaSetSpec", "ReplicaSetStatus"]


def prepare(replica_set: ReplicaSet) -> ReplicaSet:
    """The defaults. Labels are those of the template if there are none. Idempotent."""
    spec, meta = replica_set.spec, replica_set.metadata
    template = replace(spec.template, spec=TEMPLATE_SPECS.share(spec.template.spec))
    made = replace(spec, template=template, replicas=1 if spec.replicas is None else spec.replicas)
    return replace(replica_set, spec=made, metadata=replace(meta, labels=meta.labels or template.metadata.labels))


def on_create(replica_set: ReplicaSet, _: datetime) -> ReplicaSet:
    return replace(replica_set, metadata=replace(replica_set.metadata, generation=1), status=ReplicaSetStatus())


def on_update(new: ReplicaSet, old: ReplicaSet) -> ReplicaSet:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def validate(replica_set: ReplicaSet) -> list[Cause]:
    spec = replica_set.spec
    return [
        *not_negative("spec", replicas=spec.replicas, minReadySeconds=spec.min_ready_seconds),
        *validate_pods(spec.selector, spec.template),
    ]


def validate_update(new: ReplicaSet, old: ReplicaSet) -> list[Cause]:
    if new.spec.selector == old.spec.selector:
        return []
    return [invalid("spec.selector", new.spec.selector, IMMUTABLE)]


def validate_status(new: ReplicaSet, _: ReplicaSet) -> list[Cause]:
    status = new.status
    causes = validate_counts(
        status.replicas,
        fullyLabeledReplicas=status.fully_labeled_replicas,
        readyReplicas=status.ready_replicas,
        availableReplicas=status.available_replicas,
        terminatingReplicas=status.terminating_replicas or 0,
        observedGeneration=status.observed_generation,
    )
    return [*causes]


def warnings(new: ReplicaSet, old: ReplicaSet | None) -> list[str]:
    if old is not None and old.spec.template == new.spec.template:
        return []
    return warnings_of_spec(new.spec.template.spec, "spec.template.spec")


def row(replica_set: ReplicaSet, now: datetime) -> list[Any]:
    meta, spec, status = replica_set.metadata, replica_set.spec, replica_set.status
    containers = spec.template.spec.containers
    return [
        meta.name,
        1 if spec.replicas is None else spec.replicas,
        status.replicas,
        status.ready_replicas,
        age(meta.creation_timestamp, now),
        ",".join(each.name for each in containers),
        ",".join(each.image for each in containers),
        format_selector(spec.selector) or "<none>",
    ]


EXAMPLE = """\
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: server
spec:
  replicas: 2
  selector:
    matchLabels:
      app: server
  template:
    metadata:
      labels:
        app: server
    spec:
      containers:
      - name: main
        image: busybox:1.37
        command: [sleep, infinity]
"""

KIND = Kind(
    type=ReplicaSet,
    group="apps",
    version="v1",
    plural="replicasets",
    short_names=("rs",),
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
        Column(name="Name", format="name", description="Name of the ReplicaSet."),
        Column(name="Desired", type="integer", description="How many pods should run."),
        Column(name="Current", type="integer", description="How many pods there are."),
        Column(name="Ready", type="integer", description="How many are ready."),
        Column(name="Age", description="Time since the ReplicaSet was created."),
        Column(name="Containers", description="Names of the template's containers.", priority=1),
        Column(name="Images", description="Images of the template's containers.", priority=1),
        Column(name="Selector", description="Labels that the pods have.", priority=1),
    ),
    row=row,
    fields={"status.replicas": lambda replica_set: str(replica_set.status.replicas)},
    scale=ScalePaths(
        spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"), selector=("spec", "selector")
    ),
    example=EXAMPLE,
)
