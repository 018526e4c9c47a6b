"""Service resolver: the addresses of the ready endpoints behind a Service, from its EndpointSlices.

Used by `webhook_client`, and for the slices by the API's proxy. As new as the change feed. The copy of Services and
EndpointSlices is made when the first webhook names a Service, or the first Service is proxied.
"""

from collections.abc import Iterator
from typing import cast

from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import EndpointSlice
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service
from app.plans.admission.webhooks.admission_review import CallError
from app.plans.endpoint_slices import SERVICE_NAME
from app.registry.codec import key_of
from app.registry.mirror_cache import MirrorCache
from app.store import Key, Mirror, Store

Endpoints = tuple[tuple[str, int], ...]  # hosts and ports


class ServiceResolver:
    """Finds endpoints in memory; what was found is kept until a Service or an EndpointSlice changes."""

    def __init__(self, store: Store) -> None:
        self._cache = MirrorCache(store, frozenset({SERVICES.resource, SLICES.resource}))
        self._mirror: Mirror | None = None
        self._found: dict[tuple[str, str, int], Endpoints] = {}

    async def resolve(self, namespace: str, name: str, port: int) -> Endpoints:
        """Return hosts and ports of a Service's ready endpoints. Raises CallError if there are none."""
        mirror = await self._cache.mirror()
        if mirror is not self._mirror:
            self._mirror = mirror
            self._found.clear()
            mirror.listen(self._forget)
        asked = (namespace, name, port)
        if asked not in self._found:
            self._found[asked] = _find(mirror, namespace, name, port)
        return self._found[asked]

    async def slices(self, namespace: str, name: str) -> list[EndpointSlice]:
        """Return the EndpointSlices of a Service."""
        return list(_slices_of(await self._cache.mirror(), namespace, name))

    def _forget(self, _key: Key, _before: object, _now: object) -> None:
        self._found.clear()


def _find(mirror: Mirror, namespace: str, name: str, port: int) -> Endpoints:
    service = cast("Service | None", mirror.get(key_of(SERVICES, namespace, name)))
    if service is None:
        raise CallError(f'service "{name}" not found')
    wanted = next((each for each in service.spec.ports if each.port == port), None)
    if wanted is None:
        raise CallError(f'no service port {port} found for service "{name}"')
    if service.spec.type == "ExternalName":
        return ((service.spec.external_name, port),)
    found: list[tuple[str, int]] = []
    for piece in _slices_of(mirror, namespace, name):
        found += _ready_endpoints(piece, wanted.name)
    if not found:
        raise CallError(f'no endpoints available for service "{name}"')
    return tuple(found)


def _slices_of(mirror: Mirror, namespace: str, name: str) -> Iterator[EndpointSlice]:
    for each in mirror.all(SLICES.resource):
        if each.metadata.namespace == namespace and each.metadata.labels.get(SERVICE_NAME) == name:
            yield cast("EndpointSlice", each)


def _ready_endpoints(piece: EndpointSlice, port_name: str) -> list[tuple[str, int]]:
    port = next((each.port for each in piece.ports if (each.name or "") == port_name and each.port), None)
    if port is None:
        return []
    ready = (each for each in piece.endpoints if each.conditions.ready is not False and each.addresses)
    return [(each.addresses[0], port) for each in ready]
