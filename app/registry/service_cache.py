"""Service cache: what DNS tells of Services, from their EndpointSlices. Agents ask for it, one Service at a time.

As new as the feed's cursor. An answer is made once for each change of a Service, however many agents ask.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import cast

from app.client.protocol import AddressNames, ServiceEndpoint, ServicePortRecord, ServiceRecords, ServiceSlice
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import EndpointSlice
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service
from app.plans.endpoint_slices import SERVICE_NAME
from app.registry.codec import key_of
from app.registry.mirror_cache import MirrorCache
from app.store import Key, Mirror, Store

MOST_NAMES = 16  # of one address
_NONE = ServiceRecords()


class ServiceCache:
    """`records`, `names` and `has_services` answer from memory."""

    def __init__(self, store: Store) -> None:
        self._cache = MirrorCache(store, frozenset({SERVICES.resource, SLICES.resource}))
        self._mirror: Mirror | None = None
        self._clear()

    def _clear(self) -> None:
        self._slices: defaultdict[Key, dict[Key, EndpointSlice]] = defaultdict(dict)  # by Service
        self._by_address: defaultdict[str, dict[Key, Key]] = defaultdict(dict)  # slices with their Services
        self._counts: defaultdict[str, int] = defaultdict(int)  # of Services, by namespace
        self._records: dict[Key, ServiceRecords] = {}

    async def has_services(self, namespace: str) -> bool:
        await self._follow()
        return self._counts.get(namespace, 0) > 0

    async def records(self, namespace: str, name: str) -> ServiceRecords:
        """Return the ready endpoints of a Service; nothing is `found` if there is no such Service."""
        mirror = await self._follow()
        key = key_of(SERVICES, namespace, name)
        if (known := self._records.get(key)) is None:
            service = cast("Service | None", mirror.get(key))
            if service is None:
                return _NONE  # not remembered: anything may be asked for
            known = self._records[key] = _records(service, self._slices.get(key, {}).values())
        return known

    async def names(self, address: str) -> AddressNames:
        """Return the names of the endpoints with this address, without the cluster's domain."""
        mirror = await self._follow()
        found: list[str] = []
        for key in set(self._by_address.get(address, {}).values()):
            if mirror.get(key) is None:
                continue
            records = await self.records(key.namespace, key.name)
            endpoints = (each for piece in records.slices for each in piece.endpoints if address in each.addresses)
            found += (f"{each.hostname}.{key.name}.{key.namespace}.svc" for each in endpoints if each.hostname)
        return AddressNames(sorted(set(found))[:MOST_NAMES])

    async def _follow(self) -> Mirror:
        mirror = await self._cache.mirror()
        if mirror is not self._mirror:
            self._mirror = mirror
            self._clear()
            mirror.listen(self._on_change)
            for kind in (SERVICES.resource, SLICES.resource):
                for each in mirror.all(kind):
                    self._on_change(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        return mirror

    def _on_change(self, key: Key, before: object | None, now: object | None) -> None:
        if key.kind == SERVICES.resource:
            self._counts[key.namespace] += (now is not None) - (before is not None)
            self._records.pop(key, None)
            return
        for piece in (cast("EndpointSlice | None", before), cast("EndpointSlice | None", now)):
            if piece is None or not (name := piece.metadata.labels.get(SERVICE_NAME, "")):
                continue
            service = key_of(SERVICES, key.namespace, name)
            self._records.pop(service, None)
            if piece is now:
                self._slices[service][key] = piece
            else:
                self._slices[service].pop(key, None)
            self._index_addresses(key, service, piece, is_new=piece is now)

    def _index_addresses(self, key: Key, service: Key, piece: EndpointSlice, *, is_new: bool) -> None:
        for address in (each for endpoint in piece.endpoints for each in endpoint.addresses):
            if is_new:
                self._by_address[address][key] = service
            else:
                self._by_address[address].pop(key, None)
                if not self._by_address[address]:
                    del self._by_address[address]


def _records(service: Service, slices: Iterable[EndpointSlice]) -> ServiceRecords:
    if service.spec.type == "ExternalName":
        return ServiceRecords(found=True, external_name=service.spec.external_name)
    pieces = (_slice(each) for each in slices if each.address_type != "FQDN")
    return ServiceRecords(found=True, slices=tuple(each for each in pieces if each.endpoints))


def _slice(piece: EndpointSlice) -> ServiceSlice:
    ready = (each for each in piece.endpoints if each.conditions.ready is not False)
    return ServiceSlice(
        endpoints=tuple(ServiceEndpoint(each.addresses, each.hostname or "") for each in ready),
        ports=tuple(
            ServicePortRecord(each.name or "", (each.protocol or "TCP").lower(), each.port)
            for each in piece.ports
            if each.port is not None
        ),
    )
