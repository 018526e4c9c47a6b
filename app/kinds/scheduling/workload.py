"""The Workload kind (scheduling.k8s.io/v1alpha2): how the pods of something that runs many of them are to be scheduled.

Nothing is scheduled by it: PodGroups are made from its templates. The Job controller makes one for each Job that is to be
scheduled all at once, by `app.plans.jobs.workloads`.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from app.kinds.scheduling.pod_group_schema import TypedLocalObjectReference, Workload, WorkloadSpec
from app.kinds.scheduling.pod_group_validation import must_be, validate_terms
from app.kinds.scheduling.podgroup import policy_word, warnings_of_terms
from app.machinery import name_validation
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, invalid, required, too_many
from app.machinery.meta.metadata_validation import IMMUTABLE

__all__ = [
    "KIND",
    "MOST_TEMPLATES",
    "TypedLocalObjectReference",
    "Workload",
    "WorkloadSpec",
    "row",
    "validate",
    "validate_update",
    "warnings",
]


MOST_TEMPLATES = 8


def validate(workload: Workload) -> list[Cause]:
    spec = workload.spec
    return [*_controller(spec.controller_ref, "spec.controllerRef"), *_templates(spec, "spec.podGroupTemplates")]


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
        yield required(path)
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


def validate_update(new: Workload, old: Workload) -> list[Cause]:
    kept = {
        "controllerRef": (new.spec.controller_ref, old.spec.controller_ref),
        "podGroupTemplates": (new.spec.pod_group_templates, old.spec.pod_group_templates),
    }
    return [invalid(f"spec.{wire}", now, IMMUTABLE) for wire, (now, was) in kept.items() if now != was]


def warnings(new: Workload, old: Workload | None) -> list[str]:
    if old is not None:
        return []
    templates = enumerate(new.spec.pod_group_templates)
    return [text for index, each in templates for text in warnings_of_terms(each, f"spec.podGroupTemplates[{index}]")]


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
    version="v1alpha2",
    plural="workloads",
    validate=validate,
    validate_update=validate_update,
    warnings=warnings,
    columns=(
        Column(name="Name", format="name", description="Name of the Workload."),
        Column(name="Controller", description="What its pods are of."),
        Column(name="Policies", description="How the pods of each of its templates find their places."),
        Column(name="Age", description="Time since the Workload was created."),
    ),
    row=row,
    example="""\
apiVersion: scheduling.k8s.io/v1alpha2
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
