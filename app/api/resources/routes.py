"""Request paths: kind, namespace, name and subresource of a Kubernetes path, as apiserver's RequestInfo.

Pure. `kubernetes` parses every path once and dispatches on the result.
"""

from collections.abc import Callable
from functools import lru_cache
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

# Bounds of the cache, in paths and in characters of one path: clients may send any number of paths, of any length.
_MOST_KNOWN, _LONGEST_KNOWN = 1024, 256


def parse_built_in(path: str) -> RequestInfo | None:
    """Parse the path of a built-in kind, from a cache: most requests repeat a path, such as that of a collection."""
    return _parse_once(path) if len(path) <= _LONGEST_KNOWN else parse_request_info(path)


@lru_cache(_MOST_KNOWN)
def _parse_once(path: str) -> RequestInfo | None:
    return parse_request_info(path)


def parse_request_info(path: str, find: Lookup = kinds.by_resource) -> RequestInfo | None:
    """Parse `/api/v1/namespaces/NS/pods/NAME/log` and the like, with or without a trailing slash; None for an unknown path."""
    parts = [part for part in path.split("/") if part]
    count = len(parts)
    if count > 2 and parts[0] == "api":
        group, version, at = "", parts[1], 2
    elif count > 3 and parts[0] == "apis":
        group, version, at = parts[1], parts[2], 3
    else:
        return None
    kind = namespace = None
    if count > at + 2 and parts[at] == "namespaces":
        kind = _find_kind(find, group, version, parts[at + 2])
        if kind is not None:
            namespace, at = parts[at + 1], at + 2
    if kind is None:
        kind = _find_kind(find, group, version, parts[at])
    if kind is None or (count > at + 3 and not _is_proxied(kind, parts[at + 2])):
        return None
    if (kind.namespaced and namespace is None and count > at + 1) or (namespace is not None and not kind.namespaced):
        return None
    name = parts[at + 1] if count > at + 1 else ""
    return RequestInfo(kind, namespace, name, parts[at + 2] if count > at + 2 else "")


def _find_kind(find: Lookup, group: str, version: str, plural: str) -> Kind | None:
    return find(group, version, plural) or unsupported_kinds.by_resource(group, version, plural)


def _is_proxied(kind: Kind, subresource: str) -> bool:
    """Return whether a path goes on behind its subresource: the rest is for a pod."""
    return subresource == "proxy" and kind.resource in ("pods", "services")
