"""What to do about objects whose owner is gone or going: delete them, or let them live without it. Pure.

Kubernetes' garbage collection for owners that are controllers: background, foreground and orphan.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from app.kinds.base import Object
from app.kinds.metadata import FOREGROUND, ORPHAN
from app.plans.plan import Delete, Plan, Update
from app.plans.tracking import is_tracked, loosened, without


def plan(owner: Object | None, uid: str, dependents: Sequence[Object]) -> Plan:
    """`owner` is the object with this UID, or None if it is gone; `dependents` are those that it controls."""
    if owner is None:
        return Plan(tuple(_deleted(dependents)))
    if owner.metadata.deletion_timestamp is None:
        return Plan()
    if ORPHAN in owner.metadata.finalizers:
        return Plan((*(_orphaned(each, uid) for each in dependents), _let_go(owner, ORPHAN)))
    if FOREGROUND in owner.metadata.finalizers:
        waiting = tuple(_deleted(dependents))
        blocking = any(_blocks(each, uid) for each in dependents)
        return Plan(waiting if blocking else (*waiting, _let_go(owner, FOREGROUND)))
    return Plan()


def _deleted(dependents: Sequence[Object]) -> Iterator[Delete]:
    """Nobody will count the pods any more, for their Job is gone or on its way out: they lose the finalizer with it."""
    for each in dependents:
        if each.metadata.deletion_timestamp is None or is_tracked(each):
            free = loosened(each)
            yield Delete(free, None if free is each else each, propagation="Background")


def _orphaned(obj: Object, uid: str) -> Update:
    free = loosened(obj)
    owners = tuple(each for each in obj.metadata.owner_references if each.uid != uid)
    return Update(replace(free, metadata=replace(free.metadata, owner_references=owners)), obj)


def _let_go(owner: Object, finalizer: str) -> Update:
    return Update(without(owner, finalizer), owner)


def _blocks(obj: Object, uid: str) -> bool:
    return any(each.uid == uid and each.block_owner_deletion for each in obj.metadata.owner_references)
