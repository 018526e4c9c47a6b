"""The ValidatingAdmissionPolicy kind: rules in CEL for what is written. One is in force where a binding names it."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.admission.match_validation import validate_match
from app.kinds.admission.policy_expressions import find_faults
from app.kinds.admission.policy_schema import (
    MatchResources,
    NamedRuleWithOperations,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicySpec,
    ValidatingAdmissionPolicyStatus,
)
from app.machinery.base import Column, Kind, LabelSelector
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, invalid, not_supported, required

__all__ = ["GROUP", "KIND", "ValidatingAdmissionPolicy", "default_match"]

GROUP = "admissionregistration.k8s.io"
REASONS = ("Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge")
FAILURE_POLICIES = ("Fail", "Ignore")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EVERYTHING = LabelSelector()


def default_match(match: MatchResources | None) -> MatchResources | None:
    """Return match constraints with Kubernetes' defaults."""
    if match is None:
        return None
    return replace(
        match,
        namespace_selector=match.namespace_selector or _EVERYTHING,
        object_selector=match.object_selector or _EVERYTHING,
        match_policy=match.match_policy or "Equivalent",
        resource_rules=tuple(map(_default_rule, match.resource_rules)),
        exclude_resource_rules=tuple(map(_default_rule, match.exclude_resource_rules)),
    )


def _default_rule(rule: NamedRuleWithOperations) -> NamedRuleWithOperations:
    return rule if rule.scope else replace(rule, scope="*")


def prepare(policy: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicy:
    spec = policy.spec
    match, failure = default_match(spec.match_constraints), spec.failure_policy or "Fail"
    return replace(policy, spec=replace(spec, match_constraints=match, failure_policy=failure))


def on_create(policy: ValidatingAdmissionPolicy, _: datetime) -> ValidatingAdmissionPolicy:
    """Every expression was compiled: nothing is left for a controller to find out."""
    status = ValidatingAdmissionPolicyStatus(observed_generation=1)
    return replace(policy, metadata=replace(policy.metadata, generation=1), status=status)


def on_update(new: ValidatingAdmissionPolicy, old: ValidatingAdmissionPolicy) -> ValidatingAdmissionPolicy:
    generation = old.metadata.generation + (new.spec != old.spec)
    status = replace(old.status, observed_generation=generation)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=status)


def validate(policy: ValidatingAdmissionPolicy) -> list[Cause]:
    spec = policy.spec
    return [*_validate_parts(spec), *find_faults(spec)]


def _validate_parts(spec: ValidatingAdmissionPolicySpec) -> Iterator[Cause]:
    match = spec.match_constraints
    if match is None:
        yield required("spec.matchConstraints")
    else:
        if not match.resource_rules:
            yield required("spec.matchConstraints.resourceRules")
        yield from validate_match(match, "spec.matchConstraints")
    if spec.failure_policy not in FAILURE_POLICIES:
        yield not_supported("spec.failurePolicy", spec.failure_policy, FAILURE_POLICIES)
    kind = spec.param_kind
    if kind is not None and (kind.api_version, kind.kind) != ("v1", "ConfigMap"):
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        yield invalid("spec.paramKind", named, "only v1 ConfigMap is supported")
    if not spec.validations and not spec.audit_annotations:
        yield required("spec.validations", "validations or auditAnnotations must contain at least one item")
    for index, rule in enumerate(spec.validations):
        if rule.reason not in (None, *REASONS):
            yield not_supported(f"spec.validations[{index}].reason", rule.reason, REASONS)
    for path, names in (
        ("spec.variables", [each.name for each in spec.variables]),
        ("spec.matchConditions", [each.name for each in spec.match_conditions]),
        ("spec.auditAnnotations", [each.key for each in spec.audit_annotations]),
    ):
        yield from _validate_names(path, names)


def _validate_names(path: str, names: list[str]) -> Iterator[Cause]:
    field = "key" if path.endswith("Annotations") else "name"
    for index, name in enumerate(names):
        if not name:
            yield required(f"{path}[{index}].{field}")
        elif name in names[:index]:
            yield duplicate(f"{path}[{index}].{field}", name)
        elif path == "spec.variables" and not _IDENTIFIER.fullmatch(name):
            yield invalid(f"{path}[{index}].{field}", name, "name is not a valid CEL identifier")


def row(policy: ValidatingAdmissionPolicy, now: datetime) -> list[Any]:
    meta, kind = policy.metadata, policy.spec.param_kind
    params = f"{kind.api_version}/{kind.kind}" if kind else "<unset>"
    return [meta.name, len(policy.spec.validations), params, age(meta.creation_timestamp, now)]


KIND = Kind(
    type=ValidatingAdmissionPolicy,
    group=GROUP,
    version="v1",
    plural="validatingadmissionpolicies",
    categories=("api-extensions",),
    namespaced=False,
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    columns=(
        Column(name="Name", format="name", description="Name of the policy."),
        Column(name="Validations", type="integer", description="Number of rules."),
        Column(name="ParamKind", description="Kind of the parameters."),
        Column(name="Age", description="Time since the policy was created."),
    ),
    row=row,
    example="""\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: team-label
  labels:
    team: operations
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: ["batch"]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["jobs"]
  validations:
  - expression: "has(object.metadata.labels) && 'team' in object.metadata.labels"
    message: "a Job needs the label team"
""",
)
