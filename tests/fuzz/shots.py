"""Requests to try on a server: writes of documents that almost fit, patches, options, selectors, subresources, agents.

`shot` picks one. What comes of it is judged by `campaign`.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote, quote_from_bytes

from app.api.http.query import DeleteOptions, ListOptions, WriteOptions
from app.api.resources.discovery import SUBRESOURCES
from app.api.resources.ephemeral_resources import EPHEMERAL
from app.client.protocol import LogPieces, StatusReports, UsageReports
from app.kinds.pod.pod import KIND as PODS
from app.machinery.base import Kind
from app.machinery.shape import ANY, shape_of
from tests.fuzz import encodings, hostile, patches
from tests.fuzz.documents import Stock
from tests.fuzz.wire import Request
from tests.fuzz.words import NUMBERS, text
from tests.fuzz.world import World, shape

ACCEPT = (
    *("application/json",) * 6,
    *("application/json;as=Table;v=v1;g=meta.k8s.io,application/json",) * 2,
    *("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
    *("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf", "*/*"),
    *("", "text/html", "application/json;q=x", "a;b=c;d", ",;=", "application/json;as=Table;v=v9;g=meta.k8s.io"),
)  # fmt: skip
_DOCUMENTS = (
    *("/api", "/apis", "/api/v1", "/apis/batch", "/apis/batch/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/batch/v1"),
    *("/version", "/livez", "/readyz?verbose", "/healthz/ping", "/", "/metrics", "/apis/apps/v1/deployments", "/docs"),
)  # fmt: skip


class Shot(NamedTuple):
    """A request; and the kind whose object it answers with, if it does."""

    request: Request
    kind: Kind | None = None
    name: str = ""


def shot(world: World, tokens: dict[str, str]) -> Shot:
    """The next one. Whatever there is too much of goes first."""
    surplus = world.surplus()
    if surplus:
        kind, name = surplus
        body = b'{"gracePeriodSeconds":0,"propagationPolicy":"Background"}'
        return Shot(_request(world, tokens, "DELETE", f"{world.collection(kind)}/{quote(name)}", body), kind, name)
    aim = world.rng.choices(list(_AIMS), list(_AIMS.values()))[0]
    return aim(world, tokens)


def _request(
    world: World,
    tokens: dict[str, str],
    method: str,
    path: str,
    body: bytes = b"",
    content_type: bytes = encodings.JSON,
) -> Request:
    rng = world.rng
    token = tokens["admin"] if rng.random() < 0.95 else rng.choice(list(tokens.values()))
    headers = [(b"Authorization", f"Bearer {token}".encode())]
    if rng.random() < 0.4:
        headers.append((b"Accept", rng.choice(ACCEPT).encode()))
    if body:
        headers.append((b"Content-Type", rng.choice(hostile.CONTENT_TYPES) if rng.random() < 0.03 else content_type))
    if rng.random() < 0.05:
        headers.append((b"Accept-Encoding", b"gzip"))
    if body and rng.random() < 0.05:
        at = rng.randrange(len(body) + 1)
        return Request(method, path.encode(), tuple(headers), chunks=(body[:at], body[at:], b""))
    return Request(method, path.encode(), tuple(headers), body)


# --- queries


def _value(rng: Random, name: str) -> str:
    if name in ("labelSelector", "fieldSelector"):
        return _selector(rng)
    if name == "resourceVersion":  # nothing from the future: that is waited for, and then refused with a 504
        return rng.choice(("", "0", "1", "abc", "-1", "01", "1.0", "٣", str(2**64), "9" * 400, "0" * 40, text(rng)))
    if name == "dryRun":
        return rng.choice(("All", "All", "", "all", text(rng)))
    if name == "fieldManager":
        return rng.choice(("m", "n", "kubectl", "", "m" * 129, text(rng)))
    if name == "fieldValidation":
        return rng.choice(("Strict", "Warn", "Ignore", "", text(rng)))
    if name == "timeoutSeconds":
        return rng.choice(("1", "0", "-1", text(rng), str(rng.choice(NUMBERS))))
    if name == "propagationPolicy":
        return rng.choice(("Orphan", "Background", "Foreground", text(rng)))
    return rng.choice(("true", "false", "1", "0", "2", "500", str(rng.choice(NUMBERS)), text(rng)))


def _selector(rng: Random) -> str:
    fields = ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase", "involvedObject.name", "type")
    parts = []
    for _ in range(rng.choice((1, 1, 2, 3, 30))):
        key = rng.choice((*fields, *fields, "a", "app", text(rng)))
        operator = rng.choice(("=", "==", "!=", " in (", " notin (", ">", "<", "", "!", "\\=", text(rng)))
        parts.append(f"{key}{operator}{text(rng)}{')' if '(' in operator and rng.random() < 0.9 else ''}")
    return ",".join(parts)


def _query(rng: Random, options: type) -> str:
    names = [name for name in shape_of(options).fields if name not in ("watch", "apiVersion", "kind", "preconditions")]
    pairs = [(name, _value(rng, name)) for name in names if rng.random() < 0.15]
    if rng.random() < 0.03:
        pairs.append((text(rng), text(rng)))
    return "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in pairs)


def _quoted(value: str) -> str:
    return quote_from_bytes(value.encode("utf-8", "surrogatepass"), safe="")


def _asked(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


# --- objects


def _create(world: World, tokens: dict[str, str]) -> Shot:
    kind, rng = world.kind(), world.rng
    document = world.manifest(kind)
    if rng.random() < 0.8:
        document = world.stock.mutated(document, shape(kind))
    body, content_type = encodings.written(rng, document, shape(kind))
    path = _asked(world.collection(kind), _query(rng, WriteOptions) if rng.random() < 0.3 else "")
    return Shot(_request(world, tokens, "POST", path, body, content_type), kind)


def _target(world: World) -> tuple[Kind, dict[str, Any], str]:
    """An object that is there, or one that is not."""
    for _ in range(4):
        kind = world.kind()
        there = world.known(kind)
        if there:
            return kind, there, f"{world.collection(kind)}/{quote(there['metadata']['name'])}"
    kind = world.kind()
    document = world.manifest(kind)
    name = document["metadata"]["name"] if world.rng.random() < 0.5 else text(world.rng)
    return kind, document, f"{world.collection(kind)}/{_quoted(name)}"


def _part(world: World, kind: Kind) -> str:
    return "/status" if world.rng.random() < (0.4 if kind.has_status else 0.02) else ""


def _replace(world: World, tokens: dict[str, str]) -> Shot:
    kind, document, path = _target(world)
    rng = world.rng
    body, content_type = encodings.written(rng, world.stock.mutated(document, shape(kind)), shape(kind))
    path = _asked(path + _part(world, kind), _query(rng, WriteOptions) if rng.random() < 0.2 else "")
    return Shot(_request(world, tokens, "PUT", path, body, content_type), kind, document["metadata"]["name"])


def _patch(world: World, tokens: dict[str, str]) -> Shot:
    kind, document, path = _target(world)
    rng = world.rng
    body, content_type = patches.patch(rng, world.stock, document, shape(kind))
    query = _query(rng, WriteOptions) if rng.random() < 0.2 else ""
    if b"apply" in content_type and rng.random() < 0.95:
        query = f"fieldManager={rng.choice('mn')}&force={rng.choice(('true', 'false'))}&{query}".rstrip("&")
    path = _asked(path + _part(world, kind), query)
    request = _request(world, tokens, "PATCH", path, encodings.spoiled(rng, body), content_type)
    return Shot(request, kind, document["metadata"]["name"])


def _options(rng: Random, stock: Stock) -> bytes:
    """DeleteOptions; those that nothing speaks against, half of the time."""
    if rng.random() < 0.5:
        return rng.choice((b"", b"{}", b'{"gracePeriodSeconds":0}', b'{"propagationPolicy":"Foreground"}'))
    return encodings.written(rng, stock.grown(shape_of(DeleteOptions)), shape_of(DeleteOptions))[0]


def _delete(world: World, tokens: dict[str, str]) -> Shot:
    kind, document, path = _target(world)
    rng = world.rng
    body = _options(rng, world.stock)
    form = encodings.PROTOBUF if body.startswith(encodings.MAGIC) else encodings.JSON
    path = _asked(path, _query(rng, DeleteOptions) if rng.random() < 0.4 else "")
    return Shot(_request(world, tokens, "DELETE", path, body, form), kind, document["metadata"]["name"])


def _delete_all(world: World, tokens: dict[str, str]) -> Shot:
    kind, rng = world.kind(), world.rng
    path = _asked(world.collection(kind), f"dryRun=All&{_query(rng, ListOptions)}".rstrip("&"))
    return Shot(_request(world, tokens, "DELETE", path))


def _read(world: World, tokens: dict[str, str]) -> Shot:
    kind, document, path = _target(world)
    query = _query(world.rng, ListOptions) if world.rng.random() < 0.3 else ""
    request = _request(
        world, tokens, world.rng.choice(("GET", "GET", "HEAD")), _asked(path + _part(world, kind), query)
    )
    return Shot(request, kind, document["metadata"]["name"])


def _list(world: World, tokens: dict[str, str]) -> Shot:
    kind, rng = world.kind(), world.rng
    path = world.collection(kind)
    if rng.random() < 0.3:
        path = path.replace(f"/namespaces/{world.namespace}", "", 1)
    query = _query(rng, ListOptions)
    if rng.random() < 0.2:
        query = f"{query}&includeObject={rng.choice(('Object', 'None', 'Metadata', _quoted(text(rng))))}"
    return Shot(_request(world, tokens, "GET", _asked(path, query)))


# --- what is no object


_LOG_OPTIONS = ("container", "tailLines", "limitBytes", "sinceSeconds", "sinceTime", "previous", "timestamps")


def _subresource(world: World, tokens: dict[str, str]) -> Shot:
    rng = world.rng
    plural, each = rng.choice([(plural, each) for plural, found in SUBRESOURCES.items() for each in found])
    there = world.named(plural)
    name = there["metadata"]["name"] if there else "absent"
    if each.name == "eviction":
        world.forget(PODS, name)
    root = "/api/v1" if plural == "namespaces" else f"/api/v1/namespaces/{world.namespace}"
    path = f"{root}/{plural}/{quote(name)}/{each.name}"
    if "create" not in each.verbs and "update" not in each.verbs:
        asked = (option for option in _LOG_OPTIONS if rng.random() < 0.3)
        query = "&".join(f"{option}={_quoted(_value(rng, option))}" for option in asked)
        return Shot(_request(world, tokens, "GET", _asked(path, query)))
    shaped = shape_of(each.type) if each.type else None
    document = world.stock.grown(shaped) if shaped else {}
    if isinstance(document, dict) and rng.random() < 0.7:
        document = {**document, "metadata": {"name": name}}
        if shaped and "target" in shaped.fields and rng.random() < 0.7:
            document["target"] = {"kind": "Node", "name": rng.choice(("n", text(rng)))}
    body, content_type = encodings.written(rng, document, shaped or ANY)
    method = "POST" if "create" in each.verbs else "PUT"
    path = _asked(path, _query(rng, WriteOptions) if rng.random() < 0.2 else "")
    return Shot(_request(world, tokens, method, path, body, content_type))


def _review(world: World, tokens: dict[str, str]) -> Shot:
    rng = world.rng
    each = rng.choice([virtual for virtual in EPHEMERAL if virtual.plural])
    inner = f"namespaces/{world.namespace}/" if each.namespaced else ""
    path = f"/apis/{each.group}/{each.version}/{inner}{each.plural}"
    if each.type is None or "create" not in each.verbs:
        return Shot(_request(world, tokens, "GET", rng.choice((path, f"{path}/{_quoted(text(rng))}"))))
    shaped = shape_of(each.type)
    document = world.stock.grown(shaped)
    if isinstance(document, dict) and "spec" in shaped.fields and rng.random() < 0.7:
        document["spec"] = world.stock.grown(shaped.fields["spec"].shape)
    body, content_type = encodings.written(rng, document, shaped)
    return Shot(_request(world, tokens, "POST", path, body, content_type))


def _agent(world: World, tokens: dict[str, str]) -> Shot:
    """What agents post."""
    rng = world.rng
    type_, action = rng.choice(((StatusReports, "statuses"), (LogPieces, "logs"), (UsageReports, "usage")))
    item = shape_of(type_).fields["items"].shape.item or ANY
    items = [world.stock.grown(item) for _ in range(rng.randrange(4))]
    pod = world.named("pods")
    for each in items:
        if isinstance(each, dict) and pod and rng.random() < 0.8:
            each |= {"namespace": world.namespace, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    node = rng.choice(("-", "n", "local", _quoted(text(rng))))
    path = f"/apis/agents.jobplane.dev/v1/nodes/{node}/{action}"
    body = encodings.spoiled(rng, json.dumps({"items": items}).encode())
    return Shot(_request(world, {**tokens, "admin": tokens["agent"]}, "POST", path, body))


def _document(world: World, tokens: dict[str, str]) -> Shot:
    return Shot(_request(world, tokens, world.rng.choice(("GET", "GET", "HEAD", "POST")), world.rng.choice(_DOCUMENTS)))


def _hostile(world: World, tokens: dict[str, str]) -> Shot:
    kind, _, path = _target(world)
    some = path if world.rng.random() < 0.5 else world.collection(kind)
    return Shot(hostile.request(world.rng, some, tokens["admin"]))


Aim = Callable[[World, dict[str, str]], Shot]
_AIMS: dict[Aim, int] = {
    _create: 28,
    _replace: 12,
    _patch: 24,
    _delete: 5,
    _delete_all: 2,
    _read: 4,
    _list: 7,
    _subresource: 5,
    _review: 4,
    _agent: 3,
    _document: 1,
    _hostile: 5,
}
