"""Root CA publisher: every namespace has a ConfigMap with the authority of the API's certificate, so that pods can trust it.

It is written again when somebody changes or deletes it, and when the authority is another one after a start.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace, phase
from app.machinery.base import Object, ObjectMeta
from app.plans.plan import Create, Plan, Update
from app.registry.codec import decode
from app.store import Key, Mirror, Store

NAME = "kube-root-ca.crt"
DESCRIPTION = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
}


class RootCAPublisher:
    component = "root-ca-cert-publisher"
    kinds = frozenset({NAMESPACES.resource, CONFIGMAPS.resource})

    def __init__(self, mirror: Mirror, store: Store, certificate: str) -> None:
        self._mirror = mirror
        self._store = store
        self._data = {"ca.crt": certificate}

    def on_event(self, key: Key, before: Object | None, _: Object | None) -> Iterable[Key]:
        if key.kind == NAMESPACES.resource and before is None:
            return [key]
        if key.kind == CONFIGMAPS.resource and key.name == NAME:
            return [Key(NAMESPACES.resource, "", key.namespace)]
        return []

    def enqueue_all(self) -> Iterable[Key]:
        return [Key(NAMESPACES.resource, "", each.metadata.name) for each in self._mirror.all(NAMESPACES.resource)]

    async def reconcile(self, key: Key, _: datetime) -> Sequence[PlannedWrite]:
        namespace = cast("Namespace | None", self._mirror.get(key))
        if namespace is None or phase(namespace) != "Active":
            return []
        head = await self._store.get(Key(CONFIGMAPS.resource, key.name, NAME))  # the mirror knows only that it is there
        if head is None:
            meta = ObjectMeta(name=NAME, namespace=key.name, annotations=DESCRIPTION)
            return [PlannedWrite(Plan((Create(ConfigMap(metadata=meta, data=self._data)),)))]
        old = cast("ConfigMap", decode(CONFIGMAPS, head))
        if old.data == self._data:
            return []
        meta = replace(old.metadata, annotations=old.metadata.annotations | DESCRIPTION)
        return [PlannedWrite(Plan((Update(replace(old, metadata=meta, data=self._data, binary_data={}), old),)))]
