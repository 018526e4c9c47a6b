"""The Workload kind (scheduling.k8s.io/v1beta1): how the pods of something that runs many of them are to be scheduled.

Nothing is scheduled by it: PodGroups are made from its templates. The Job controller makes one for each Job where the feature
gate WorkloadWithJob is on, by `app.plans.jobs.workloads`. `workload_v1alpha3` is the same under its alpha version.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from app.kinds.scheduling.pod_group_schema import TypedLocalObjectReference, Workload, WorkloadSpec
from app.kinds.scheduling.pod_group_validation import must_be, unchanged, validate_terms, validate_terms_update
from app.kinds.scheduling.podgroup import policy_word
from app.machinery import name_validation
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, forbidden, invalid, too_many
from app.machinery.feature_gates import GENERIC_WORKLOAD

__all__ = [
    "KIND",
    "MOST_TEMPLATES",
    "TypedLocalObjectReference",
    "Workload",
    "WorkloadSpec",
    "row",
    "validate",
    "validate_update",
]


MOST_TEMPLATES = 8


def validate(workload: Workload) -> list[Cause]:
    spec = workload.spec
    return [
        *_controller(spec.controller_ref, "spec.controllerRef"),
        *_templates(spec, "spec.podGroupTemplates"),
        *_priorities(spec),
    ]


def _controller(reference: TypedLocalObjectReference | None, path: str) -> Iterator[Cause]:
    if reference is None:
        return
    for text in name_validation.dns_subdomain(reference.api_group) if reference.api_group else ():
        yield invalid(f"{path}.apiGroup", reference.api_group, text)
    yield from must_be(reference.kind, name_validation.path_segment(reference.kind), f"{path}.kind")
    yield from must_be(reference.name, name_validation.path_segment(reference.name), f"{path}.name")


def _templates(spec: WorkloadSpec, path: str) -> Iterator[Cause]:
    templates = spec.pod_group_templates
    if not templates:
        yield invalid("spec", "", "must specify one of: `podGroupTemplates`")
    if len(templates) > MOST_TEMPLATES:
        yield too_many(path, len(templates), MOST_TEMPLATES)
        return
    seen: set[str] = set()
    for index, each in enumerate(templates):
        if each.name in seen:
            yield duplicate(f"{path}[{index}]", each)
        seen.add(each.name)
        yield from must_be(each.name, name_validation.dns_label(each.name), f"{path}[{index}].name")
        yield from validate_terms(each, f"{path}[{index}]")


def _priorities(spec: WorkloadSpec) -> Iterator[Cause]:
    """All groups of a Workload are as important as each other."""
    if len({(each.priority_class_name, each.priority) for each in spec.pod_group_templates}) > 1:
        yield invalid("spec", None, "detected multiple priority configurations")


def validate_update(new: Workload, old: Workload) -> list[Cause]:
    kept = {"controllerRef": (new.spec.controller_ref, old.spec.controller_ref)}
    return [*unchanged(kept, "spec"), *_templates_update(new.spec, old.spec, "spec.podGroupTemplates")]


def _templates_update(new: WorkloadSpec, old: WorkloadSpec, path: str) -> Iterator[Cause]:
    before = {each.name: each for each in old.pod_group_templates}
    for index, each in enumerate(new.pod_group_templates):
        if each.name in before:
            yield from validate_terms_update(each, before[each.name], f"{path}[{index}]")
        else:
            yield forbidden(f"{path}[{index}]", "item may not be added")
    if before.keys() - {each.name for each in new.pod_group_templates}:
        yield forbidden(path, "item may not be removed")


def row(workload: Workload, now: datetime) -> list[Any]:
    meta, reference = workload.metadata, workload.spec.controller_ref
    return [
        meta.name,
        f"{reference.kind}/{reference.name}" if reference else "<none>",
        ",".join(map(policy_word, workload.spec.pod_group_templates)),
        age(meta.creation_timestamp, now),
    ]


KIND = Kind(
    type=Workload,
    group="scheduling.k8s.io",
    version="v1beta1",
    plural="workloads",
    feature_gate=GENERIC_WORKLOAD,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the Workload."),
        Column(name="Controller", description="What its pods are of."),
        Column(name="Policies", description="How the pods of each of its templates find their places."),
        Column(name="Age", description="Time since the Workload was created."),
    ),
    row=row,
    example="""\
apiVersion: scheduling.k8s.io/v1beta1
kind: Workload
metadata:
  name: training
spec:
  controllerRef:
    apiGroup: batch
    kind: Job
    name: training
  podGroupTemplates:
  - name: workers
    schedulingPolicy:
      gang:
        minCount: 4
""",
)
