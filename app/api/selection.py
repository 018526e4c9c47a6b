"""From the query's selectors to what the registry lists and watches."""

from app.kinds.base import Kind
from app.kinds.selectors import parse_fields, parse_labels
from app.registry.watch import Scope
from app.store import Key, Marks


def scope_of(kind: Kind, namespace: str | None, labels: str, fields: str) -> Scope:
    """The scope that the selectors describe; 400 for a selector that is malformed or names an unknown field."""
    if not labels and not fields:
        return Scope(kind=kind, namespace=namespace)
    wanted_labels = parse_labels(labels)
    wanted_fields = parse_fields(fields)
    wanted_fields.check(kind.fields)

    def matches(key: Key, marks: Marks) -> bool:
        named = {**marks.fields, "metadata.name": key.name, "metadata.namespace": key.namespace}
        return wanted_labels.matches(marks.labels) and wanted_fields.matches(named)

    return Scope(
        kind=kind,
        namespace=namespace,
        name=wanted_fields.requirement("metadata.name"),
        node=wanted_fields.requirement("spec.nodeName") or None,
        matches=matches,
    )
