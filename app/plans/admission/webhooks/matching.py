"""Matching: which admission webhooks a write concerns, by operation, resource and labels. Pure, and without any CEL.

`Webhooks` is made anew whenever a configuration changes. It remembers which rules are about a resource, so that a write that
no webhook is about costs one look-up.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from app.kinds.admission.webhook_defaults import Webhook
from app.kinds.admission.webhook_schema import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from app.machinery.base import Kind
from app.plans.admission.policies.matching import OWN_GROUP, Target, matches_rule, selects

MOST_REMEMBERED = 1_000  # kinds times operations times subresources
Versions = Callable[[Kind], Iterable[Kind]]  # a stored kind -> all versions in which it is served


class Hook(NamedTuple):
    """One webhook of a configuration. `key` tells versions of it apart, for who keeps what was compiled."""

    configuration: str
    webhook: Webhook
    key: str


class Invocation(NamedTuple):
    """A webhook, and the version of the resource that it is called with."""

    hook: Hook
    kind: Kind


class Relevant(NamedTuple):
    """The webhooks with a rule about a resource and an operation, in the order in which they are called."""

    mutating: tuple[Invocation, ...] = ()
    validating: tuple[Invocation, ...] = ()


NONE = Relevant()


def only_itself(kind: Kind) -> Iterable[Kind]:
    """The versions of a kind that has one."""
    return (kind,)


class Webhooks:
    """All webhooks that are configured: configurations in the order of their names, webhooks as they are listed."""

    def __init__(
        self,
        mutating: Iterable[MutatingWebhookConfiguration] = (),
        validating: Iterable[ValidatingWebhookConfiguration] = (),
    ) -> None:
        self._mutating = _hooks(mutating)
        self._validating = _hooks(validating)
        self._relevant: dict[tuple[str, str, str, str, int], Relevant] = {}

    def __bool__(self) -> bool:
        return bool(self._mutating or self._validating)

    def relevant(
        self,
        kind: Kind,
        operation: str,
        subresource: str = "",
        versions: Versions = only_itself,
        generation: int = 0,
    ) -> Relevant:
        """Return the webhooks that are about the resource at all: nothing, for most requests.

        Configurations of webhooks and policies are never subject to any. `generation` is that of the kinds that `versions` knows.
        """
        if not self or kind.group == OWN_GROUP:
            return NONE
        key = (kind.resource, kind.version, operation, subresource, generation)
        found = self._relevant.get(key)
        if found is None:
            if len(self._relevant) >= MOST_REMEMBERED:
                self._relevant.clear()
            others = tuple(each for each in versions(kind) if (each.group, each.version) != (kind.group, kind.version))
            found = self._relevant[key] = Relevant(
                _invocations(self._mutating, kind, others, operation, subresource),
                _invocations(self._validating, kind, others, operation, subresource),
            )
        return found


def _hooks(configurations: Iterable[MutatingWebhookConfiguration | ValidatingWebhookConfiguration]) -> Sequence[Hook]:
    hooks: list[Hook] = []
    for each in sorted(configurations, key=lambda each: each.metadata.name):
        meta, webhooks = each.metadata, cast("Sequence[Webhook]", each.webhooks)
        hooks += (
            Hook(meta.name, webhook, f"{meta.uid}/{meta.resource_version}/{index}")
            for index, webhook in enumerate(webhooks)
        )
    return hooks


def _invocations(
    hooks: Sequence[Hook], kind: Kind, others: Sequence[Kind], operation: str, subresource: str
) -> tuple[Invocation, ...]:
    found = ((hook, _version_for(hook.webhook, kind, others, operation, subresource)) for hook in hooks)
    return tuple(Invocation(hook, version) for hook, version in found if version is not None)


def _version_for(webhook: Webhook, kind: Kind, others: Sequence[Kind], operation: str, subresource: str) -> Kind | None:
    """The version to call a webhook with: that of the request, or one that a rule names if the policy is Equivalent."""
    if any(matches_rule(rule, kind, operation, subresource) for rule in webhook.rules):
        return kind
    if webhook.match_policy == "Exact":
        return None
    pairs = ((rule, other) for rule in webhook.rules for other in others)
    return next((other for rule, other in pairs if matches_rule(rule, other, operation, subresource)), None)


def has_selectors(webhook: Webhook) -> bool:
    """Return whether a webhook is not for all that its rules name."""
    selectors = (webhook.namespace_selector, webhook.object_selector)
    return any(each is not None and (each.match_labels or each.match_expressions) for each in selectors)


def is_selected(webhook: Webhook, target: Target) -> bool:
    """Return whether the selectors of a webhook choose a request."""
    labels = target.namespace_labels  # what is in no namespace, and is none, is not excluded by its selector
    if labels is not None and not selects(webhook.namespace_selector, [labels]):
        return False
    return selects(webhook.object_selector, target.label_sets)


NO_WEBHOOKS = Webhooks()
