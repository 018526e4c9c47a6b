"""The garbage collector: looks at a controlling owner, by UID, when it goes or when one of its dependents changes then."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from app.controllers.work import Work
from app.kinds.base import Object
from app.kinds.owners import controller_of
from app.plans import garbage
from app.plans.plan import Plan
from app.store import Key, Mirror

TOGETHER = 250  # dependents deleted in one write set


class GarbageController:
    component = "garbage-collector"

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._live: dict[str, Key] = {}  # every mirrored object that could be an owner, by UID

    def woken(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        uids = {obj.metadata.uid for obj in (before, now) if obj is not None}
        if now is not None:
            self._live[now.metadata.uid] = key
        for gone in uids - {now.metadata.uid if now is not None else ""}:
            self._live.pop(gone, None)
        owners = {owner for obj in (before, now) if obj is not None and (owner := self._owner(obj))}
        going = uids if now is None or now.metadata.deletion_timestamp is not None else set()
        return [Key("owner", "", uid) for uid in going | {uid for uid in owners if self._is_going(uid)}]

    def _owner(self, obj: Object) -> str | None:
        """The UID of the object's controller, if it is of a kind that is mirrored here: of others nobody knows the end."""
        owner = controller_of(obj)
        return owner.uid if owner is not None and owner.kind in self._mirror.names else None

    def _is_going(self, uid: str) -> bool:
        key = self._live.get(uid)
        owner = self._mirror.get(key) if key else None
        return owner is None or owner.metadata.deletion_timestamp is not None

    def everything(self) -> Iterable[Key]:
        objects = [(kind, each) for kind in self._mirror.kinds for each in self._mirror.all(kind)]
        for kind, each in objects:
            self._live[each.metadata.uid] = Key(kind, each.metadata.namespace, each.metadata.name)
        owners = {uid for _, each in objects if (uid := self._owner(each))}
        return [Key("owner", "", uid) for uid in owners if self._is_going(uid)]

    def work(self, key: Key, now: datetime) -> Sequence[Work]:  # noqa: ARG002 - nothing here depends on the time
        uid = key.name
        where = self._live.get(uid)
        owner = self._mirror.get(where) if where else None
        if owner is not None and owner.metadata.uid != uid:
            owner = None
        plan = garbage.plan(owner, uid, self._mirror.owned(uid))
        if owner is not None:
            return [Work(plan)]
        # Nothing binds them together any more: one that changes meanwhile need not hold up thousands of others.
        return [Work(Plan(plan.actions[first : first + TOGETHER])) for first in range(0, len(plan.actions), TOGETHER)]
