"""Admission of Workloads, PodGroups and pods of groups: fields behind feature gates, and the priority of a group.

The registry's strategies call it for what clients send, the Job controller for the groups that it creates. A field whose gate is
off is dropped from what is new, and kept where it is there already, as Kubernetes does.
"""

from typing import TypeVar

from msgspec.structs import replace

from app.kinds.pod.pod_schema import PodSpec
from app.kinds.scheduling.pod_group_schema import PodGroup, PodGroupSpec, PodGroupTemplate, Workload
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.machinery.errors import forbidden_error
from app.machinery.feature_gates import GENERIC_WORKLOAD, TOPOLOGY_AWARE, Features
from app.plans.admission.pod_admission import Classes, default_class

T = TypeVar("T", PodGroupSpec, PodGroupTemplate)


def drop_disabled_group_fields(group: PodGroup, old: PodGroup | None, features: Features) -> PodGroup:
    before = old.spec if old is not None else None
    spec = _drop_disabled(group.spec, before, features)
    if group.status.resource_claim_statuses and not (before is not None and before.resource_claims):
        group = replace(group, status=replace(group.status, resource_claim_statuses=()))
    return group if spec is group.spec else replace(group, spec=spec)


def drop_disabled_workload_fields(workload: Workload, old: Workload | None, features: Features) -> Workload:
    before = {each.name: each for each in old.spec.pod_group_templates} if old is not None else {}
    templates = tuple(
        _drop_disabled(each, before.get(each.name), features) for each in workload.spec.pod_group_templates
    )
    return replace(workload, spec=replace(workload.spec, pod_group_templates=templates))


def _drop_disabled(terms: T, old: T | None, features: Features) -> T:
    """Claims of a whole group need DRAWorkloadResourceClaims, which there is not here."""
    had_constraints = old is not None and old.scheduling_constraints is not None
    if terms.scheduling_constraints is not None and TOPOLOGY_AWARE not in features and not had_constraints:
        terms = replace(terms, scheduling_constraints=None)
    if terms.resource_claims and not (old is not None and old.resource_claims):
        terms = replace(terms, resource_claims=())
    return terms


def drop_disabled_pod_fields(spec: PodSpec, old: PodSpec | None, features: Features) -> PodSpec:
    had_group = old is not None and old.scheduling_group is not None
    if spec.scheduling_group is None or GENERIC_WORKLOAD in features or had_group:
        return spec
    return replace(spec, scheduling_group=None)


def with_group_priority(group: PodGroup, classes: Classes) -> PodGroup:
    """The group with the priority of its class. Raises the 403 for an unknown class or for another priority."""
    name = group.metadata.name or group.metadata.generate_name
    wanted = group.spec.priority_class_name
    found = classes.get(wanted) if wanted else default_class(classes.values())
    if wanted and found is None:
        raise forbidden_error(POD_GROUPS.resource, name, f"no PriorityClass with name {wanted} was found")
    value = (found.value or 0) if found is not None else 0
    if group.spec.priority not in (None, value):
        why = (
            f"priority set in the pod group ({group.spec.priority}) must match the priority computed ({value}) "
            "based on the priority class set in the spec"
        )
        raise forbidden_error(POD_GROUPS.resource, name, why)
    class_name = found.metadata.name if found is not None else ""
    return replace(group, spec=replace(group.spec, priority_class_name=class_name, priority=value))
