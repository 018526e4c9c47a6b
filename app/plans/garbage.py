"""What to do about objects whose owner is gone or going: delete them, or let them live without it. Pure.

Kubernetes' garbage collection for owners that are controllers: background, foreground and orphan.
"""

from collections.abc import Sequence

import msgspec

from app.kinds.base import Object
from app.plans.plan import Action, Delete, Plan, Update

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
TRACKING = "batch.kubernetes.io/job-tracking"


def plan(owner: Object | None, uid: str, dependents: Sequence[Object]) -> Plan:
    """`owner` is the object with this UID, or None if it is gone; `dependents` are those that it controls."""
    if owner is None:
        return Plan(
            tuple(_delete(each) for each in dependents if each.metadata.deletion_timestamp is None or _held(each))
        )
    if owner.metadata.deletion_timestamp is None:
        return Plan()
    if ORPHAN in owner.metadata.finalizers:
        return Plan((*(_orphaned(each, uid) for each in dependents), _without(owner, ORPHAN)))
    if FOREGROUND in owner.metadata.finalizers:
        waiting: list[Action] = [
            _delete(each) for each in dependents if each.metadata.deletion_timestamp is None or _held(each)
        ]
        blocking = [each for each in dependents if _blocks(each, uid)]
        return Plan(tuple(waiting) if blocking else (*waiting, _without(owner, FOREGROUND)))
    return Plan()


def _held(obj: Object) -> bool:
    """A pod that nobody will count any more: its Job is gone, or on its way out."""
    return TRACKING in obj.metadata.finalizers


def _delete(obj: Object) -> Delete:
    free = _freed(obj)
    return Delete(free, None if free is obj else obj, propagation="Background")


def _freed(obj: Object) -> Object:
    if not _held(obj):
        return obj
    return _with_metadata(obj, finalizers=tuple(each for each in obj.metadata.finalizers if each != TRACKING))


def _orphaned(obj: Object, uid: str) -> Update:
    owners = tuple(each for each in obj.metadata.owner_references if each.uid != uid)
    return Update(_with_metadata(_freed(obj), owner_references=owners), obj)


def _without(owner: Object, finalizer: str) -> Update:
    finalizers = tuple(each for each in owner.metadata.finalizers if each != finalizer)
    return Update(_with_metadata(owner, finalizers=finalizers), owner)


def _blocks(obj: Object, uid: str) -> bool:
    return any(each.uid == uid and each.block_owner_deletion for each in obj.metadata.owner_references)


def _with_metadata(obj: Object, **changes: object) -> Object:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, **changes))
