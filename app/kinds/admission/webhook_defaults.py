"""Defaults and validation of one admission webhook, as both webhook configurations have them. Texts are Kubernetes'."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from app.kinds.admission.match_validation import MATCH_POLICIES
from app.kinds.admission.policy_schema import MatchCondition
from app.kinds.admission.rule_validation import validate_rule
from app.kinds.admission.webhook_client_config import DEFAULT_PORT, validate_client_config
from app.kinds.admission.webhook_schema import (
    MutatingWebhook,
    RuleWithOperations,
    ValidatingWebhook,
    WebhookClientConfig,
)
from app.kinds.pod.placement_validation import validate_selector
from app.machinery.base import LabelSelector
from app.machinery.cel import CelError, compile_expression
from app.machinery.errors import Cause, duplicate, invalid, not_supported, required, too_many
from app.machinery.name_validation import dns_label_1035, dns_subdomain, qualified_name

Webhook = MutatingWebhook | ValidatingWebhook
W = TypeVar("W", MutatingWebhook, ValidatingWebhook)

REVIEW_VERSIONS = ("v1", "v1beta1")
CONDITION_INPUTS = frozenset({"object", "oldObject", "request"})
MOST_CONDITIONS = 64
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_FAILURE_POLICIES = ("Fail", "Ignore")
_REINVOCATION = ("IfNeeded", "Never")
_SECONDS = 10
_EVERYTHING = LabelSelector()


def default_webhook(webhook: W) -> W:
    """Return the webhook with Kubernetes' defaults."""
    return replace(
        webhook,
        client_config=_default_client_config(webhook.client_config),
        rules=tuple(map(_default_rule, webhook.rules)),
        failure_policy=webhook.failure_policy or "Fail",
        match_policy=webhook.match_policy or "Equivalent",
        namespace_selector=webhook.namespace_selector or _EVERYTHING,
        object_selector=webhook.object_selector or _EVERYTHING,
        timeout_seconds=_SECONDS if webhook.timeout_seconds is None else webhook.timeout_seconds,
    )


def _default_client_config(config: WebhookClientConfig) -> WebhookClientConfig:
    service = config.service
    if service is None or service.port is not None:
        return config
    return replace(config, service=replace(service, port=DEFAULT_PORT))


def _default_rule(rule: RuleWithOperations) -> RuleWithOperations:
    return rule if rule.scope else replace(rule, scope="*")


def validate_webhooks(webhooks: Sequence[Webhook]) -> Iterator[Cause]:
    """Yield what is wrong with the webhooks of a configuration."""
    names: set[str] = set()
    for index, webhook in enumerate(webhooks):
        path = f"webhooks[{index}]"
        yield from _validate_webhook(webhook, path)
        yield from _validate_review_versions(webhook.admission_review_versions, f"{path}.admissionReviewVersions")
        if webhook.name in names:
            yield duplicate(f"{path}.name", webhook.name)
        names |= {webhook.name} if webhook.name else set()


def _validate_webhook(webhook: Webhook, path: str) -> Iterator[Cause]:
    yield from _validate_name(webhook.name, f"{path}.name")
    for index, rule in enumerate(webhook.rules):
        yield from validate_rule(rule, f"{path}.rules[{index}]")
    if webhook.failure_policy not in (None, *_FAILURE_POLICIES):
        yield not_supported(f"{path}.failurePolicy", webhook.failure_policy, ("Fail", "Ignore"))
    if webhook.match_policy not in (None, *MATCH_POLICIES):
        yield not_supported(f"{path}.matchPolicy", webhook.match_policy, MATCH_POLICIES)
    if webhook.side_effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(_SIDE_EFFECTS)}")
    elif webhook.side_effects not in _SIDE_EFFECTS:
        yield not_supported(f"{path}.sideEffects", webhook.side_effects, _SIDE_EFFECTS)
    seconds = webhook.timeout_seconds
    if seconds is not None and not 1 <= seconds <= 30:
        yield invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    for name, selector in (
        ("namespaceSelector", webhook.namespace_selector),
        ("objectSelector", webhook.object_selector),
    ):
        if selector is not None:
            yield from validate_selector(selector, f"{path}.{name}")
    if isinstance(webhook, MutatingWebhook) and webhook.reinvocation_policy not in (None, *_REINVOCATION):
        yield not_supported(f"{path}.reinvocationPolicy", webhook.reinvocation_policy, _REINVOCATION)
    yield from validate_client_config(webhook.client_config, f"{path}.clientConfig")
    yield from _validate_conditions(webhook.match_conditions, f"{path}.matchConditions")


def _validate_name(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
        return
    if faults := dns_subdomain(name):
        yield invalid(path, name, ", ".join(faults))
    elif name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _validate_review_versions(versions: Sequence[str], path: str) -> Iterator[Cause]:
    known = ", ".join(REVIEW_VERSIONS)
    if not versions:
        yield required(path, f"must specify one of {known}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
        else:
            yield from (invalid(f"{path}[{index}]", version, fault) for fault in dns_label_1035(version))
    if not set(versions) & set(REVIEW_VERSIONS):
        yield invalid(path, list(versions), f"must include at least one of {known}")


def _validate_conditions(conditions: Sequence[MatchCondition], path: str) -> Iterator[Cause]:
    if len(conditions) > MOST_CONDITIONS:
        yield too_many(path, len(conditions), MOST_CONDITIONS)
        return
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        where, text = f"{path}[{index}]", condition.expression.strip()
        yield from _validate_expression(text, f"{where}.expression")
        if not condition.name:
            yield required(f"{where}.name")
        elif condition.name in names:
            yield duplicate(f"{where}.name", condition.name)
        else:
            yield from (invalid(f"{where}.name", condition.name, fault) for fault in qualified_name(condition.name))
        names.add(condition.name)


def _validate_expression(text: str, path: str) -> Iterator[Cause]:
    if not text:
        yield required(path)
        return
    try:
        compiled = compile_expression(text, CONDITION_INPUTS)
    except CelError as error:
        yield invalid(path, text[:4096], f"compilation failed: {error}")
        return
    if compiled.type not in ("BOOL", "DYN"):
        yield invalid(path, text, "must evaluate to bool")
