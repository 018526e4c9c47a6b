"""Validation of match constraints: the operations, resources and selectors that say what a policy or binding is for."""

from collections.abc import Iterator

from app.kinds.admission.policy_schema import MatchResources, NamedRuleWithOperations
from app.kinds.pod.placement_validation import validate_selector
from app.machinery.errors import Cause, invalid, not_supported, required

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
MATCH_POLICIES = ("Equivalent", "Exact")


def validate_match(match: MatchResources, path: str) -> Iterator[Cause]:
    for name, selector in (("namespaceSelector", match.namespace_selector), ("objectSelector", match.object_selector)):
        if selector is not None:
            yield from validate_selector(selector, f"{path}.{name}")
    for name, rules in (
        ("resourceRules", match.resource_rules),
        ("excludeResourceRules", match.exclude_resource_rules),
    ):
        for index, rule in enumerate(rules):
            yield from _validate_rule(rule, f"{path}.{name}[{index}]")
    if match.match_policy not in (None, *MATCH_POLICIES):
        yield not_supported(f"{path}.matchPolicy", match.match_policy, MATCH_POLICIES)


def _validate_rule(rule: NamedRuleWithOperations, path: str) -> Iterator[Cause]:
    parts = (
        ("operations", rule.operations),
        ("apiGroups", rule.api_groups),
        ("apiVersions", rule.api_versions),
        ("resources", rule.resources),
    )
    for name, values in parts:
        if not values:
            yield required(f"{path}.{name}")
        elif name != "resources" and "*" in values and len(values) > 1:
            yield invalid(f"{path}.{name}", list(values), "if '*' is present, must not specify other values")
    for index, operation in enumerate(rule.operations):
        if operation not in OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, OPERATIONS)
    if rule.scope not in (None, *SCOPES):
        yield not_supported(f"{path}.scope", rule.scope, SCOPES)
