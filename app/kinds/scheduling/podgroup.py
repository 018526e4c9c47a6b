"""The PodGroup kind (scheduling.k8s.io/v1beta1): pods that are scheduled with regard to each other.

A pod belongs to the group that its `spec.schedulingGroup.podGroupName` names. The Job controller makes groups, by
`app.plans.jobs.workloads`; so may anybody. The scheduler keeps their status. `podgroup_v1alpha3` is the same under its alpha
version. Both are served only where the feature gate GenericWorkload is on.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.scheduling.pod_group_schema import (
    DisruptionMode,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodGroupTemplate,
    SingleDisruptionMode,
    WorkloadReference,
)
from app.kinds.scheduling.pod_group_validation import must_be, unchanged, validate_terms, validate_terms_update
from app.machinery import name_validation
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid
from app.machinery.feature_gates import GENERIC_WORKLOAD
from app.machinery.meta.meta_condition import condition, validate_conditions

__all__ = [
    "DISRUPTED",
    "KIND",
    "SCHEDULED",
    "PodGroup",
    "PodGroupStatus",
    "disrupts_whole",
    "on_create",
    "on_update",
    "policy_word",
    "prepare",
    "row",
    "validate",
    "validate_status",
    "validate_update",
]


# Conditions: whether the group has ever found its places; whether all of its pods are made to go.
SCHEDULED, DISRUPTED = "PodGroupInitiallyScheduled", "DisruptionTarget"
_SINGLE = DisruptionMode(single=SingleDisruptionMode())


def prepare(group: PodGroup) -> PodGroup:
    """Unless the group says otherwise, each of its pods may be disrupted by itself."""
    if group.spec.disruption_mode is not None:
        return group
    return replace(group, spec=replace(group.spec, disruption_mode=_SINGLE))


def on_create(group: PodGroup, _: datetime) -> PodGroup:
    return replace(group, metadata=replace(group.metadata, generation=1), status=PodGroupStatus())


def on_update(new: PodGroup, old: PodGroup) -> PodGroup:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def validate(group: PodGroup) -> list[Cause]:
    return [*_reference(group.spec.workload_ref, "spec.workloadRef"), *validate_terms(group.spec, "spec")]


def _reference(workload: WorkloadReference | None, path: str) -> list[Cause]:
    if workload is None:
        return []
    name, template = workload.workload_name, workload.template_name
    return [
        *must_be(name, name_validation.dns_subdomain(name), f"{path}.workloadName"),
        *must_be(template, name_validation.dns_label(template), f"{path}.templateName"),
    ]


def validate_update(new: PodGroup, old: PodGroup) -> list[Cause]:
    return [
        *unchanged({"workloadRef": (new.spec.workload_ref, old.spec.workload_ref)}, "spec"),
        *validate_terms_update(new.spec, old.spec, "spec"),
    ]


def validate_status(new: PodGroup, _: PodGroup) -> list[Cause]:
    claims, path = {each.name for each in new.spec.resource_claims}, "status.resourceClaimStatuses"
    detail = "must match the name of an entry in `spec.resourceClaims`"
    return [
        *validate_conditions(new.status.conditions, "status.conditions"),
        *(
            invalid(f"{path}[{index}].name", each.name, detail)
            for index, each in enumerate(new.status.resource_claim_statuses)
            if each.name not in claims
        ),
    ]


def disrupts_whole(spec: PodGroupSpec) -> bool:
    """Return whether all pods of a group are disrupted together or none is."""
    return spec.disruption_mode is not None and spec.disruption_mode.all is not None


def policy_word(terms: PodGroupSpec | PodGroupTemplate) -> str:
    """Return how the pods find their places, in the word that `kubectl get` shows."""
    policy = terms.scheduling_policy
    return f"Gang({policy.gang.min_count})" if policy.gang is not None else "Basic"


def row(group: PodGroup, now: datetime) -> list[Any]:
    meta, reference = group.metadata, group.spec.workload_ref
    scheduled = condition(group.status.conditions, SCHEDULED)
    return [
        meta.name,
        policy_word(group.spec),
        scheduled.status if scheduled else "",
        age(meta.creation_timestamp, now),
        reference.workload_name if reference else "<none>",
    ]


KIND = Kind(
    type=PodGroup,
    group="scheduling.k8s.io",
    version="v1beta1",
    plural="podgroups",
    feature_gate=GENERIC_WORKLOAD,
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    columns=(
        Column(name="Name", format="name", description="Name of the group."),
        Column(name="Policy", description="How its pods find their places."),
        Column(name="Scheduled", description="Whether they have found them."),
        Column(name="Age", description="Time since the group was created."),
        Column(name="Workload", description="The Workload that it was made from.", priority=1),
    ),
    row=row,
    example="""\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata:
  name: workers
spec:
  schedulingPolicy:
    gang:
      minCount: 4
""",
)
