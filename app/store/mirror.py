"""Mirror: a process's own copy of the objects of some kinds, decoded, as new as the feed's cursor. An informer's cache.

Controllers and the scheduler plan from it. It may be behind the database; what is planned from it is committed with the
revisions it was planned from, so a stale plan is refused, never applied.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec

from app.machinery.base import Object
from app.machinery.decoding.decode import decode_older
from app.machinery.meta.owner_references import controller_uid
from app.store.change_feed import Change
from app.store.errors import Key
from app.store.reader import StoredObject
from app.structured_logging import Logger, object_fields

logger = Logger(__name__)
Listener = Callable[[Key, Object | None, Object | None], None]
"""(key, before, now): called for every change, in order; None where the object does not exist."""
Shorten = Callable[[Object], Object | None]
"""What is to be kept of an object in its place; None for the whole of it."""
Share = Callable[[Object], Object]
"""An object that was read, made of parts that it has in common with others."""


def _log_bad_object(key: Key, revision: int, error: Exception) -> None:
    logger.error(
        "cannot decode an object; controllers ignore this version of it",
        **object_fields(*key),
        revision=revision,
        traceback_of=error,
    )


class Mirror:
    """`shorten` and `share` are by kind."""

    def __init__(
        self,
        types: dict[str, type[Object]],
        shorten: Mapping[str, Shorten] | None = None,
        share: Mapping[str, Share] | None = None,
    ) -> None:
        self.kinds = tuple(types)
        self._shorten = shorten or {}
        self._share = share or {}
        self._decoders = {kind: msgspec.json.Decoder(type_) for kind, type_ in types.items()}
        self._objects: dict[str, dict[Key, Object]] = {kind: {} for kind in types}
        self._owned: defaultdict[str, dict[Key, Object]] = defaultdict(dict)
        self._listeners: list[Listener] = []
        self.revision = 0
        self._missed_changes: list[Change] | None = None

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def load(self, heads: Iterable[StoredObject]) -> None:
        """Take in a part of what is stored."""
        for head in heads:
            try:
                self._put(head.key, self._decode(head.key.kind, head.wire))
            except Exception as error:  # one bad object must not end the copy of all others
                _log_bad_object(head.key, head.revision, error)

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
            self._put(change.key, None if change.change == "D" else self._object_of(change))
        except Exception as error:  # one bad object must not end the copy of all others
            _log_bad_object(change.key, change.revision, error)

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

    def _put(self, key: Key, now: Object | None) -> None:
        objects = self._objects[key.kind]
        before = objects.get(key)
        shorten = self._shorten.get(key.kind)
        short = shorten(now) if shorten and now is not None else None
        if before is not None:
            self._remove_owned(key, before)
        if now is None:
            objects.pop(key, None)
        elif short is not None:
            objects[key] = now = short
        else:
            objects[key] = now
            if uid := controller_uid(now):
                self._owned[uid][key] = now
        if before is not now:
            for listener in self._listeners:
                listener(key, before, now)

    def _remove_owned(self, key: Key, before: Object) -> None:
        uid = controller_uid(before)
        if uid and (owned := self._owned.get(uid)):
            owned.pop(key, None)
            if not owned:
                del self._owned[uid]

    def get(self, key: Key) -> Object | None:
        return self._objects[key.kind].get(key)

    def all(self, kind: str) -> Iterable[Object]:
        return self._objects[kind].values()

    def owned(self, uid: str) -> list[Object]:
        """The objects whose controller has this UID, but for those that are kept short."""
        return list(self._owned.get(uid, {}).values())
