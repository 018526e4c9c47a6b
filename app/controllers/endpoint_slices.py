"""EndpointSlice controller: keeps the EndpointSlices of each Service that has a selector as its pods are.

The decision is `app.plans.endpoint_slices`. Services are found by one label of their selector, so a change of a pod costs nothing
where no Service could select it. Only what an endpoint tells of a pod wakes its Services. Of a Service with many pods changes are
gathered for a moment, because each of its slices has up to 100 endpoints, which every watcher gets.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import EndpointSlice
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.plans import endpoint_slices
from app.plans.endpoint_slices import SERVICE_NAME, is_ours
from app.plans.plan import Names
from app.registry.codec import key_of
from app.registry.verbs.versions import random_name
from app.store import Key, Mirror

FEW = 10  # pods of a Service, whose changes are written at once
GATHERED = 0.002  # seconds for each pod of a larger one
LONGEST = 1.0  # seconds

_Label = tuple[str, str, str]  # namespace, key, value


class EndpointSliceController:
    component = "endpoint-slice-controller"
    kinds = frozenset({PODS.resource, SERVICES.resource, SLICES.resource})

    def __init__(self, mirror: Mirror, random_name: Names = random_name) -> None:
        self._mirror, self._random_name = mirror, random_name
        self._services: defaultdict[_Label, dict[Key, Service]] = defaultdict(dict)
        self._pods: dict[Key, dict[Key, Pod]] = {}  # by Service: the pods that it selects
        self._slices: defaultdict[Key, dict[Key, EndpointSlice]] = defaultdict(dict)  # by Service

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == PODS.resource:
            return self._on_pod(key, cast("Pod | None", before), cast("Pod | None", now)) if self._pods else ()
        if key.kind == SERVICES.resource:
            return self._on_service(key, cast("Service | None", before), cast("Service | None", now))
        if key.kind == SLICES.resource:
            return [*self._on_slice(key, cast("EndpointSlice | None", before), cast("EndpointSlice | None", now))]
        return ()

    def _on_service(self, key: Key, before: Service | None, now: Service | None) -> Iterable[Key]:
        if before is not None and (label := _label(before)):
            self._services[label].pop(key, None)
            if not self._services[label]:
                del self._services[label]
        if now is None or not (label := _label(now)):
            self._pods.pop(key, None)
            return ()
        self._services[label][key] = now
        if before is None or before.spec.selector != now.spec.selector or key not in self._pods:
            self._pods[key] = dict(self._select(now))
        return [key]

    def _select(self, service: Service) -> Iterator[tuple[Key, Pod]]:
        namespace = service.metadata.namespace
        for each in self._mirror.all(PODS.resource):
            if each.metadata.namespace == namespace and _selects(service, each):
                yield key_of(PODS, namespace, each.metadata.name), cast("Pod", each)

    def _on_pod(self, key: Key, before: Pod | None, now: Pod | None) -> Iterable[Key]:
        """Return the Services for which something has changed."""
        touched: list[Key] = []
        for service_key, service in {**self._candidates(before), **self._candidates(now)}.items():
            pods = self._pods[service_key]
            pods.pop(key, None)
            old = _told(service, before)
            if now is not None and _selects(service, now):
                pods[key] = now
            if old != _told(service, now):
                touched.append(service_key)
        return touched

    def on_dormancy(self, key: Key, obj: Object, is_dormant: bool) -> None:
        """A dormant pod is no endpoint."""
        if is_dormant and isinstance(obj, Pod):
            for service in self._candidates(obj):
                self._pods[service].pop(key, None)

    def _candidates(self, pod: Pod | None) -> dict[Key, Service]:
        if pod is None:
            return {}
        namespace, found = pod.metadata.namespace, {}
        for name, value in pod.metadata.labels.items():
            found.update(self._services.get((namespace, name, value), {}))
        return found

    def _on_slice(self, key: Key, before: EndpointSlice | None, now: EndpointSlice | None) -> Iterator[Key]:
        """Yield Services whose slices somebody else has changed, or so it may be."""
        for piece in (before, now):
            if piece is None or not is_ours(piece):
                continue
            service = key_of(SERVICES, key.namespace, piece.metadata.labels.get(SERVICE_NAME, ""))
            self._slices[service].pop(key, None)
            if piece is now:
                self._slices[service][key] = piece
            if not self._slices[service]:
                del self._slices[service]
            yield service

    def enqueue_all(self) -> Iterable[Key]:
        self._services, self._pods, self._slices = defaultdict(dict), {}, defaultdict(dict)
        for each in self._mirror.all(SLICES.resource):
            [*self._on_slice(_key(SLICES.resource, each), None, cast("EndpointSlice", each))]
        found = [cast("Service", each) for each in self._mirror.all(SERVICES.resource)]
        return [key for each in found for key in self._on_service(_key(SERVICES.resource, each), None, each)]

    async def reconcile(self, key: Key, _: datetime) -> Sequence[PlannedWrite]:
        if (count := len(self._pods.get(key, ()))) > FEW:
            await asyncio.sleep(min(count * GATHERED, LONGEST))
        service = cast("Service | None", self._mirror.get(key))
        if service is None or key not in self._pods or service.metadata.deletion_timestamp is not None:
            return ()
        slices = [*self._slices.get(key, {}).values()]
        plan = endpoint_slices.plan(service, self._pods[key].values(), slices, self._random_name)
        return [PlannedWrite(plan)]


def _key(resource: str, obj: Object) -> Key:
    return Key(resource, obj.metadata.namespace, obj.metadata.name)


def _label(service: Service) -> _Label | None:
    """The label by which the Service is found; None if the controller makes no slices for it."""
    if service.spec.type == "ExternalName" or not service.spec.selector:
        return None
    return (service.metadata.namespace, *min(service.spec.selector.items()))


def _selects(service: Service, pod: Object) -> bool:
    return service.spec.selector.items() <= pod.metadata.labels.items()


def _told(service: Service, pod: Pod | None) -> object:
    """What the slices tell of a pod."""
    if pod is None or not _selects(service, pod):
        return None
    found = list(endpoint_slices.endpoints(service, pod))
    return (found, endpoint_slices.ports(service, pod)) if found else None
