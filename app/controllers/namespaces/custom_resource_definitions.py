"""The controller of CustomResourceDefinitions: deletes the objects of one that is being deleted, accepts names that became free.

What there is of a kind is counted and read in the store, which only a deletion pays for.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.apiextensions.custom_kind import kinds_of
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition
from app.machinery.base import Object
from app.plans import custom_resource_definitions as plans
from app.registry.codec import decode
from app.registry.kind_table import KindTable
from app.store import Key, Query, Store

TOGETHER = 250  # objects deleted in one write set


class CustomResourceDefinitionController:
    component = "customresourcedefinition-controller"

    def __init__(self, kinds: KindTable, store: Store) -> None:
        self._kinds = kinds
        self._store = store

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """A definition; all of them when one is gone, whose names others may want; and one that waits for its objects."""
        if key.kind == DEFINITIONS.resource:
            return [key] if now is not None else [_key(each) for each in self._kinds.definitions()]
        if now is not None and (before is None or before.metadata.finalizers == now.metadata.finalizers):
            return []
        crd = self._definition(_key_of_name(key.kind))
        return [_key(crd)] if crd is not None and plans.needs_cleanup(crd) else []

    def enqueue_all(self) -> Iterable[Key]:
        return [_key(each) for each in self._kinds.definitions()]

    async def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        crd = self._definition(key)
        if crd is None:
            return []
        if plans.needs_cleanup(crd):
            living, left = await self._objects(crd)
            return [PlannedWrite(plans.plan_cleanup(crd, living, left, now))]
        if crd.metadata.deletion_timestamp is not None:
            return []
        return [PlannedWrite(plans.plan_names(crd, self._kinds.definitions(), now))]

    def _definition(self, key: Key) -> CustomResourceDefinition | None:
        return cast("CustomResourceDefinition | None", self._kinds.mirror.get(key))

    async def _objects(self, crd: CustomResourceDefinition) -> tuple[list[Object], int]:
        """Objects to delete next, and how many there are; none of a definition that was never established."""
        if not crd.status.accepted_names.plural:
            return [], 0
        kind = self._kinds.stored(crd.metadata.name) or kinds_of(crd).storage
        page = await self._store.list(Query(kind=crd.metadata.name, deleting=False, limit=TOGETHER))
        counted = await self._store.list(Query(kind=crd.metadata.name, limit=1))
        left = len(counted.heads)
        return [decode(kind, head) for head in page.heads], left


def _key(crd: CustomResourceDefinition) -> Key:
    return _key_of_name(crd.metadata.name)


def _key_of_name(name: str) -> Key:
    return Key(DEFINITIONS.resource, "", name)
