"""Namespace deletion: empty it, report what holds it up, let it go. Pure.

Called by the namespace controller. Nothing is created in a namespace that is going: one that was found empty stays so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.core.namespace import FINALIZER, Namespace
from app.machinery.base import Condition, Object
from app.plans.plan import Delete, Plan, Update

LOOK_AGAIN = timedelta(seconds=5)  # at content whose end nobody would tell of


@dataclass(frozen=True, kw_only=True)
class Content:
    """What was found in a namespace.

    living: some of the objects that nobody has asked to go yet, or all.
    left: how many objects there are, by resource.
    finalizers: how many of them each finalizer holds.
    failures: what went wrong when it was looked at.
    """

    living: Sequence[Object] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    finalizers: Mapping[str, int] = field(default_factory=dict)
    failures: Sequence[str] = ()


def plan(namespace: Namespace, content: Content, now: datetime) -> Plan:
    if not is_to_be_emptied(namespace):
        return Plan()
    if content.living:
        return Plan(tuple(Delete(each, propagation="Background") for each in content.living), again_at=now)
    told = _telling(namespace, content, now)
    if content.left or content.failures:
        return Plan((Update(told, namespace),) if told != namespace else (), again_at=now + LOOK_AGAIN)
    finalizers = tuple(sorted({each for each in namespace.spec.finalizers if each != FINALIZER}))
    return Plan((Update(replace(told, spec=replace(told.spec, finalizers=finalizers)), namespace),))


def is_to_be_emptied(namespace: Namespace) -> bool:
    return namespace.metadata.deletion_timestamp is not None and FINALIZER in namespace.spec.finalizers


def _telling(namespace: Namespace, content: Content, now: datetime) -> Namespace:
    """With the conditions that say how far it is. Those of others stay, and each keeps its place."""
    conditions = {each.type: each for each in namespace.status.conditions}
    for new in _conditions(content):
        old = conditions.get(new.type)
        since = old.last_transition_time if old is not None and old.status == new.status else now
        conditions[new.type] = replace(new, last_transition_time=since)
    return replace(namespace, status=replace(namespace.status, conditions=tuple(conditions.values())))


def _conditions(content: Content) -> Iterator[Condition]:
    """Kubernetes' own, in its order and words. Discovery and parsing cannot fail here: all kinds are at hand."""
    left = sorted(_counted(resource, count) for resource, count in content.left.items())
    held = sorted(f"{name} in {count} resource instances" for name, count in content.finalizers.items())
    yield from _FOUND
    yield _condition(
        _DELETED, f"Failed to delete all resource types, {len(content.failures)} remaining", sorted(content.failures)
    )
    yield _condition(_REMOVED, "Some resources are remaining", left)
    yield _condition(_FREED, "Some content in the namespace has finalizers remaining", held)


class _Wording(NamedTuple):
    """Of a condition, and the reasons for its being false and true."""

    type: str
    well: str
    message: str
    ill: str = ""


_DELETED = _Wording(
    "NamespaceDeletionContentFailure",
    "ContentDeleted",
    "All content successfully deleted, may be waiting on finalization",
    "ContentDeletionFailed",
)
_REMOVED = _Wording(
    "NamespaceContentRemaining", "ContentRemoved", "All content successfully removed", "SomeResourcesRemain"
)
_FREED = _Wording(
    "NamespaceFinalizersRemaining",
    "ContentHasNoFinalizers",
    "All content-preserving finalizers finished",
    "SomeFinalizersRemain",
)


def _condition(wording: _Wording, what: str, which: Sequence[str]) -> Condition:
    """True if there is anything to list."""
    if not which:
        return Condition(type=wording.type, status="False", reason=wording.well, message=wording.message)
    return Condition(type=wording.type, status="True", reason=wording.ill, message=f"{what}: {', '.join(which)}")


_FOUND = (
    _condition(
        _Wording("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
        "",
        (),
    ),
    _condition(
        _Wording(
            "NamespaceDeletionGroupVersionParsingFailure",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "",
        (),
    ),
)


def _counted(resource: str, count: int) -> str:
    """In Kubernetes' wording resources of the core group end in a dot."""
    plural, _, group = resource.partition(".")
    return f"{plural}.{group} has {count} resource instances"
