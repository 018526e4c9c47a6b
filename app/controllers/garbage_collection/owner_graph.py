"""Owner graph: an index by UID over the controllers' mirror, kept as objects change. For the garbage collector."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import force_setattr

from app.machinery.base import Kind, Object, OwnerReference
from app.plans.garbage_collection import Owner, blocks, is_deleted_in_foreground
from app.registry.kind_table import KindTable
from app.store import Key, Mirror


class PartialObjectMetadata(Object):
    """An object of any kind, as far as it takes to know what belongs to what; the rest stays in the store."""

    def __post_init__(self) -> None:
        """Drop what is not needed, and share what many objects have in common: there may be a million of a custom kind."""
        namespace = sys.intern(self.metadata.namespace)
        kept = msgspec.structs.replace(
            self.metadata, namespace=namespace, managed_fields=(), annotations=_NOTHING, labels=_NOTHING
        )
        force_setattr(self, "metadata", kept)
        force_setattr(self, "kind", sys.intern(self.kind))
        force_setattr(self, "api_version", sys.intern(self.api_version))


_NOTHING: dict[str, str] = {}


class OwnerGraph:
    def __init__(self, mirror: Mirror, kinds: KindTable) -> None:
        self._mirror = mirror
        self._kinds = kinds
        self._keys: dict[str, Key] = {}
        # By the owner's UID, whether or not it exists; True for those that it must wait for.
        self._dependents: defaultdict[str, dict[Key, bool]] = defaultdict(dict)

    def follow(self, key: Key, before: Object | None, now: Object | None) -> None:
        """Take in a change."""
        if before is not None and now is not None and _same(before, now):
            return
        if before is not None:
            self._remove(key, before)
        if now is not None:
            self._keys[now.metadata.uid] = key
            self._add(key, now)

    def _add(self, key: Key, obj: Object) -> None:
        for each in obj.metadata.owner_references:
            blocking = blocks(each) and each.uid != obj.metadata.uid
            self._dependents[each.uid][key] = blocking or self._dependents[each.uid].get(key, False)

    def _remove(self, key: Key, obj: Object) -> None:
        if self._keys.get(obj.metadata.uid) == key:
            del self._keys[obj.metadata.uid]
        for uid in {each.uid for each in obj.metadata.owner_references}:
            dependents = self._dependents.get(uid, {})
            dependents.pop(key, None)
            if not dependents:
                self._dependents.pop(uid, None)

    def rebuild(self) -> Iterator[tuple[Key, Object]]:
        """Read the whole mirror, and tell what is in it."""
        self._keys.clear()
        self._dependents.clear()
        everything = [(kind, each) for kind in self._mirror.kinds for each in self._mirror.all(kind)]
        for kind, each in everything:
            key = Key(kind, each.metadata.namespace, each.metadata.name)
            self.follow(key, None, each)
            yield key, each

    def key(self, uid: str) -> Key | None:
        """Return which object has this UID."""
        return self._keys.get(uid)

    def object(self, uid: str) -> Object | None:
        """The object with this UID, if it is there."""
        key = self._keys.get(uid)
        return self._mirror.get(key) if key else None

    def dependents(self, uid: str) -> Iterable[Key]:
        return self._dependents.get(uid, {}).keys()

    def place(self, reference: OwnerReference, namespace: str) -> Key | None:
        """Return where an owner of something in `namespace` is to be found; None if its kind is not served."""
        kind = self._kind_of(reference)
        if kind is None:
            return None
        return Key(kind.resource, namespace if kind.namespaced else "", reference.name)

    def _kind_of(self, reference: OwnerReference) -> Kind | None:
        """The kind of an owner, if it is served and in the mirror."""
        kind = self._kinds.by_owner(reference.api_version, reference.kind)
        return kind if kind is not None and self._mirror.holds(kind.resource) else None

    def judge(self, reference: OwnerReference, namespace: str) -> Owner:
        """Return what an owner of something in `namespace` has come to."""
        kind = self._kind_of(reference)
        if kind is None:
            return Owner.UNKNOWN
        if kind.namespaced and not namespace:
            return Owner.MISPLACED
        owner = self._mirror.get(Key(kind.resource, namespace if kind.namespaced else "", reference.name))
        if owner is None or owner.metadata.uid != reference.uid:
            return Owner.GONE
        return Owner.WAITS if is_deleted_in_foreground(owner) else Owner.EXISTS

    def all_owners_live(self, obj: Object) -> bool:
        """Return whether all its owners live, or it has none."""
        namespace = obj.metadata.namespace
        return all(self.judge(each, namespace) is Owner.EXISTS for each in obj.metadata.owner_references)

    def owners_elsewhere(self, obj: Object) -> list[OwnerReference]:
        """Those of its owners that live in another namespace, where no owner of it can be."""
        here = obj.metadata.namespace
        found = ((each, self._keys.get(each.uid)) for each in obj.metadata.owner_references)
        return [each for each, key in found if key is not None and key.namespace and key.namespace != here]

    def is_blocked(self, uid: str) -> bool:
        """Return whether an owner must still wait. Not for what waits for the owner in turn: both would do so for ever."""
        dependents = self._dependents.get(uid, {})
        return any(blocking and not self._waits_for(key, uid) for key, blocking in dependents.items())

    def _waits_for(self, key: Key, uid: str) -> bool:
        seen: set[str] = set()
        ahead = [key]
        while ahead:
            obj = self._mirror.get(ahead.pop())
            if obj is None or obj.metadata.uid in seen:
                continue
            if obj.metadata.uid == uid:
                return True
            if is_deleted_in_foreground(obj):
                seen.add(obj.metadata.uid)
                ahead += [each for each, blocking in self._dependents.get(obj.metadata.uid, {}).items() if blocking]
        return False


def _same(before: Object, now: Object) -> bool:
    """As far as this index is concerned, which is true of nearly every change."""
    old, new = before.metadata, now.metadata
    return old.uid == new.uid and old.owner_references == new.owner_references
