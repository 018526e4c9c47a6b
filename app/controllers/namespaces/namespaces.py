"""The namespace controller: empties a namespace that is being deleted, and lets it go when nothing is left in it.

What a namespace holds is counted and read in the store, which only a deletion pays for.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import cast

from msgspec import MsgspecError

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.machinery.base import Kind, Object
from app.plans import namespace_deletion as namespace_plan
from app.plans.namespace_deletion import Content
from app.registry.codec import decode
from app.registry.kind_table import KindTable
from app.store import Key, Mirror, Query, Store

TOGETHER = 250  # objects deleted in one write set
_FIRST = (
    "cronjobs.batch",
    "jobs.batch",
    "deployments.apps",
    "replicasets.apps",
    "pods",
)  # what runs, after what would start it again


class NamespaceController:
    component = "namespace-controller"

    def __init__(self, mirror: Mirror, store: Store, kinds: KindTable) -> None:
        self._mirror = mirror
        self._store = store
        self._kinds = kinds

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """A namespace that is going; also when something in it is gone, which may have been the last, or is held no longer."""
        if key.kind != NAMESPACES.resource:
            if now is not None and (before is None or before.metadata.finalizers == now.metadata.finalizers):
                return []
            key = _key(key.namespace)
        return [key] if self._terminating(key) else []

    def enqueue_all(self) -> Iterable[Key]:
        keys = [_key(each.metadata.name) for each in self._mirror.all(NAMESPACES.resource)]
        return [key for key in keys if self._terminating(key)]

    def _terminating(self, key: Key) -> Namespace | None:
        namespace = cast("Namespace | None", self._mirror.get(key))
        return namespace if namespace is not None and namespace_plan.needs_emptying(namespace) else None

    async def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        namespace = self._terminating(key)
        if namespace is None:
            return []
        content = await self._content(key.name)
        if not (content.living or content.left or content.failures):
            await self._forget_logs(key.name)
        return [PlannedWrite(namespace_plan.plan(namespace, content, now))]

    async def _forget_logs(self, namespace: str) -> None:
        """Before the name is free: a new namespace of that name may have other owners. No pod is left to write another."""
        while await self._store.kept_logs.forget_namespace(namespace, TOGETHER) == TOGETHER:
            pass

    async def _content(self, namespace: str) -> Content:
        """Return what is to go next: what runs, first of all, so that it has all it needs to end as it should."""
        content = self._namespaced_kinds()
        left = await self._store.count(list(content), namespace)
        runs = "pods" in left
        kinds = [kind for name, kind in content.items() if name in left and (name in _FIRST or not runs)]
        living, failures = await self._undeleted(namespace, kinds)
        if runs:
            left = {"pods": left["pods"]}
        return Content(living=living, left=left, finalizers=self._finalizers(namespace, left), failures=failures)

    def _namespaced_kinds(self) -> dict[str, Kind]:
        """The kinds of what a namespace may hold, in the order in which it goes."""
        kinds = sorted(self._kinds.all_stored(), key=lambda kind: (kind.resource not in _FIRST, kind.resource))
        return {kind.resource: kind for kind in kinds if kind.namespaced}

    async def _undeleted(self, namespace: str, kinds: Iterable[Kind]) -> tuple[list[Object], list[str]]:
        """Content that nobody has asked to go yet: as much as is deleted at once. And what could not be read."""
        living: list[Object] = []
        failures: list[str] = []
        for kind in kinds:
            if len(living) < TOGETHER:
                query = Query(kind=kind.resource, namespace=namespace, deleting=False, limit=TOGETHER - len(living))
                for head in (await self._store.list(query)).heads:
                    try:
                        living.append(decode(kind, head))
                    except MsgspecError as error:
                        failures.append(f"{kind.resource} {head.key.name}: {error}")
        return living, failures

    def _finalizers(self, namespace: str, left: Iterable[str]) -> Mapping[str, int]:
        """Return how many objects each finalizer holds."""
        mirrored = [kind for kind in left if kind in self._mirror.kinds]
        content = (each.metadata for kind in mirrored for each in self._mirror.all(kind))
        return Counter(name for meta in content if meta.namespace == namespace for name in meta.finalizers)


def _key(namespace: str) -> Key:
    return Key(NAMESPACES.resource, "", namespace)
