"""Routes: kind, object and subresource of a Kubernetes path. Pure; `kubernetes` dispatches on what comes out."""

from dataclasses import dataclass

from app import kinds
from app.api.resources import unsupported_kinds
from app.machinery.base import Kind


@dataclass(frozen=True)
class Target:
    """What a request is about. `namespace` None: all of them, or a cluster-wide kind. `name` empty: the collection."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str


def by_resource(group: str, version: str, plural: str) -> Kind | None:
    """The kind behind a path, be there such objects or never any."""
    return kinds.by_resource(group, version, plural) or unsupported_kinds.by_resource(group, version, plural)


def target(path: str) -> Target | None:
    """`/api/v1/namespaces/NS/pods/NAME/log` and the like, with or without a trailing slash; None if it means nothing."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and by_resource(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    kind = by_resource(group, version, rest[0])
    if kind is None or len(rest) > 3:
        return None
    if (kind.namespaced and namespace is None and len(rest) > 1) or (namespace is not None and not kind.namespaced):
        return None
    name, subresource, *_ = [*rest[1:], "", ""]
    return Target(kind, namespace, name, subresource)
