"""Target of a proxied request: the pod and the port that `pods/NAME/proxy` and `services/NAME/proxy` mean. Used by `proxy`.

Names are `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`, as in Kubernetes; refusals are Kubernetes' own.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple, cast

from app.api.resources.routes import RequestInfo
from app.kinds.core.endpointslice import Endpoint, EndpointSlice
from app.kinds.core.service import Service
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError, bad_request
from app.registry.codec import decode
from app.registry.verbs.objects import Registry, find, get

_SCHEMES = ("", "http", "https")
_USUAL_PORTS = {"": 80, "http": 80, "https": 443}


class Target(NamedTuple):
    """The pod and port that a request goes to. `address`: its name in messages and `Location` headers."""

    pod: Pod
    port: int
    is_tls: bool
    address: str


class _Asked(NamedTuple):
    scheme: str
    name: str
    port: str


async def find_target(registry: Registry, found: RequestInfo) -> Target:
    """Return the pod and port of a request. 400, 404 or 503 if there is none."""
    if found.kind is PODS:
        return await _find_pod(registry, found)
    return await _find_endpoint(registry, found)


async def _find_pod(registry: Registry, found: RequestInfo) -> Target:
    asked = _split(found.name)
    if asked is None:
        raise bad_request(f'invalid pod request "{found.name}"')
    pod = cast("Pod", decode(PODS, await find(registry, PODS, found.namespace or "", asked.name)))
    if not pod.spec.node_name:
        raise bad_request("address not allowed")
    ports = (port.container_port for container in pod.spec.containers for port in container.ports)
    port = asked.port or str(next(ports, _USUAL_PORTS[asked.scheme]))
    number = parse_port(port)
    if number is None:
        raise unreachable(f"dial tcp: lookup tcp/{port}: unknown port")
    return _target(pod, number, asked.scheme)


async def _find_endpoint(registry: Registry, found: RequestInfo) -> Target:
    """A pod behind a Service: any that is ready."""
    asked, namespace = _split(found.name), found.namespace or ""
    if asked is None:
        raise bad_request(f'invalid service request "{found.name}"')
    port = asked.port
    if port.isascii() and port.isdigit():
        service = cast("Service", decode(found.kind, await find(registry, found.kind, namespace, asked.name)))
        port = _port_name(service, int(port))
    slices = await registry.admission.resolver.slices(namespace, asked.name)
    places = [place for piece in slices for place in _ready(piece, port, namespace)]
    random.shuffle(places)
    for endpoint, number in places:
        pod = await _pod_of(registry, endpoint, namespace)
        if pod is not None:
            return _target(pod, number, asked.scheme)
    raise _unavailable(f'no endpoints available for service "{asked.name}"')


def _split(name: str) -> _Asked | None:
    """Split `SCHEME:NAME:PORT`; None if it is none of the forms."""
    parts = name.split(":")
    if len(parts) > 3:
        return None
    scheme, name, port = parts if len(parts) == 3 else ("", *parts, "")[:3]
    return _Asked(scheme, name, port) if name and scheme in _SCHEMES else None


def parse_port(text: str) -> int | None:
    port = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return port if 0 < port < 1 << 16 else None


def _port_name(service: Service, number: int) -> str:
    for port in service.spec.ports:
        if port.port == number:
            return port.name
    raise _unavailable(f'no service port {number} found for service "{service.metadata.name}"')


def _ready(piece: EndpointSlice, port_name: str, namespace: str) -> Iterable[tuple[Endpoint, int]]:
    """The endpoints of a slice that are pods of the namespace and ready, with the number of the port there."""
    number = next((each.port for each in piece.ports if (each.name or "") == port_name and each.port), None)
    for endpoint in piece.endpoints if number is not None else ():
        pod = endpoint.target_ref
        is_ready = endpoint.conditions.ready is not False and bool(endpoint.addresses)
        if is_ready and pod is not None and pod.kind == "Pod" and pod.namespace == namespace:
            yield endpoint, number or 0


async def _pod_of(registry: Registry, endpoint: Endpoint, namespace: str) -> Pod | None:
    """The pod of an endpoint, if it is still the same one."""
    reference = endpoint.target_ref
    head = await get(registry, PODS, namespace, reference.name) if reference else None
    pod = cast("Pod", decode(PODS, head)) if head is not None else None
    if pod is None or not pod.spec.node_name or endpoint.addresses[0] not in {each.ip for each in pod.status.pod_ips}:
        return None
    return pod


def _target(pod: Pod, port: int, scheme: str) -> Target:
    host = pod.status.pod_ip or pod.metadata.name
    return Target(pod, port, scheme == "https", f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def unreachable(why: str) -> ApiError:
    """The error of a pod that does not answer. Kubernetes' code for it is 503, too."""
    return _unavailable(f"error trying to reach service: {why}")


def _unavailable(why: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", why)
