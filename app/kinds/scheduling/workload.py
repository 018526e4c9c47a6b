"""The Workload kind (scheduling.k8s.io/v1alpha2): how the pods of something that runs many of them are to be scheduled.

Nothing is scheduled by it: PodGroups are made from its templates. The Job controller makes one for each Job that is to be
scheduled all at once, by `app.plans.jobs.workloads`.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec

from app.kinds.scheduling.pod_group_schema import PodGroupTemplate
from app.kinds.scheduling.pod_group_validation import must_be, validate_terms
from app.kinds.scheduling.podgroup import policy_word, warnings_of_terms
from app.machinery import name_validation
from app.machinery.base import Column, Kind, Object, Struct, at
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, invalid, required, too_many
from app.machinery.metadata_validation import IMMUTABLE

MOST_TEMPLATES = 8


class TypedLocalObjectReference(Struct):
    """Names an object of any kind in the same namespace."""

    api_group: Annotated[str, at(1, "Group of the object's kind; empty for the core group.")] = ""
    kind: Annotated[str, at(2, "Kind of the object.", required=True)] = ""
    name: Annotated[str, at(3, "Name of the object.", required=True)] = ""


class WorkloadSpec(Struct):
    """What the pods are of, and how they are to be scheduled."""

    controller_ref: Annotated[
        TypedLocalObjectReference | None,
        at(1, "What the pods are of, such as a Job. For people and tools. Cannot change."),
    ] = None
    pod_group_templates: Annotated[
        tuple[PodGroupTemplate, ...],
        at(2, "What PodGroups are made from, 1 to 8. Cannot change.", patch_key="name", required=True),
    ] = ()


class Workload(Object):
    """How the pods of something that runs many of them are to be scheduled."""

    spec: Annotated[WorkloadSpec, at(2, "What the pods are of, and how they are to be scheduled.", required=True)] = (
        msgspec.field(default_factory=WorkloadSpec)
    )


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
