"""Service cache: what DNS tells of Services, from their EndpointSlices. Agents ask for it, one Service at a time.

As new as the feed's cursor. An answer is made once for each change of a Service, however many agents ask.

The own name of a pod that has ended stays for LINGER seconds: pods that wait for each other could otherwise miss one that was
quick. Kubernetes' resolvers do the same, as they cache answers for 30 s. It goes at once if the pod is deleted, or if another pod
has the name, ready or not: a Job that is made anew must not be given addresses of the one before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from app.client.protocol import AddressNames, ServiceEndpoint, ServicePortRecord, ServiceRecords, ServiceSlice
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import EndpointSlice
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service
from app.kinds.pod.pod import KIND as PODS
from app.plans.endpoint_slices import SERVICE_NAME
from app.registry.codec import key_of
from app.registry.mirror_cache import MirrorCache
from app.store import Change, Key, Mirror, Store

MOST_NAMES = 16  # of one address
LINGER = 30.0  # seconds
MOST_RECENT = 1000  # names of ended pods of a Service
MOST_DELETED = 10_000  # pods
_NONE = ServiceRecords()


class _Ended(NamedTuple):
    pod: str  # its UID
    until: float
    endpoint: ServiceEndpoint


class _RecentNames:
    """Names of a Service's pods that have ended, the last at the end."""

    def __init__(self) -> None:
        self._ended: dict[str, _Ended] = {}  # by host name
        self._names: dict[str, str] = {}  # by UID
        self._endpoints: tuple[ServiceEndpoint, ...] | None = ()

    def keep(self, ended: _Ended) -> None:
        name = ended.endpoint.hostname
        self.forget(name)
        self._ended[name], self._names[ended.pod], self._endpoints = ended, name, None
        if len(self._ended) > MOST_RECENT:
            self.forget(next(iter(self._ended)))

    def forget(self, name: str) -> None:
        if (ended := self._ended.pop(name, None)) is not None:
            self._names.pop(ended.pod, None)
            self._endpoints = None

    def forget_pod(self, uid: str) -> None:
        self.forget(self._names.get(uid, ""))

    def endpoints(self, now: float) -> tuple[ServiceEndpoint, ...]:
        """Return those whose time is not over: the same tuple until one comes or goes."""
        for name in [name for name, each in self._ended.items() if each.until <= now]:
            self.forget(name)
        if self._endpoints is None:
            self._endpoints = tuple(each.endpoint for each in self._ended.values())
        return self._endpoints


class ServiceCache:
    """`records`, `names` and `has_services` answer from memory."""

    def __init__(self, store: Store, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._cache = MirrorCache(store, frozenset({SERVICES.resource, SLICES.resource}))
        self._feed = store.feed
        self._follows = False
        self._mirror: Mirror | None = None
        self._clear()

    def _clear(self) -> None:
        self._slices: defaultdict[Key, dict[Key, EndpointSlice]] = defaultdict(dict)  # by Service
        self._by_address: defaultdict[str, dict[Key, Key]] = defaultdict(dict)  # slices with their Services
        self._counts: defaultdict[str, int] = defaultdict(int)  # of Services, by namespace
        self._records: dict[Key, ServiceRecords] = {}
        self._recent: dict[Key, _RecentNames] = {}  # by Service
        self._deleted: dict[str, None] = {}  # UIDs of pods, as a slice may hold one that is no more

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
        if (recent := self._recent_endpoints(key)) != known.recent:
            known = self._records[key] = replace(known, recent=recent)
        return known

    def _recent_endpoints(self, service: Key) -> tuple[ServiceEndpoint, ...]:
        recent = self._recent.get(service)
        found = recent.endpoints(self._elapsed()) if recent else ()
        if not found:
            self._recent.pop(service, None)
        return found

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
        if not self._follows:
            await self._listen()
        mirror = await self._cache.mirror()
        if mirror is not self._mirror:
            self._mirror = mirror
            self._clear()
            mirror.listen(self._on_change)
            for kind in (SERVICES.resource, SLICES.resource):
                for each in mirror.all(kind):
                    self._on_change(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        return mirror

    async def _listen(self) -> None:
        """Once. Whoever asks next does it if this is broken off, or fails as the database is away."""
        self._follows = True
        try:
            await self._feed.listen(self._forget_deleted, self._feed.cursor)
        except BaseException:
            self._follows = False
            raise

    def _on_change(self, key: Key, before: object | None, now: object | None) -> None:
        if key.kind == SERVICES.resource:
            self._counts[key.namespace] += (now is not None) - (before is not None)
            self._records.pop(key, None)
            if now is None:
                self._recent.pop(key, None)
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
            if piece is before:
                self._keep_names(service, piece, cast("EndpointSlice | None", now))
            elif service in self._recent:
                for each in piece.endpoints:
                    self._recent[service].forget(each.hostname or "")

    def _keep_names(self, service: Key, before: EndpointSlice, now: EndpointSlice | None) -> None:
        if self._mirror is None or self._mirror.get(service) is None:
            return
        left = {each.hostname for each in now.endpoints} if now else set()
        for each in before.endpoints:
            pod = each.target_ref.uid if each.target_ref else ""
            gone = each.hostname and each.hostname not in left and pod not in self._deleted
            if gone and each.conditions.ready is not False:
                ended = _Ended(pod, self._elapsed() + LINGER, ServiceEndpoint(each.addresses, each.hostname or ""))
                self._recent.setdefault(service, _RecentNames()).keep(ended)

    def _forget_deleted(self, changes: Sequence[Change]) -> None:
        """Take the names from pods that are deleted: another Job may use them next."""
        for change in changes:
            if change.change != "D" or change.key.kind != PODS.resource or not self._counts.get(change.key.namespace):
                continue
            self._deleted[change.uid] = None
            if len(self._deleted) > MOST_DELETED:
                del self._deleted[next(iter(self._deleted))]
            for service, recent in self._recent.items():
                if service.namespace == change.key.namespace:
                    recent.forget_pod(change.uid)

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
