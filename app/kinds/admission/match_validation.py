"""Validation of match constraints: the operations, resources and selectors that say what a policy or binding is for."""

from collections.abc import Iterator

from app.kinds.admission.policy_schema import MatchResources
from app.kinds.admission.rule_validation import validate_rule
from app.kinds.pod.placement_validation import validate_selector
from app.machinery.errors import Cause, not_supported

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
            yield from validate_rule(rule, f"{path}.{name}[{index}]")
    if match.match_policy not in (None, *MATCH_POLICIES):
        yield not_supported(f"{path}.matchPolicy", match.match_policy, MATCH_POLICIES)
