"""From the query's selectors to what the registry lists and watches."""

from app.kinds.base import Kind
from app.kinds.selectors import parse_fields, parse_labels
from app.registry.lists import Scope
from app.store import Key, Marks


def scope_of(kind: Kind, namespace: str | None, labels: str, fields: str) -> Scope:
    """The scope that the selectors describe; 400 for a selector that is malformed or names an unknown field."""
    if not labels and not fields:
        return Scope(kind=kind, namespace=namespace)
    wanted_labels = parse_labels(labels)
    wanted_fields = parse_fields(fields)
    wanted_fields.check(kind.fields)

    name = wanted_fields.requirement("metadata.name")
    node = wanted_fields.requirement("spec.nodeName") or None

    def matches(key: Key, marks: Marks) -> bool:
        if not wanted_labels.matches(marks.labels):
            return False
        return wanted_fields.matches({**marks.fields, "metadata.name": key.name, "metadata.namespace": key.namespace})

    # An agent asks for the pods of its node and nothing else: then looking at the node is all there is to do.
    more = bool(labels) or len(wanted_fields.requirements) > (name is not None) + (node is not None)
    return Scope(kind=kind, namespace=namespace, name=name, node=node, matches=matches if more else None)
