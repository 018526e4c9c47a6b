"""Ephemeral resources, computed for each request and never stored: reviews and metrics. Called by `kubernetes`.

To add one, add it to the `ANSWERS` of a module that is named here: discovery and authorization follow.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from app.api.http import errors
from app.api.resources import metrics, reviews
from app.api.resources.discovery import EphemeralResource
from app.registry.verbs.objects import Registry


@dataclass(frozen=True)
class EphemeralTarget:
    """The resource of a request. `namespace` None: all namespaces, or a cluster-scoped resource."""

    resource: EphemeralResource
    namespace: str | None
    name: str


Answer = Callable[[Registry, Request, str | None, str], Awaitable[Response]]
"""(registry, request, namespace, name) -> response. The user, already authorized, is in `request.state.user`."""
ANSWERS: Mapping[EphemeralResource, Answer] = {**metrics.ANSWERS, **reviews.ANSWERS}
EPHEMERAL: tuple[EphemeralResource, ...] = tuple(ANSWERS)
_BY_PATH = {(each.group, each.version, each.plural): each for each in EPHEMERAL}


def parse_path(path: str) -> EphemeralTarget | None:
    """Parse `/apis/GROUP/VERSION/[namespaces/NS/]PLURAL[/NAME]`, with or without a trailing slash; None if it is no such path."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] != ["apis"] or len(parts) < 4:
        return None
    group, version, rest = parts[1], parts[2], parts[3:]
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    found = _BY_PATH.get((group, version, rest[0]))
    if found is None or len(rest) > 2 or (namespace is not None and not found.namespaced):
        return None
    return EphemeralTarget(found, namespace, rest[1] if len(rest) > 1 else "")


def verb_of(method: str, place: EphemeralTarget) -> str:
    """Return the verb for authorization; 405 if the resource does not have it."""
    wanted = "create" if method == "POST" else ("get" if place.name else "list") if method in {"GET", "HEAD"} else ""
    if wanted not in place.resource.verbs:
        raise errors.no_such_method()
    return wanted
