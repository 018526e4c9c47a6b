"""The garbage collector: looks at an owner, by UID, when it is gone or going, and at what has an owner that is.

It decides by the mirror, which has only the metadata of most kinds; what it writes it reads whole. An owner that the mirror
does not show is looked for in the database before anything is deleted: so an incomplete mirror costs time, never objects.
Finished pods of a finished Job are not in the mirror: when the Job is deleted, they are brought back to it. Nor are custom
objects to which nothing belongs: when something does, its owner is brought back, and let go when nothing is left.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from app.controllers.garbage_collection.owner_graph import OwnerGraph
from app.controllers.planned_write import PlannedWrite
from app.machinery.base import Object, OwnerReference
from app.machinery.meta.metadata_validation import FOREGROUND, ORPHAN
from app.machinery.meta.owner_references import controller_uid
from app.plans import garbage_collection
from app.plans.garbage_collection import Owner
from app.plans.jobs.finalizers import is_tracked
from app.plans.plan import Action, Plan
from app.registry.codec import decode
from app.registry.kind_table import KindTable
from app.store import Key, Mirror, Store

TOGETHER = 250  # dependents written in one write set
MOST = 10_000  # dependents of one look
OWNER = "owner"
_SOON = timedelta(seconds=1)
_REMEMBERED = 10_000
T = TypeVar("T")


class GarbageCollector:
    component = "garbage-collector-controller"

    def __init__(self, mirror: Mirror, store: Store, kinds: KindTable) -> None:
        self._mirror = mirror
        self._store = store
        self._kinds = kinds
        self._graph = OwnerGraph(mirror, kinds)
        self._known_absent: set[tuple[Key, str]] = set()  # owners that the database does not have either
        self._incomplete: set[str] = set()  # UIDs of owners of which the mirror may lack dependents
        self._unseen: dict[tuple[Key, str], None] = {}  # owners to look for in the database, since the start
        self._is_waking = False
        self._reported: set[str] = set()  # UIDs of objects with an event that their owner cannot be one

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if _is_of_no_concern(before, now):
            return []
        self._graph.follow(key, before, now)
        if self._is_waking:  # `_wake_dependents` looks at them
            return []
        found = [] if now is None else self._keys_of(key, now)
        gone = before.metadata.uid if before is not None else ""
        if (now is None or now.metadata.uid != gone) and (self._graph.dependents(gone) or gone in self._incomplete):
            found.append(_owner(gone))
        for obj in (before, now):
            for each in obj.metadata.owner_references if obj is not None else ():
                if self._is_released(each.uid):
                    found.append(_owner(each.uid))
        self._let_go(key, before, now)
        return found

    def _let_go(self, key: Key, before: Object | None, now: Object | None) -> None:
        """Have the mirror do without an object to which nothing belongs, if that is all that it is there for."""
        uids = _owners(before) if before is not None else set()
        places = {uid: place for uid in uids if (place := self._graph.key(uid)) is not None}
        if now is not None:
            places[now.metadata.uid] = key
        for uid, place in places.items():
            if not self._graph.dependents(uid):
                self._mirror.let_go(place)

    def on_dormancy(self, key: Key, obj: Object, is_dormant: bool) -> None:
        """Handle dormancy. Some pods of a Job become dormant before it, and a Job wakes without its pods."""
        kinds = self._mirror.dormant
        is_owner = kinds is not None and key.kind == kinds.owner
        if is_dormant:
            self._graph.follow(key, obj, None)
        if is_owner and is_dormant:
            self._incomplete.discard(obj.metadata.uid)
        elif is_owner:
            self._incomplete.add(obj.metadata.uid)
        elif is_dormant and (uid := controller_uid(obj)):
            self._incomplete.add(uid)

    async def _wake_dependents(self, uid: str) -> None:
        """Have the mirror hold all dependents of an owner that is gone or going."""
        kinds = self._mirror.dormant
        if kinds is None or uid not in self._incomplete:
            return
        with self._mirror.waking() as wake:
            async for heads in self._store.dormant.owned_by(kinds.dependent, [uid], only_dormant=False):
                self._is_waking = True
                wake(heads)
                self._is_waking = False
        self._incomplete.discard(uid)

    def _keys_of(self, key: Key, obj: Object) -> list[Key]:
        """Return what to look at because of an object that is there."""
        found = [key] if self._is_due(key, obj) else []
        if garbage_collection.is_orphaning(obj) or garbage_collection.is_deleted_in_foreground(obj):
            found.append(_owner(obj.metadata.uid))
        return found

    def _is_released(self, uid: str) -> bool:
        """An owner that nothing holds any more, or that is to let go of its dependents."""
        owner = self._graph.object(uid)
        if owner is None or owner.metadata.deletion_timestamp is None:
            return False
        return garbage_collection.is_orphaning(owner) or (
            garbage_collection.is_deleted_in_foreground(owner) and not self._graph.is_blocked(uid)
        )

    def enqueue_all(self) -> Iterable[Key]:
        found: dict[Key, None] = {}
        self._unseen.clear()
        for key, obj in list(self._graph.rebuild()):
            if garbage_collection.is_orphaning(obj) or garbage_collection.is_deleted_in_foreground(obj):
                found[_owner(obj.metadata.uid)] = None
            if self._is_due(key, obj):
                # All that belongs to one owner is looked at together.
                self._unseen.update(dict.fromkeys(self._absent_owners(key)))
                absent = [uid for uid in sorted(_owners(obj)) if self._graph.key(uid) is None]
                found[_owner(absent[0]) if absent else key] = None
        return found

    def _is_due(self, key: Key, obj: Object) -> bool:
        """Return whether there is something to do about an object because of its owners. Nearly always they simply live."""
        if obj.metadata.deletion_timestamp is not None and not is_tracked(obj):
            return False
        if self._graph.all_owners_live(obj):
            return False
        return bool(self._actions(key, obj) or self._misplaced_owners(obj))

    def _actions(self, key: Key, obj: Object) -> tuple[Action, ...]:
        kind = self._kinds.stored(key.kind)
        if kind is None or key.name in kind.immortal:
            return ()
        judge = partial(self._graph.judge, namespace=obj.metadata.namespace)
        return garbage_collection.plan(obj, judge, owns=bool(self._graph.dependents(obj.metadata.uid)))

    def _misplaced_owners(self, obj: Object) -> Sequence[OwnerReference]:
        """Owners that cannot be owners of it. Told once, for as long as this process remembers."""
        return () if obj.metadata.uid in self._reported else self._graph.owners_elsewhere(obj)

    async def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        if key.kind != OWNER:
            return await self._plan_objects([key], now)
        await self._wake_dependents(key.name)
        dependents = list(self._graph.dependents(key.name))
        place, owner = self._graph.key(key.name), self._graph.object(key.name)
        if place is not None and owner is not None and garbage_collection.is_orphaning(owner):
            return await self._plan_orphaning(key.name, place, [each for each in dependents if each != place])
        works = await self._plan_objects(dependents, now)
        if place is not None and owner is not None and garbage_collection.is_deleted_in_foreground(owner):
            works += await self._plan_release(key.name, place)
        return works

    async def _plan_objects(self, keys: Iterable[Key], now: datetime) -> list[PlannedWrite]:
        """Return what becomes of these objects. Nothing binds them together: one that changes meanwhile holds up few others."""
        due = (key for key in keys if (obj := self._mirror.get(key)) is not None and self._is_due(key, obj))
        chosen = list(islice(due, MOST))
        if await self._is_behind(chosen):
            return [PlannedWrite(Plan(again_at=now + _SOON))]
        planned = [self._plan_object(key, obj) for key, obj in (await self._read_whole(chosen)).items()]
        parts = [planned[first : first + TOGETHER] for first in range(0, len(planned), TOGETHER)]
        works = [PlannedWrite(Plan(tuple(chain.from_iterable(part)))) for part in parts]
        return [*works, PlannedWrite(Plan(again_at=now))] if len(chosen) == MOST else works

    def _plan_object(self, key: Key, obj: Object) -> tuple[Action, ...]:
        misplaced = self._misplaced_owners(obj)
        if misplaced:
            _remember(self._reported, obj.metadata.uid)
        return (*self._actions(key, obj), *garbage_collection.misplaced_owner_events(obj, misplaced))

    async def _plan_orphaning(self, uid: str, place: Key, dependents: Sequence[Key]) -> list[PlannedWrite]:
        """Few dependents are let go together with the owner. Of many it is the last, woken again by their change."""
        whole = await self._read_whole(dependents[:MOST])
        updates = garbage_collection.orphan_dependents(uid, whole.values())
        if len(dependents) > TOGETHER or len(whole) < len(dependents):
            return [PlannedWrite(Plan(updates[n : n + TOGETHER])) for n in range(0, len(updates), TOGETHER)]
        found = await self._read_whole([place])
        return [
            PlannedWrite(Plan((*updates, garbage_collection.unblock_owner(each, ORPHAN)))) for each in found.values()
        ]

    async def _plan_release(self, uid: str, place: Key) -> list[PlannedWrite]:
        """In the foreground an owner goes when nothing that blocks it is left."""
        if self._graph.is_blocked(uid):
            return []
        found = await self._read_whole([place])
        return [PlannedWrite(Plan((garbage_collection.unblock_owner(each, FOREGROUND),))) for each in found.values()]

    async def _read_whole(self, keys: Sequence[Key]) -> dict[Key, Object]:
        """The objects with all that they hold. One that the mirror has in another version is left for later: it will tell."""
        seen = {key: obj for key in keys if (obj := self._mirror.get(key)) is not None}
        kinds = {key.kind: kind for key in seen if (kind := self._kinds.stored(key.kind)) is not None}
        whole = {key: obj for key, obj in seen.items() if key.kind in kinds and type(obj) is kinds[key.kind].type}
        outlines = [key for key in seen if key not in whole and key.kind in kinds]
        if outlines:
            for key, head in (await self._store.get_many(outlines)).items():
                if str(head.revision) == seen[key].metadata.resource_version:
                    whole[key] = decode(kinds[key.kind], head)
        return whole

    async def _is_behind(self, keys: Iterable[Key]) -> bool:
        """Return whether the database has an owner that the mirror lacks, because it is dormant or the mirror is behind."""
        missing = {each for key in keys for each in self._absent_owners(key)} - self._known_absent
        if not missing:
            return False
        looked_for = missing | set(islice(self._unseen, TOGETHER))  # after a start, most owners are asked for together
        for each in looked_for:
            self._unseen.pop(each, None)
        with self._mirror.waking() as wake:
            heads = await self._store.get_many(list({key for key, _ in looked_for}))
            wake(head for key, head in heads.items() if self._mirror.leaves_out(key.kind))
        present = {(key, head.uid) for key, head in heads.items()}
        for each in looked_for - present:
            _remember(self._known_absent, each)
        return bool(missing & present)

    def _absent_owners(self, key: Key) -> Iterator[tuple[Key, str]]:
        obj = self._mirror.get(key)
        for each in obj.metadata.owner_references if obj else ():
            namespace = key.namespace
            place = self._graph.place(each, namespace)
            if place is not None and self._graph.judge(each, namespace) is Owner.GONE:
                yield place, each.uid


def _is_of_no_concern(before: Object | None, now: Object | None) -> bool:
    """Of most changes: it lives on, belongs to the same owners, and is held by the same finalizers."""
    if before is None or now is None or now.metadata.deletion_timestamp is not None:
        return False
    old, new = before.metadata, now.metadata
    return old.uid == new.uid and old.owner_references == new.owner_references and old.finalizers == new.finalizers


def _remember(known: set[T], one: T) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known.add(one)


def _owner(uid: str) -> Key:
    return Key(OWNER, "", uid)


def _owners(obj: Object) -> set[str]:
    return {each.uid for each in obj.metadata.owner_references}
