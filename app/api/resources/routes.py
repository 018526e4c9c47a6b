"""Request paths: kind, namespace, name and subresource of a Kubernetes path, as apiserver's RequestInfo.

Pure. `kubernetes` parses every path once and dispatches on the result.
"""

from collections.abc import Callable
from typing import NamedTuple

from app import kinds
from app.api.resources import unsupported_kinds
from app.machinery.base import Kind


class RequestInfo(NamedTuple):
    """The resource of a request. `namespace` None: all namespaces, or a cluster-scoped kind. `name` empty: the collection."""

    kind: Kind
    namespace: str | None
    name: str
    subresource: str


Lookup = Callable[[str, str, str], Kind | None]
"""(group, version, plural) -> the kind of a path, None if it is unknown."""


def parse_request_info(path: str, find: Lookup = kinds.by_resource) -> RequestInfo | None:
    """Parse `/api/v1/namespaces/NS/pods/NAME/log` and the like, with or without a trailing slash; None for an unknown path."""

    def by_resource(group: str, version: str, plural: str) -> Kind | None:
        return find(group, version, plural) or unsupported_kinds.by_resource(group, version, plural)

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
    if kind is None or (len(rest) > 3 and not _is_proxied(kind, rest[2])):
        return None
    if (kind.namespaced and namespace is None and len(rest) > 1) or (namespace is not None and not kind.namespaced):
        return None
    name, subresource, *_ = [*rest[1:], "", ""]
    return RequestInfo(kind, namespace, name, subresource)


def _is_proxied(kind: Kind, subresource: str) -> bool:
    """Return whether a path goes on behind its subresource: the rest is for a pod."""
    return subresource == "proxy" and kind.resource in ("pods", "services")
