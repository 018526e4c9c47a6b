"""Validation of rules: the operations and resources that a policy or a webhook is for. Texts are Kubernetes'."""

from collections.abc import Iterator, Sequence

from app.kinds.admission.policy_schema import NamedRuleWithOperations
from app.kinds.admission.webhook_schema import RuleWithOperations
from app.machinery.errors import Cause, invalid, not_supported, required

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")


def validate_rule(rule: NamedRuleWithOperations | RuleWithOperations, path: str) -> Iterator[Cause]:
    yield from _validate_list(rule.operations, f"{path}.operations", "operations")
    for index, operation in enumerate(rule.operations):
        if operation not in OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, OPERATIONS)
    yield from _validate_list(rule.api_groups, f"{path}.apiGroups", "API groups")
    yield from _validate_list(rule.api_versions, f"{path}.apiVersions", "API versions")
    for index, version in enumerate(rule.api_versions):
        if not version:
            yield required(f"{path}.apiVersions[{index}]")
    yield from _validate_resources(rule.resources, f"{path}.resources")
    if rule.scope not in (None, *SCOPES):
        yield not_supported(f"{path}.scope", rule.scope, SCOPES)


def _validate_list(values: Sequence[str], path: str, what: str) -> Iterator[Cause]:
    if not values:
        yield required(path)
    elif "*" in values and len(values) > 1:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {what}")


def _validate_resources(resources: Sequence[str], path: str) -> Iterator[Cause]:
    if not resources:
        yield required(path)
    all_subresources: set[str] = set()  # x of x/*
    all_resources: set[str] = set()  # x of */x
    for index, each in enumerate(resources):
        resource, slash, subresource = each.partition("/")
        if not each:
            yield required(f"{path}[{index}]")
        if not slash:
            continue
        if resource in all_subresources:
            yield invalid(f"{path}[{index}]", each, f"if '{resource}/*' is present, must not specify {each}")
        if subresource in all_resources:
            yield invalid(f"{path}[{index}]", each, f"if '*/{subresource}' is present, must not specify {each}")
        all_subresources |= {resource} if subresource == "*" else set()
        all_resources |= {subresource} if resource == "*" else set()
    if "*/*" in resources and len(resources) > 1:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
    if "*" in resources and any("/" not in each and each != "*" for each in resources):
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), why)
