"""Numbers of requests, under apiserver's names: how many, how long they take, how many are being served.

`app.api.middleware` counts every request here; Kubernetes' paths note in the scope what a request is about (`note_target`),
because they have parsed it. Long-running requests (watches, logs, exec) count as such, and have no duration.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from starlette.types import Scope

from app.api.resources.routes import RequestInfo
from app.metrics.instruments import Family, family
from app.metrics.registry import MetricsRegistry

Target = tuple[str, str, str, str, str, str, str]
"""Verb, "All" for a dry run, group, version, resource, subresource, scope: the labels of a request."""
_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
_LONG_LABELS = ("verb", "group", "version", "resource", "subresource", "scope", "component")
_COMPONENT = "apiserver"
# Apiserver's own, with fewer above a second.
_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 15.0, 30.0, 60.0)
_LONG_RUNNING = frozenset({"WATCH", "CONNECT"})
_SUBRESOURCES = frozenset(
    {"", "status", "binding", "eviction", "ephemeralcontainers", "finalize", "scale", "token", "approval"}
)
_CONNECTS = frozenset({"attach", "exec", "log", "portforward", "proxy"})
_VERBS = {"GET": "GET", "HEAD": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE"}
_LISTS = {"list": "LIST", "watch": "WATCH", "deletecollection": "DELETECOLLECTION"}
_MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_UNANSWERED = "0"
_HANDED_OVER = "101"


class RequestMetrics:
    """The instruments of one API process."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self.requests = metrics.counter(
            "apiserver_request_total", "Requests, by what they were about and the HTTP status code.", (*_LABELS, "code")
        )
        self.durations = metrics.histogram(
            "apiserver_request_duration_seconds",
            "Duration of requests that are not long-running, in seconds.",
            _LABELS,
            _BUCKETS,
        )
        self.long_running = metrics.gauge(
            "apiserver_longrunning_requests", "Watches, logs, execs and port-forwards that are open.", _LONG_LABELS
        )
        self.inflight = {"mutating": 0, "readOnly": 0}
        metrics.add_collector("requests", self._collect)

    async def _collect(self) -> Iterable[Family]:
        help_ = "Requests being served, without long-running ones."
        samples = [({"request_kind": kind}, count) for kind, count in self.inflight.items()]
        return [family("apiserver_current_inflight_requests", help_, "gauge", samples)]

    def count_answered(self, scope: Scope, code: int, seconds: float) -> None:
        """Count a request that has ended. `code`: of its answer, 0 without one."""
        target: Target = scope.get("target") or _target_of_route(scope)
        answered = str(code) if code else _HANDED_OVER if target[0] == "CONNECT" else _UNANSWERED
        self.requests.inc(*target, _COMPONENT, answered)
        if target[0] not in _LONG_RUNNING:
            self.durations.observe(seconds, *target, _COMPONENT)

    @contextmanager
    def count_open(self, scope: Scope) -> Iterator[None]:
        """Count a long-running request as open, and not as in flight, until the context ends."""
        target: Target = scope["target"]
        labels = (target[0], *target[2:], _COMPONENT)
        kind = kind_of(scope["method"])
        self.long_running.add(1, *labels)
        self.inflight[kind] -= 1
        try:
            yield
        finally:
            self.inflight[kind] += 1
            self.long_running.add(-1, *labels)


def is_long_running(scope: Scope) -> bool:
    """Return whether a request is a watch, or a stream from or to a container."""
    target: Target | None = scope.get("target")
    return target is not None and target[0] in _LONG_RUNNING


def kind_of(method: str) -> str:
    """Return apiserver's word for requests that change something, and for others."""
    return "mutating" if method in _MUTATING else "readOnly"


def note_target(scope: Scope, found: RequestInfo, verb: str) -> None:
    """Note what a request to a Kubernetes path is about."""
    kind, subresource = found.kind, found.subresource
    if subresource not in _SUBRESOURCES and subresource not in _CONNECTS:
        subresource = "other"  # a client may send any word
    label = "CONNECT" if subresource in _CONNECTS else _LISTS.get(verb) or _VERBS.get(scope["method"], "other")
    place = "resource" if found.name else "cluster" if found.namespace is None else "namespace"
    scope["target"] = label, _dry_run(scope), kind.group, kind.version, kind.plural, subresource, place


def _dry_run(scope: Scope) -> str:
    return "All" if b"dryRun=All" in scope["query_string"] else ""


def _target_of_route(scope: Scope) -> Target:
    """Name the endpoint of a request beside Kubernetes' paths: a route of our own, or none.

    Labels are those of the route, never what the client sent: so there are only so many.
    """
    verb = _VERBS.get(scope["method"], "other")
    path: str = getattr(scope.get("route"), "path", "")
    parts = path.strip("/").split("/")
    if parts[0] != "apis" or len(parts) < 4:
        return verb, "", "", "", "", path, ""
    words = [part for part in parts[3:] if not part.startswith("{")]
    if words[:1] == ["namespaces"] and len(words) > 1:
        words = words[1:]
    return verb, "", parts[1], parts[2], words[0] if words else "", "/".join(words[1:]), "resource"
