"""ServiceAccount controller: every namespace has a service account named default, also after it was deleted."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace, phase
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.kinds.core.serviceaccount import ServiceAccount
from app.machinery.base import Object, ObjectMeta
from app.plans.plan import Create, Plan
from app.store import Key, Mirror

NAME = "default"


class ServiceAccountController:
    component = "serviceaccount-controller"
    kinds = frozenset({NAMESPACES.resource, ACCOUNTS.resource})

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == NAMESPACES.resource and before is None:
            return [key]
        if key.kind == ACCOUNTS.resource and key.name == NAME and now is None:
            return [Key(NAMESPACES.resource, "", key.namespace)]
        return []

    def enqueue_all(self) -> Iterable[Key]:
        return [Key(NAMESPACES.resource, "", each.metadata.name) for each in self._mirror.all(NAMESPACES.resource)]

    def reconcile(self, key: Key, _: datetime) -> Sequence[PlannedWrite]:
        namespace = cast("Namespace | None", self._mirror.get(key))
        there = self._mirror.get(Key(ACCOUNTS.resource, key.name, NAME))
        if there is not None or namespace is None or phase(namespace) != "Active":
            return []
        return [PlannedWrite(Plan((Create(ServiceAccount(metadata=ObjectMeta(name=NAME, namespace=key.name))),)))]
