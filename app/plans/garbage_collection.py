"""Garbage collection: deletes or orphans objects whose owners are deleted. Pure; called by the garbage collector.

Kubernetes' rules: an object is deleted when none of its owners is left; an owner that is deleted in the foreground waits for
dependents that block it; an owner that is deleted with orphans is first removed from their owner references.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import TypeVar

from msgspec.structs import replace

from app.machinery.base import Object, OwnerReference
from app.machinery.meta.metadata_validation import FOREGROUND, ORPHAN, Propagation
from app.machinery.meta.owner_references import controller_of
from app.plans.jobs.finalizers import is_tracked, remove_finalizer, remove_tracking
from app.plans.plan import Action, Delete, Emit, Update

O = TypeVar("O", bound=Object)  # noqa: E741 - as in app.machinery.base


class Owner(Enum):
    """State of the owner that a reference names."""

    EXISTS = "exists"  # or is being deleted, but does not wait for its dependents
    WAITS = "waits"  # it is deleted in the foreground
    GONE = "gone"  # or was never there, under that name and in that place
    MISPLACED = "misplaced"  # a cluster-scoped object may only have cluster-scoped owners
    UNKNOWN = "unknown"  # of a kind that is not served


Judge = Callable[[OwnerReference], Owner]
_UNDECIDABLE = {Owner.UNKNOWN, Owner.MISPLACED}


def plan(obj: Object, judge: Judge, *, owns: bool) -> tuple[Action, ...]:
    """Return what to do with an object, by the state of its owners. `owns`: it has dependents itself."""
    references = obj.metadata.owner_references
    found = {reference: judge(reference) for reference in references}
    ended = [reference for reference, owner in found.items() if owner in (Owner.GONE, Owner.WAITS)]
    if obj.metadata.deletion_timestamp is not None:
        return _release_pod(obj, ended)
    if not ended or _UNDECIDABLE & set(found.values()):
        return ()
    if Owner.EXISTS in found.values():
        return (Update(remove_owners(obj, ended), obj),)
    untracked = remove_tracking(obj)
    policy = _policy(obj, waited_for=owns and Owner.WAITS in found.values())
    return (Delete(untracked, None if untracked is obj else obj, propagation=policy),)


def _release_pod(obj: Object, ended: Collection[OwnerReference]) -> tuple[Action, ...]:
    """An object that is deleted already needs nothing, unless it waits to be counted by a Job that is gone."""
    if is_tracked(obj) and controller_of(obj) in ended:
        return (Update(remove_tracking(obj), obj),)
    return ()


def _policy(obj: Object, *, waited_for: bool) -> Propagation:
    """An owner that waits for the object also waits for its dependents. Else a finalizer that was set before decides."""
    if waited_for or FOREGROUND in obj.metadata.finalizers:
        return "Foreground"
    return "Orphan" if ORPHAN in obj.metadata.finalizers else "Background"


def remove_owners(obj: O, owners: Collection[OwnerReference]) -> O:
    """Without these owners, and without the tracking finalizer if a Job is among them."""
    untracked = remove_tracking(obj) if controller_of(obj) in owners else obj
    kept = tuple(each for each in obj.metadata.owner_references if each not in owners)
    return replace(untracked, metadata=replace(untracked.metadata, owner_references=kept))


def orphan_dependents(uid: str, dependents: Iterable[Object]) -> tuple[Update, ...]:
    """Remove the owner with this UID from its dependents."""
    return tuple(
        Update(remove_owners(each, [owner for owner in each.metadata.owner_references if owner.uid == uid]), each)
        for each in dependents
    )


def unblock_owner(owner: Object, finalizer: str) -> Update:
    """The owner without its orphan or foreground finalizer: its dependents no longer hold it."""
    return Update(remove_finalizer(owner, finalizer), owner)


def is_orphaning(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None and ORPHAN in obj.metadata.finalizers


def is_deleted_in_foreground(obj: Object) -> bool:
    return obj.metadata.deletion_timestamp is not None and FOREGROUND in obj.metadata.finalizers


def blocks(reference: OwnerReference) -> bool:
    return bool(reference.block_owner_deletion)


def misplaced_owner_events(obj: Object, references: Sequence[OwnerReference]) -> tuple[Emit, ...]:
    """Events about owners in a namespace in which an owner of this object cannot be."""
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
