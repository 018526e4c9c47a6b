"""Namespace deletion: delete its content, report in conditions what remains, remove its finalizer. Pure.

Called by the namespace controller. Nothing is created in a namespace that is being deleted: once empty, it stays empty.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.core.namespace import FINALIZER, Namespace
from app.machinery.base import Condition, Object
from app.plans.plan import Delete, Plan, Update

RECHECK = timedelta(seconds=5)  # of content whose deletion no event reports


@dataclass(frozen=True, kw_only=True)
class Content:
    """What was found in a namespace.

    living: some or all of the objects that are not deleted yet.
    left: number of remaining objects, by resource.
    finalizers: number of remaining objects, by finalizer.
    failures: messages of errors in listing the content.
    """

    living: Sequence[Object] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    finalizers: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[str] = ()


def plan(namespace: Namespace, content: Content, now: datetime) -> Plan:
    if not needs_emptying(namespace):
        return Plan()
    if content.living:
        return Plan(tuple(Delete(each, propagation="Background") for each in content.living), again_at=now)
    reported = _update_conditions(namespace, content, now)
    if content.left or content.failures:
        return Plan((Update(reported, namespace),) if reported != namespace else (), again_at=now + RECHECK)
    finalizers = tuple(sorted({each for each in namespace.spec.finalizers if each != FINALIZER}))
    return Plan((Update(replace(reported, spec=replace(reported.spec, finalizers=finalizers)), namespace),))


def needs_emptying(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is not None and FINALIZER in namespace.spec.finalizers


def _update_conditions(namespace: Namespace, content: Content, now: datetime) -> Namespace:
    """The namespace with the conditions of its deletion. Conditions of other writers stay, and each keeps its place."""
    conditions = {each.type: each for each in namespace.status.conditions}
    for new in _build_conditions(content):
        old = conditions.get(new.type)
        since = old.last_transition_time if old is not None and old.status == new.status else now
        conditions[new.type] = replace(new, last_transition_time=since)
    return replace(namespace, status=replace(namespace.status, conditions=tuple(conditions.values())))


def _build_conditions(content: Content) -> Iterator[Condition]:
    """In Kubernetes' order and words. Discovery and parsing cannot fail here: all kinds are in this process."""
    left = sorted(_format_count(resource, count) for resource, count in content.left.items())
    finalizers = sorted(f"{name} in {count} resource instances" for name, count in content.finalizers.items())
    yield from _NEVER_FAILED
    yield _build_condition(
        _CONTENT_FAILURE,
        f"Failed to delete all resource types, {len(content.failures)} remaining",
        sorted(content.failures),
    )
    yield _build_condition(_CONTENT_REMAINING, "Some resources are remaining", left)
    yield _build_condition(_FINALIZERS_REMAINING, "Some content in the namespace has finalizers remaining", finalizers)


class _Wording(NamedTuple):
    """Type of a condition, its reason and message while it is false, and its reason while it is true."""

    type: str
    false_reason: str
    false_message: str
    true_reason: str = ""


_CONTENT_FAILURE = _Wording(
    "NamespaceDeletionContentFailure",
    "ContentDeleted",
    "All content successfully deleted, may be waiting on finalization",
    "ContentDeletionFailed",
)
_CONTENT_REMAINING = _Wording(
    "NamespaceContentRemaining", "ContentRemoved", "All content successfully removed", "SomeResourcesRemain"
)
_FINALIZERS_REMAINING = _Wording(
    "NamespaceFinalizersRemaining",
    "ContentHasNoFinalizers",
    "All content-preserving finalizers finished",
    "SomeFinalizersRemain",
)


def _build_condition(wording: _Wording, what: str, which: Sequence[str]) -> Condition:
    """True if there is anything to list."""
    if not which:
        return Condition(type=wording.type, status="False", reason=wording.false_reason, message=wording.false_message)
    return Condition(
        type=wording.type, status="True", reason=wording.true_reason, message=f"{what}: {', '.join(which)}"
    )


_NEVER_FAILED = (
    _build_condition(
        _Wording("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        "",
        (),
    ),
    _build_condition(
        _Wording(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "",
        (),
    ),
)


def _format_count(resource: str, count: int) -> str:
    """Kubernetes writes resources of the core group with a dot at the end."""
    plural, _, group = resource.partition(".")
    return f"{plural}.{group} has {count} resource instances"
