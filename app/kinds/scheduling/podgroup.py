"""The PodGroup kind (scheduling.k8s.io/v1alpha2): pods that are scheduled with regard to each other.

A pod belongs to the group that its `spec.schedulingGroup.podGroupName` names. The Job controller makes groups, by
`app.plans.jobs.workloads`; so may anybody. The scheduler keeps their status.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.pod.pod_warnings import TEXT
from app.kinds.scheduling.pod_group_schema import PodGroup, PodGroupSpec, PodGroupStatus, PodGroupTemplate
from app.kinds.scheduling.pod_group_validation import exactly_one, must_be, validate_terms
from app.machinery import name_validation
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid
from app.machinery.meta.meta_condition import condition, validate_conditions
from app.machinery.meta.metadata_validation import IMMUTABLE

__all__ = [
    "DISRUPTED",
    "KIND",
    "SCHEDULED",
    "PodGroup",
    "PodGroupStatus",
    "on_create",
    "on_update",
    "policy_word",
    "row",
    "validate",
    "validate_status",
    "validate_update",
    "warnings",
    "warnings_of_terms",
]


# Conditions: whether the group has found its places; whether all of its pods are made to go.
SCHEDULED, DISRUPTED = "PodGroupScheduled", "DisruptionTarget"


def on_create(group: PodGroup, _: datetime) -> PodGroup:
    return replace(group, metadata=replace(group.metadata, generation=1), status=PodGroupStatus())


def on_update(new: PodGroup, old: PodGroup) -> PodGroup:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def validate(group: PodGroup) -> list[Cause]:
    return [*_reference(group.spec, "spec.podGroupTemplateRef"), *validate_terms(group.spec, "spec")]


def _reference(spec: PodGroupSpec, path: str) -> Iterator[Cause]:
    if spec.pod_group_template_ref is None:
        return
    workload = spec.pod_group_template_ref.workload
    yield from exactly_one({"workload": workload}, path)
    if workload is not None:
        name, template = workload.workload_name, workload.pod_group_template_name
        yield from must_be(name, name_validation.dns_subdomain(name), f"{path}.workload.workloadName")
        yield from must_be(template, name_validation.dns_label(template), f"{path}.workload.podGroupTemplateName")


def validate_update(new: PodGroup, old: PodGroup) -> list[Cause]:
    kept = {
        "podGroupTemplateRef": (new.spec.pod_group_template_ref, old.spec.pod_group_template_ref),
        "schedulingPolicy": (new.spec.scheduling_policy, old.spec.scheduling_policy),
        "schedulingConstraints": (new.spec.scheduling_constraints, old.spec.scheduling_constraints),
        "resourceClaims": (new.spec.resource_claims, old.spec.resource_claims),
        "disruptionMode": (new.spec.disruption_mode, old.spec.disruption_mode),
        "priorityClassName": (new.spec.priority_class_name, old.spec.priority_class_name),
        "priority": (new.spec.priority, old.spec.priority),
    }
    return [invalid(f"spec.{wire}", now, IMMUTABLE) for wire, (now, was) in kept.items() if now != was]


def validate_status(new: PodGroup, _: PodGroup) -> list[Cause]:
    return list(validate_conditions(new.status.conditions, "status.conditions"))


def warnings(new: PodGroup, old: PodGroup | None) -> list[str]:
    return warnings_of_terms(new.spec, "spec") if old is None else []


def warnings_of_terms(terms: PodGroupSpec | PodGroupTemplate, path: str) -> list[str]:
    """One text for each field that nobody acts on yet."""
    inert = {
        "resourceClaims": terms.resource_claims,
        "priorityClassName": terms.priority_class_name,
        "priority": terms.priority,
    }
    return [f"{path}.{wire}: {TEXT}" for wire, value in inert.items() if value not in (None, "", ())]


def policy_word(terms: PodGroupSpec | PodGroupTemplate) -> str:
    """Return how the pods find their places, in the word that `kubectl get` shows."""
    policy = terms.scheduling_policy
    return f"Gang({policy.gang.min_count})" if policy.gang is not None else "Basic"


def row(group: PodGroup, now: datetime) -> list[Any]:
    meta, reference = group.metadata, group.spec.pod_group_template_ref
    scheduled = condition(group.status.conditions, SCHEDULED)
    return [
        meta.name,
        policy_word(group.spec),
        scheduled.status if scheduled else "",
        age(meta.creation_timestamp, now),
        reference.workload.workload_name if reference and reference.workload else "<none>",
    ]


KIND = Kind(
    type=PodGroup,
    group="scheduling.k8s.io",
    version="v1alpha2",
    plural="podgroups",
    has_status=True,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    warnings=warnings,
    columns=(
        Column(name="Name", format="name", description="Name of the group."),
        Column(name="Policy", description="How its pods find their places."),
        Column(name="Scheduled", description="Whether they have found them."),
        Column(name="Age", description="Time since the group was created."),
        Column(name="Workload", description="The Workload that it was made from.", priority=1),
    ),
    row=row,
    example="""\
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata:
  name: workers
spec:
  schedulingPolicy:
    gang:
      minCount: 4
""",
)
