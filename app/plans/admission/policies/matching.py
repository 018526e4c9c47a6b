"""Matching: which policies in force apply to a request, by operation, resource and labels. Pure, and without any CEL."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.kinds.admission.policy_schema import (
    MatchResources,
    NamedRuleWithOperations,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from app.kinds.admission.webhook_schema import RuleWithOperations
from app.machinery.base import Kind, LabelSelector
from app.machinery.selectors import from_label_selector

OWN_GROUP = "admissionregistration.k8s.io"
REVIEWS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})


class Target(NamedTuple):
    """What a request writes. `label_sets`: of the new and the old object; `namespace_labels`: of its namespace, or its own."""

    kind: Kind
    operation: str  # CREATE, UPDATE or DELETE
    namespace: str
    name: str
    subresource: str
    label_sets: Sequence[Mapping[str, str]]
    namespace_labels: Mapping[str, str] | None


class Bound(NamedTuple):
    """A policy, and the binding that puts it in force."""

    policy: ValidatingAdmissionPolicy
    binding: ValidatingAdmissionPolicyBinding

    @property
    def key(self) -> str:
        """Tells versions of a policy apart, for who keeps what was compiled."""
        return f"{self.policy.metadata.uid}/{self.policy.metadata.resource_version}"


def in_force(
    policies: Iterable[ValidatingAdmissionPolicy], bindings: Iterable[ValidatingAdmissionPolicyBinding]
) -> tuple[Bound, ...]:
    """Return each binding with its policy, in the order of names."""
    known = {each.metadata.name: each for each in policies}
    ordered = sorted(bindings, key=lambda each: (each.spec.policy_name, each.metadata.name))
    return tuple(Bound(known[each.spec.policy_name], each) for each in ordered if each.spec.policy_name in known)


def could_match(bound: Sequence[Bound], kind: Kind, operation: str, subresource: str = "") -> bool:
    """Return whether any policy is about the resource at all. Cheap: most requests end here."""
    return any(
        matches_rule(rule, kind, operation, subresource)
        for each in bound
        if (match := each.policy.spec.match_constraints) is not None
        for rule in match.resource_rules
    )


def matching(bound: Iterable[Bound], target: Target) -> list[Bound]:
    """Return the policies that apply to a request. Policies and bindings themselves are never subject to any."""
    if target.kind.group == OWN_GROUP:
        return []
    return [each for each in bound if _applies(each, target)]


def _applies(bound: Bound, target: Target) -> bool:
    constraints, narrowed = bound.policy.spec.match_constraints, bound.binding.spec.match_resources
    return (
        constraints is not None and _matches(constraints, target) and (narrowed is None or _matches(narrowed, target))
    )


def _matches(match: MatchResources, target: Target) -> bool:
    def is_named(rules: Iterable[NamedRuleWithOperations]) -> bool:
        return any(
            matches_rule(rule, target.kind, target.operation, target.subresource)
            and (not rule.resource_names or target.name in rule.resource_names)
            for rule in rules
        )

    if match.resource_rules and not is_named(match.resource_rules):
        return False
    if is_named(match.exclude_resource_rules):
        return False
    labels = target.namespace_labels  # what is in no namespace, and is none, is not excluded by its selector
    if labels is not None and not selects(match.namespace_selector, [labels]):
        return False
    return selects(match.object_selector, target.label_sets)


def selects(selector: LabelSelector | None, label_sets: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a selector matches any of the label sets. An empty one matches all."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return True
    made = from_label_selector(selector)
    return any(made.matches(dict(labels)) for labels in label_sets)


def matches_rule(
    rule: NamedRuleWithOperations | RuleWithOperations, kind: Kind, operation: str, subresource: str
) -> bool:
    """Return whether a rule is about an operation on a resource.

    Each stored kind has one version for policies, so both match policies mean the same; versions of Events are one kind.
    """
    if not ({"*", operation} & {*rule.operations} and {"*", kind.group} & {*rule.api_groups}):
        return False
    if not {"*", kind.version} & {*rule.api_versions}:
        return False
    if rule.scope not in (None, "*", "Namespaced" if kind.namespaced else "Cluster"):
        return False
    return any(_is_resource(each, kind.plural, subresource) for each in rule.resources)


def _is_resource(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, sub = pattern.partition("/")
    if resource not in ("*", plural):
        return False
    return sub in ("*", subresource) if "/" in pattern else not subresource
