"""Every namespace has a service account named default: made when the namespace appears, and again when it is deleted."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from app.controllers.work import Work
from app.kinds.base import Object, ObjectMeta
from app.kinds.namespace import KIND as NAMESPACES
from app.kinds.namespace import Namespace, phase
from app.kinds.serviceaccount import KIND as ACCOUNTS
from app.kinds.serviceaccount import ServiceAccount
from app.plans.plan import Create, Plan
from app.store import Key, Mirror

NAME = "default"


class ServiceAccountController:
    component = "serviceaccount-controller"

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def woken(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == NAMESPACES.resource and before is None:
            return [key]
        if key.kind == ACCOUNTS.resource and key.name == NAME and now is None:
            return [Key(NAMESPACES.resource, "", key.namespace)]
        return []

    def everything(self) -> Iterable[Key]:
        return [Key(NAMESPACES.resource, "", each.metadata.name) for each in self._mirror.all(NAMESPACES.resource)]

    def work(self, key: Key, _: datetime) -> Sequence[Work]:
        namespace = cast("Namespace | None", self._mirror.get(key))
        there = self._mirror.get(Key(ACCOUNTS.resource, key.name, NAME))
        if there is not None or namespace is None or phase(namespace) != "Active":
            return []
        return [Work(Plan((Create(ServiceAccount(metadata=ObjectMeta(name=NAME, namespace=key.name))),)))]
