"""Garbage collection: what becomes of objects whose owners are gone or going: deleted, or orphaned. Pure.

Kubernetes' garbage collection: an object goes when none of its owners is left; an owner that is deleted in the foreground
waits for what blocks it, one that is to leave orphans lets go of them first. Called by the garbage collector.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import TypeVar

from msgspec.structs import replace

from app.machinery.base import Object, OwnerReference
from app.machinery.metadata_validation import FOREGROUND, ORPHAN, Propagation
from app.machinery.owner_references import controller_of
from app.plans.jobs.finalizers import is_tracked, remove_finalizer, remove_tracking
from app.plans.plan import Action, Delete, Emit, Update

O = TypeVar("O", bound=Object)  # noqa: E741 - as in app.machinery.base


class Owner(Enum):
    """What an owner reference comes to."""

    LIVES = "lives"  # it may be on its way out, too: nobody waits for its dependents
    WAITS = "waits"  # it is deleted in the foreground
    GONE = "gone"  # or was never there, under that name and in that place
    MISPLACED = "misplaced"  # an object outside of namespaces may only have owners like itself
    UNKNOWN = "unknown"  # of a kind that is not served: nobody here knows what becomes of it


Judge = Callable[[OwnerReference], Owner]
_NOBODY_KNOWS = {Owner.UNKNOWN, Owner.MISPLACED}


def plan(obj: Object, judge: Judge, *, owns: bool) -> tuple[Action, ...]:
    """What becomes of an object, by what its owners have come to. `owns`: other objects belong to it in turn."""
    references = obj.metadata.owner_references
    found = {reference: judge(reference) for reference in references}
    ended = [reference for reference, owner in found.items() if owner in (Owner.GONE, Owner.WAITS)]
    if obj.metadata.deletion_timestamp is not None:
        return _freed(obj, ended)
    if not ended or _NOBODY_KNOWS & set(found.values()):
        return ()
    if Owner.LIVES in found.values():
        return (Update(without_owners(obj, ended), obj),)
    free = remove_tracking(obj)
    policy = _policy(obj, waited_for=owns and Owner.WAITS in found.values())
    return (Delete(free, None if free is obj else obj, propagation=policy),)


def _freed(obj: Object, ended: Collection[OwnerReference]) -> tuple[Action, ...]:
    """What is on its way out needs no more, unless it waits to be counted by a Job that will not do so."""
    if is_tracked(obj) and controller_of(obj) in ended:
        return (Update(remove_tracking(obj), obj),)
    return ()


def _policy(obj: Object, *, waited_for: bool) -> Propagation:
    """What waits for an object waits for what belongs to it, too. Else a finalizer that was set beforehand decides."""
    if waited_for or FOREGROUND in obj.metadata.finalizers:
        return "Foreground"
    return "Orphan" if ORPHAN in obj.metadata.finalizers else "Background"


def without_owners(obj: O, owners: Collection[OwnerReference]) -> O:
    """Without these owners; nor will a Job that is among them count it."""
    free = remove_tracking(obj) if controller_of(obj) in owners else obj
    kept = tuple(each for each in obj.metadata.owner_references if each not in owners)
    return replace(free, metadata=replace(free.metadata, owner_references=kept))


def orphaned(uid: str, dependents: Iterable[Object]) -> tuple[Update, ...]:
    """The dependents of the owner with this UID, let go of."""
    return tuple(
        Update(without_owners(each, [owner for owner in each.metadata.owner_references if owner.uid == uid]), each)
        for each in dependents
    )


def released(owner: Object, finalizer: str) -> Update:
    """The owner without what has held it: its dependents need it no more."""
    return Update(remove_finalizer(owner, finalizer), owner)


def is_orphaning(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None and ORPHAN in obj.metadata.finalizers


def is_waiting(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None and FOREGROUND in obj.metadata.finalizers


def blocks(reference: OwnerReference) -> bool:
    return bool(reference.block_owner_deletion)


def misplaced(obj: Object, references: Sequence[OwnerReference]) -> tuple[Emit, ...]:
    """Says that owners are in a place where an owner of this object cannot be."""
    namespace = obj.metadata.namespace
    return tuple(
        Emit(
            "Warning",
            "OwnerRefInvalidNamespace",
            f"ownerRef [{each.api_version}/{each.kind}, namespace: {namespace}, name: {each.name}, uid: {each.uid}]"
            f' does not exist in namespace "{namespace}"',
            obj,
        )
        for each in references
    )
