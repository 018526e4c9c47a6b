"""Mirror: a process's own copy of the objects of some kinds, decoded, as new as the feed's cursor. An informer's cache.

Controllers and the scheduler plan from it. It may be behind the database; what is planned from it is committed with the
revisions it was planned from, so a stale plan is refused, never applied.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from app.machinery.base import Object
from app.machinery.decoding.decode import decode_older
from app.machinery.meta.owner_references import controller_uid
from app.store.change_feed import Change
from app.store.errors import Key
from app.store.reader import StoredObject
from app.structured_logging import Logger, object_fields

logger = Logger(__name__)
AT_ONCE = 500  # dormant dependents that leave in one step
Listener = Callable[[Key, Object | None, Object | None], None]
"""(key, before, now): called for every change, in order; None where the object does not exist."""
Shorten = Callable[[Object], Object | None]
"""What is to be kept of an object in its place; None for the whole of it."""
Declare = Callable[[Object], Mapping[str, type[Object]]]
"""Further kinds that a mirror holds because of an object in it, with their types."""
Share = Callable[[Object], Object]
"""An object that was read, made of parts that it has in common with others."""
Wake = Callable[[Iterable[StoredObject]], None]
"""Has a mirror hold these dormant objects."""
DormancyListener = Callable[[Key, Object, bool], None]
"""(key, object, whether it is dormant now): called when an object leaves the mirror though it exists, and when it is back."""


class DormantKinds(NamedTuple):
    """Kinds of which a mirror leaves out dormant objects: owners, such as Jobs, and what they control, such as pods."""

    owner: str
    dependent: str
    is_dormant: Callable[[Object], bool]


def _log_bad_object(key: Key, revision: int, error: Exception) -> None:
    logger.error(
        "cannot decode an object; controllers ignore this version of it",
        **object_fields(*key),
        revision=revision,
        traceback_of=error,
    )


class Mirror:
    """`shorten`, `share` and `declare` are by kind. Kinds that `declare` names come after those that declare them.

    A dormant owner leaves the mirror when nothing awake is left that it controls, and its dormant dependents leave with it.
    Listeners are told of the change that made it dormant, not that it has left. When it is awake again, or deleted, they are
    told as if it had just come.

    is_alone: of a kind that `declare` names, whether an object need not be held. It leaves when `let_go` is called for it, and is
    back when it changes so that it must be held, is deleted or woken.
    """

    def __init__(
        self,
        types: dict[str, type[Object]],
        shorten: Mapping[str, Shorten] | None = None,
        share: Mapping[str, Share] | None = None,
        declare: Mapping[str, Declare] | None = None,
        dormant: DormantKinds | None = None,
        is_alone: Callable[[Object], bool] | None = None,
    ) -> None:
        self._is_alone = is_alone
        self._may_be_alone: set[str] = set()  # kinds
        self._passing: Key | None = None  # what is held only to tell of its deletion
        self.kinds = [*types]
        self.dormant = dormant
        self._draining: dict[str, None] = {}  # UIDs of those whose dependents have not all left
        self._leaving: dict[str, Key] = {}  # dormant owners that are held yet, by UID
        self._dormancy_listeners: list[DormancyListener] = []
        self._newer: dict[int, dict[Key, Change]] = {}  # what changes while dormant objects are read
        self._declare = declare or {}
        self._shorten = shorten or {}
        self._share = share or {}
        self._decoders = {kind: msgspec.json.Decoder(type_) for kind, type_ in types.items()}
        self._objects: dict[str, dict[Key, Object]] = {kind: {} for kind in types}
        self._owned: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        self._owned_short: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        self._listeners: list[tuple[Listener, Collection[str] | None]] = []
        self._listeners_of: dict[str, tuple[Listener, ...]] = {}  # by kind; found out at its first change
        self.revision = 0
        self._missed_changes: list[Change] | None = None

    def holds(self, kind: str) -> bool:
        """Return whether objects of a kind are in it."""
        return kind in self._objects

    def listen(self, listener: Listener, kinds: Collection[str] | None = None) -> None:
        """Call a listener for every change, or for changes of `kinds` only. Listeners are called in the order of these calls."""
        self._listeners.append((listener, kinds))
        self._listeners_of.clear()

    def _find_listeners(self, kind: str) -> tuple[Listener, ...]:
        found = tuple(each for each, kinds in self._listeners if kinds is None or kind in kinds)
        self._listeners_of[kind] = found
        return found

    def listen_to_dormancy(self, listener: DormancyListener) -> None:
        self._dormancy_listeners.append(listener)

    def leaves_out(self, kind: str) -> bool:
        """Return whether dormant objects of a kind are not in it."""
        is_dormant = self.dormant is not None and kind in (self.dormant.owner, self.dormant.dependent)
        return is_dormant or kind in self._may_be_alone

    def load(self, heads: Iterable[StoredObject]) -> None:
        """Take in a part of what is stored."""
        for head in heads:
            try:
                self._put(head.key, self._decode(head.key.kind, head.wire))
            except Exception as error:  # one bad object must not end the copy of all others
                _log_bad_object(head.key, head.revision, error)

    @contextmanager
    def waking(self) -> Iterator[Wake]:
        """While this is open, read dormant objects and hold them from now on, as there is something to do about them.

        What is held already stays as it is. What the feed tells of meanwhile is newer than what was read.
        """
        newer: dict[Key, Change] = {}
        self._newer[id(newer)] = newer
        try:
            yield partial(self._wake, newer)
        finally:
            del self._newer[id(newer)]

    def _wake(self, newer: Mapping[Key, Change], heads: Iterable[StoredObject]) -> None:
        for head in heads:
            if self.get(head.key) is not None:
                continue
            try:
                self._wake_one(head, newer.get(head.key))
            except Exception as error:  # one bad object must not keep others from being held
                _log_bad_object(head.key, head.revision, error)

    def _wake_one(self, head: StoredObject, change: Change | None) -> None:
        if change is None or change.revision < head.revision:
            obj = self._decode(head.key.kind, head.wire)
        elif change.change == "D":
            return
        else:
            obj = self._object_of(change)
        if head.key.kind in self._may_be_alone or self._is_dormant(obj):
            self._tell_dormancy(head.key, obj, is_dormant=False)
        self._put(head.key, obj)

    def start_at(self, revision: int, kept: Container[Key]) -> None:
        """All is loaded: drop what is not among `kept`, and follow the feed from this revision."""
        for key in [key for objects in self._objects.values() for key in objects if key not in kept]:
            self._put(key, None)
        self.revision = revision

    def apply(self, changes: Sequence[Change]) -> None:
        """Follow the feed."""
        if self._missed_changes is not None:
            self._missed_changes += changes
            return
        for change in changes:
            if change.revision <= self.revision:
                continue
            self.revision = change.revision
            if change.key.kind in self._decoders:
                self._follow(change)

    def _follow(self, change: Change) -> None:
        try:
            if change.key.kind in self._may_be_alone:
                self._follow_one_that_may_be_alone(change)
            elif self.leaves_out(change.key.kind):
                self._follow_one_that_may_be_dormant(change)
            else:
                self._put(change.key, None if change.change == "D" else self._object_of(change))
        except Exception as error:  # one bad object must not end the copy of all others
            _log_bad_object(change.key, change.revision, error)

    def _follow_one_that_may_be_dormant(self, change: Change) -> None:
        """One that is not held was dormant. It comes back before it is deleted, so that listeners learn what it was.

        An owner that stays dormant comes back, too, and leaves again: something else may expect it at another time now.
        """
        key, before, is_deleted = change.key, self.get(change.key), change.change == "D"
        for newer in self._newer.values():
            newer[key] = change
        now = None
        if before is None or not is_deleted:
            now = self._object_of(change)
            if before is None and change.change != "A":
                if not is_deleted and not self._is_owner(key) and self._is_dormant(now):
                    return
                self._tell_dormancy(key, now, is_dormant=False)
            self._put(key, now)
        if is_deleted:
            self._put(key, None)
        objects = [obj for obj in (before, now) if obj is not None]
        for uid in {controller_uid(obj) or obj.metadata.uid for obj in objects}:
            self._release(uid)

    def _follow_one_that_may_be_alone(self, change: Change) -> None:
        """A new one comes, and leaves if nobody needs it. One that is not held comes back before it is deleted."""
        key, is_deleted = change.key, change.change == "D"
        for newer in self._newer.values():
            newer[key] = change
        if self.get(key) is None and change.change != "A":
            now = self._object_of(change)
            if not is_deleted and self._is_free(key, now):
                return
            self._tell_dormancy(key, now, is_dormant=False)
            self._passing = key if is_deleted else None
            self._put(key, now)
            self._passing = None
        elif not is_deleted:
            self._put(key, self._object_of(change))
        if is_deleted:
            self._put(key, None)

    def _is_free(self, key: Key, obj: Object) -> bool:
        return key.kind in self._may_be_alone and self._is_alone is not None and self._is_alone(obj)

    def let_go(self, key: Key) -> None:
        """Hold an object no longer if it is alone. The caller knows that nothing that is held belongs to it."""
        obj = self.get(key)
        if obj is not None and key != self._passing and self._is_free(key, obj):
            self._let_go(key, obj)

    def _is_owner(self, key: Key) -> bool:
        return self.dormant is not None and key.kind == self.dormant.owner

    def _is_dormant(self, obj: Object) -> bool:
        return self.dormant is not None and self.dormant.is_dormant(obj)

    def _tell_dormancy(self, key: Key, obj: Object, *, is_dormant: bool) -> None:
        for listener in self._dormancy_listeners:
            listener(key, obj, is_dormant)

    def _release(self, uid: str | None) -> None:
        """Let go of a dormant owner, unless it controls something that is awake. Of many dependents some go at a time."""
        if uid is None or uid not in self._leaving or self._owned.get(uid):
            return
        for key, obj in list(islice(self._owned_short.get(uid, {}).items(), AT_ONCE)):
            if self._is_dormant(obj):
                self._let_go(key, obj)
            else:
                self._remove_owned(key, obj)
        if uid in self._owned_short:
            self._draining[uid] = None
        else:
            self._draining.pop(uid, None)
            place = self._leaving.pop(uid)
            self._let_go(place, self._objects[place.kind][place])

    def drain(self) -> bool:
        """Let go of some more dependents of an owner that had too many; whether there are others."""
        if self._draining:
            uid = next(iter(self._draining))
            del self._draining[uid]
            self._release(uid)
        return bool(self._draining)

    def _let_go(self, key: Key, obj: Object) -> None:
        self._remove_owned(key, obj)
        del self._objects[key.kind][key]
        self._tell_dormancy(key, obj, is_dormant=True)

    def leaving(self) -> list[Key]:
        """Return the owners that are dormant and held: by what they control, or because something woke them."""
        return list(self._leaving.values())

    def release(self, key: Key) -> None:
        """Let go of an object that is known to be dormant, if nothing holds it."""
        obj = self.get(key)
        if obj is not None:
            self._release(controller_uid(obj) or obj.metadata.uid)

    def _decode(self, kind: str, wire: bytes) -> Object:
        decoder, share = self._decoders[kind], self._share.get(kind)
        try:
            obj = decoder.decode(wire)
        except msgspec.ValidationError:
            obj = decode_older(wire, decoder.type)
        return obj if share is None else share(obj)

    def _object_of(self, change: Change) -> Object:
        written = change.object
        if written is None:
            return self._decode(change.key.kind, change.wire)
        metadata = msgspec.structs.replace(written.metadata, resource_version=str(change.revision))
        return msgspec.structs.replace(written, metadata=metadata)

    @property
    def is_paused(self) -> bool:
        """True while the copy does not follow: tests stop it, to prove that nothing depends on its being new."""
        return self._missed_changes is not None

    @is_paused.setter
    def is_paused(self, hold: bool) -> None:
        if hold == self.is_paused:
            return
        missed, self._missed_changes = self._missed_changes or [], [] if hold else None
        self.apply(missed)

    def _take_kinds(self, types: Mapping[str, type[Object]]) -> None:
        """Hold these kinds, too, from now on."""
        for kind, type_ in types.items():
            if kind not in self._decoders:
                self._decoders[kind] = msgspec.json.Decoder(type_)
                self._objects[kind] = {}
                self.kinds.append(kind)
                if self._is_alone is not None:
                    self._may_be_alone.add(kind)

    def _put(self, key: Key, now: Object | None) -> None:
        if now is not None and key.kind in self._declare:
            self._take_kinds(self._declare[key.kind](now))
        objects = self._objects[key.kind]
        before = objects.get(key)
        shorten = self._shorten.get(key.kind)
        short = shorten(now) if shorten and now is not None else None
        if before is not None:
            self._remove_owned(key, before)
        if self._is_owner(key):
            self._note_owner(key, before, now)
        if now is None:
            objects.pop(key, None)
        elif short is not None:
            objects[key] = now = short
            if uid := controller_uid(now):
                self._owned_short[uid][key] = now
        else:
            objects[key] = now
            if uid := controller_uid(now):
                self._owned[uid][key] = now
        if before is not now:
            for listener in self._listeners_of.get(key.kind) or self._find_listeners(key.kind):
                listener(key, before, now)

    def _note_owner(self, key: Key, before: Object | None, now: Object | None) -> None:
        """Remember whether an owner is dormant."""
        if before is not None:
            self._leaving.pop(before.metadata.uid, None)
        if now is not None and self._is_dormant(now):
            self._leaving[now.metadata.uid] = key

    def _remove_owned(self, key: Key, before: Object) -> None:
        uid = controller_uid(before)
        for table in (self._owned, self._owned_short):
            if uid and (owned := table.get(uid)):
                owned.pop(key, None)
                if not owned:
                    del table[uid]

    def get(self, key: Key) -> Object | None:
        return self._objects[key.kind].get(key)

    def all(self, kind: str) -> Iterable[Object]:
        return self._objects[kind].values()

    def owned(self, uid: str) -> list[Object]:
        """The objects whose controller has this UID, but for those that are kept short."""
        return list(self._owned.get(uid, {}).values())
