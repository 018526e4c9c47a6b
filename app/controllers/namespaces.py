"""The namespace controller: empties a namespace that is being deleted, and lets it go when nothing is left in it.

Of what namespaces hold, most is not mirrored: it is counted and read in the store, which only a deletion pays for.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import cast

from app.controllers.work import Work
from app.kinds import KINDS
from app.kinds.base import Object
from app.kinds.namespace import KIND as NAMESPACES
from app.kinds.namespace import Namespace
from app.plans import namespaces as namespace_plan
from app.registry.codec import decode
from app.store import Key, Mirror, Query, Store

TOGETHER = 250  # objects deleted in one write set
_FIRST = ("jobs.batch", "pods")  # so that what runs loses what it needs only when it has been told to stop
CONTENT = {
    kind.resource: kind
    for kind in sorted(KINDS, key=lambda kind: kind.resource not in _FIRST)
    if kind.namespaced and kind.stored_as is None
}


class NamespaceController:
    component = "namespace-controller"

    def __init__(self, mirror: Mirror, store: Store) -> None:
        self._mirror = mirror
        self._store = store

    def woken(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:  # noqa: ARG002 - the mirror knows
        """A namespace that is going; also when something in it is gone, which may have been the last."""
        if key.kind != NAMESPACES.resource:
            if now is not None:
                return []
            key = _key(key.namespace)
        return [key] if self._going(key) else []

    def everything(self) -> Iterable[Key]:
        keys = [_key(each.metadata.name) for each in self._mirror.all(NAMESPACES.resource)]
        return [key for key in keys if self._going(key)]

    def _going(self, key: Key) -> Namespace | None:
        namespace = cast("Namespace | None", self._mirror.get(key))
        return namespace if namespace is not None and namespace_plan.is_to_be_emptied(namespace) else None

    async def work(self, key: Key, now: datetime) -> Sequence[Work]:
        namespace = self._going(key)
        if namespace is None:
            return []
        left = await self._store.count(list(CONTENT), key.name)
        return [Work(namespace_plan.plan(namespace, left, await self._living(key.name, left), now))]

    async def _living(self, namespace: str, left: Mapping[str, int]) -> list[Object]:
        """Content that nobody has asked to go yet: as much as is deleted at once."""
        living: list[Object] = []
        for kind in (kind for resource, kind in CONTENT.items() if resource in left):
            if len(living) < TOGETHER:
                query = Query(kind=kind.resource, namespace=namespace, deleting=False, limit=TOGETHER - len(living))
                living += [decode(kind, head) for head in (await self._store.list(query)).heads]
        return living


def _key(namespace: str) -> Key:
    return Key(NAMESPACES.resource, "", namespace)
