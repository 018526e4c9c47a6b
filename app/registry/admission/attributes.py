"""Attributes of a write that admission judges: what is written, by which operation, and how selectors see it.

The verbs make them for what clients write, the controllers for what they create; policies and webhooks are asked about them.
"""

from collections.abc import Mapping
from typing import NamedTuple, cast

from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.machinery.base import Kind, Object
from app.plans.admission.policies.matching import Target
from app.store import Key, Mirror


class Attributes(NamedTuple):
    """A write to be reviewed. `new` None: a deletion. `old` None: a creation."""

    kind: Kind
    namespace: str
    name: str
    new: Object | None = None
    old: Object | None = None
    subresource: str = ""
    dry_run: bool = False

    @property
    def operation(self) -> str:
        return "DELETE" if self.new is None else "CREATE" if self.old is None else "UPDATE"


def namespace_of(attributes: Attributes, mirror: Mirror) -> Namespace | None:
    """Return the namespace that the object is in, as far as it is known."""
    return cast("Namespace | None", mirror.get(Key(NAMESPACES.resource, "", attributes.namespace)))


def target_of(attributes: Attributes, around: Namespace | None) -> Target:
    """Return what rules and selectors compare."""
    kind = attributes.kind
    objects = [each for each in (attributes.new, attributes.old) if each is not None]
    if kind is NAMESPACES:
        labels: Mapping[str, str] | None = objects[0].metadata.labels
    else:
        labels = (around.metadata.labels if around else {}) if kind.namespaced else None
    label_sets = [each.metadata.labels for each in objects]
    return Target(
        kind, attributes.operation, attributes.namespace, attributes.name, attributes.subresource, label_sets, labels
    )
