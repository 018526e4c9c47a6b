"""Validation of what says how a group of pods is scheduled, for PodGroups, Workloads and Jobs' `spec.scheduling`.

Of what there is only `gang.minCount` can change. Messages are those of Kubernetes' declarative validation.
"""

from collections.abc import Iterator, Mapping, Sequence

from app.kinds.scheduling.pod_group_schema import (
    DisruptionMode,
    PodGroupResourceClaim,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    PodGroupTemplate,
)
from app.kinds.scheduling.priorityclass import HIGHEST
from app.machinery import name_validation
from app.machinery.errors import Cause, duplicate, invalid, required, too_many
from app.machinery.meta.metadata_validation import IMMUTABLE

SET, CLEARED = "field cannot be set once created", "field cannot be cleared once set"
MOST_CLAIMS = 4
MOST_TOPOLOGIES = 1
POSITIVE = "must be greater than or equal to 1"


def exactly_one(members: dict[str, object], path: str, *, optional: bool = False) -> Iterator[Cause]:
    """Of a struct's members, by their names on the wire."""
    found = [name for name, member in members.items() if member is not None]
    listed = ", ".join(f"`{name}`" for name in members)
    if not found and not optional:
        yield invalid(path, "", f"must specify one of: {listed}")
    elif len(found) > 1:
        yield invalid(path, f"{{{', '.join(found)}}}", f"must specify exactly one of: {listed}")


def validate_terms(terms: PodGroupSpec | PodGroupTemplate, path: str) -> Iterator[Cause]:
    yield from _policy(terms.scheduling_policy, f"{path}.schedulingPolicy")
    yield from validate_constraints(terms.scheduling_constraints, f"{path}.schedulingConstraints")
    yield from validate_claims(terms.resource_claims, f"{path}.resourceClaims")
    yield from validate_disruption_mode(terms.disruption_mode, f"{path}.disruptionMode")
    for text in name_validation.dns_subdomain(terms.priority_class_name) if terms.priority_class_name else ():
        yield invalid(f"{path}.priorityClassName", terms.priority_class_name, text)
    if terms.priority is not None and terms.priority > HIGHEST:
        yield invalid(f"{path}.priority", terms.priority, f"must be less than or equal to {HIGHEST}")


def _policy(policy: PodGroupSchedulingPolicy, path: str) -> Iterator[Cause]:
    yield from exactly_one({"basic": policy.basic, "gang": policy.gang}, path)
    if policy.gang is not None and policy.gang.min_count == 0:
        yield required(f"{path}.gang.minCount")
    elif policy.gang is not None and policy.gang.min_count < 0:
        yield invalid(f"{path}.gang.minCount", policy.gang.min_count, POSITIVE)


def validate_disruption_mode(mode: DisruptionMode | None, path: str) -> Iterator[Cause]:
    if mode is not None:
        yield from exactly_one({"single": mode.single, "all": mode.all}, path)


def validate_terms_update(
    new: PodGroupSpec | PodGroupTemplate, old: PodGroupSpec | PodGroupTemplate, path: str
) -> Iterator[Cause]:
    """Yield the changes of anything but `gang.minCount`."""
    yield from _policy_update(new.scheduling_policy, old.scheduling_policy, f"{path}.schedulingPolicy")
    kept = {
        "schedulingConstraints": (new.scheduling_constraints, old.scheduling_constraints),
        "resourceClaims": (new.resource_claims, old.resource_claims),
        "disruptionMode": (new.disruption_mode, old.disruption_mode),
        "priorityClassName": (new.priority_class_name, old.priority_class_name),
        "priority": (new.priority, old.priority),
    }
    yield from unchanged(kept, path)


def unchanged(kept: Mapping[str, tuple[object, object]], path: str) -> Iterator[Cause]:
    """Fields that cannot change, by their names on the wire: what they are now, and what they were."""
    return (invalid(f"{path}.{wire}", now, IMMUTABLE) for wire, (now, was) in kept.items() if now != was)


def _policy_update(new: PodGroupSchedulingPolicy, old: PodGroupSchedulingPolicy, path: str) -> Iterator[Cause]:
    yield from unchanged({"basic": (new.basic, old.basic)}, path)
    if (new.gang is None) != (old.gang is None):
        yield invalid(f"{path}.gang", None, SET if old.gang is None else CLEARED)


def validate_constraints(constraints: PodGroupSchedulingConstraints | None, path: str) -> Iterator[Cause]:
    if constraints is None:
        return
    if len(constraints.topology) > MOST_TOPOLOGIES:
        yield too_many(f"{path}.topology", len(constraints.topology), MOST_TOPOLOGIES)
        return
    for index, each in enumerate(constraints.topology):
        yield from must_be(each.key, name_validation.qualified_name(each.key), f"{path}.topology[{index}].key")


def validate_claims(claims: Sequence[PodGroupResourceClaim], path: str) -> Iterator[Cause]:
    if len(claims) > MOST_CLAIMS:
        yield too_many(path, len(claims), MOST_CLAIMS)
        return
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        if claim.name in seen:
            yield duplicate(f"{path}[{index}]", claim)
        seen.add(claim.name)
        yield from _claim(claim, f"{path}[{index}]")


def _claim(claim: PodGroupResourceClaim, path: str) -> Iterator[Cause]:
    yield from must_be(claim.name, name_validation.dns_label(claim.name), f"{path}.name")
    sources = {
        "resourceClaimName": claim.resource_claim_name,
        "resourceClaimTemplateName": claim.resource_claim_template_name,
    }
    yield from exactly_one(dict(sources), path)
    for wire, name in sources.items():
        for text in name_validation.dns_subdomain(name) if name is not None else ():
            yield invalid(f"{path}.{wire}", name, text)


def must_be(value: str, faults: list[str], path: str) -> Iterator[Cause]:
    """A value that must be given; `faults` are what is wrong with it."""
    if not value:
        yield required(path)
    else:
        yield from (invalid(path, value, text) for text in faults)
