"""Resource metrics API (metrics.k8s.io): current CPU and memory usage of nodes and pods, for `kubectl top`.

Made from agents' reports of the last minute; a node or pod without one is left out.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.http import errors
from app.api.http.content_negotiation import negotiate_media_type
from app.api.http.query import query_of
from app.api.resources.discovery import EphemeralResource
from app.api.resources.selection import read_selection
from app.client.protocol import ResourceUsage
from app.kinds.core.metrics import ContainerMetrics, NodeMetrics, PodMetrics
from app.kinds.core.node import KIND as NODE_KIND
from app.kinds.pod.pod import KIND as POD_KIND
from app.machinery import quantity
from app.machinery.base import Kind, Object, ObjectMeta, Quantity
from app.machinery.errors import not_found
from app.registry.agents import node_usage as usage
from app.registry.agents.node_usage import Known
from app.registry.verbs.lists import Scope, list_page
from app.registry.verbs.objects import Registry, find

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_API_VERSION = f"{GROUP}/{VERSION}"
NODES = EphemeralResource(GROUP, VERSION, "nodes", "NodeMetrics", ("get", "list"), namespaced=False, type=NodeMetrics)
PODS = EphemeralResource(GROUP, VERSION, "pods", "PodMetrics", ("get", "list"), namespaced=True, type=PodMetrics)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Metadata(msgspec.Struct):
    name: str
    uid: str
    namespace: str = ""
    labels: dict[str, str] = {}


class _Summary(msgspec.Struct):
    """The part of a pod or node that is decoded here."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode_summary = msgspec.json.Decoder(_Summary).decode


async def nodes(registry: Registry, request: Request, _: str | None, name: str) -> Response:
    """Answer GET nodes, or nodes/NAME."""
    if name:
        found = await _node_metrics(registry, [_decode_summary((await find(registry, NODE_KIND, "", name)).body)])
        return _single(request, found, "nodemetrics", name)
    return _list(request, NODES, await _node_metrics(registry, await _select(registry, request, NODE_KIND, None)))


async def pods(registry: Registry, request: Request, namespace: str | None, name: str) -> Response:
    """Answer GET pods, of one namespace or of all, or namespaces/NAMESPACE/pods/NAME."""
    if name:
        if namespace is None:
            raise errors.no_such_path()
        found = await _pod_metrics(registry, [_decode_summary((await find(registry, POD_KIND, namespace, name)).body)])
        return _single(request, found, "podmetrics", f"{namespace}/{name}")
    return _list(request, PODS, await _pod_metrics(registry, await _select(registry, request, POD_KIND, namespace)))


ANSWERS = {NODES: nodes, PODS: pods}


async def _select(registry: Registry, request: Request, kind: Kind, namespace: str | None) -> list[_Summary]:
    """The objects that the selectors pick; names and namespaces are all the fields there are."""
    selection = read_selection(query_of(request))
    selection.check()
    if selection.options.watch:
        raise errors.no_such_method()
    labels, fields = selection.labels, selection.fields
    fields.check(())
    scope = Scope(kind=kind, namespace=namespace, name=fields.requirement("metadata.name"))
    page = await list_page(registry, scope)
    seen = [
        _decode_summary(head.body)
        for head in page.heads
        if fields.matches({"metadata.name": head.key.name, "metadata.namespace": head.key.namespace})
    ]
    return [each for each in seen if labels.matches(each.metadata.labels)]


async def _node_metrics(registry: Registry, seen: list[_Summary]) -> list[NodeMetrics]:
    known = await usage.known(registry, [each.metadata.name for each in seen])
    now = registry.now()
    return [
        NodeMetrics(metadata=_metadata(each, now), usage=_quantities(report.usage.used), **_span(report))
        for each in seen
        if (report := known.get(each.metadata.name))
    ]


async def _pod_metrics(registry: Registry, seen: list[_Summary]) -> list[PodMetrics]:
    """Metrics of running pods that their own node has reported."""
    running = [each for each in seen if each.status.phase == "Running"]
    known = await usage.known(registry, {each.spec.node_name for each in running})
    now = registry.now()
    return [
        PodMetrics(metadata=_metadata(each, now), containers=_containers(used), **_span(report))
        for each in running
        if (report := known.get(each.spec.node_name)) and (used := report.usage.pods.get(each.metadata.uid))
    ]


def _metadata(seen: _Summary, now: datetime) -> ObjectMeta:
    meta = seen.metadata
    return ObjectMeta(name=meta.name, namespace=meta.namespace, labels=meta.labels, creation_timestamp=now)


def _span(known: Known) -> dict[str, Any]:
    return {"timestamp": known.at.replace(microsecond=0), "window": f"{round(known.usage.window, 3):g}s"}


def _containers(used: Mapping[str, ResourceUsage]) -> tuple[ContainerMetrics, ...]:
    return tuple(ContainerMetrics(name=name, usage=_quantities(each)) for name, each in sorted(used.items()))


def _quantities(used: ResourceUsage) -> dict[str, Quantity]:
    return {"cpu": quantity.canonical(f"{used.cpu}n"), "memory": quantity.canonical(f"{used.memory // 1024}Ki")}


def _single(request: Request, found: list[Any], resource: str, name: str) -> Response:
    if not found:
        raise not_found(f"{resource}.{GROUP}", name)
    return _answer(request, _named(found[0]))


def _named(obj: Object) -> Object:
    return msgspec.structs.replace(obj, api_version=_API_VERSION, kind=type(obj).__name__)


def _list(request: Request, virtual: EphemeralResource, items: list[Any]) -> Response:
    body = {"kind": f"{virtual.kind}List", "apiVersion": _API_VERSION, "metadata": {}, "items": items}
    return _answer(request, body)


def _answer(request: Request, body: Any) -> Response:
    negotiate_media_type(request.headers.get("accept"))
    return Response(msgspec.json.encode(body), media_type="application/json")
