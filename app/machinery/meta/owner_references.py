"""Owner references: which object controls another. Used by plans, controllers and the store's index of dependents."""

from app.machinery.base import Object, ObjectMeta, OwnerReference


def controller_of(obj: Object) -> OwnerReference | None:
    """The one owner that manages the object."""
    for owner in obj.metadata.owner_references:  # a loop, for every change of every pod comes by
        if owner.controller:
            return owner
    return None


def controller_uid(obj: Object) -> str | None:
    owner = controller_of(obj)
    return owner.uid if owner else None


def controller_reference(api_version: str, kind: str, meta: ObjectMeta) -> OwnerReference:
    """The reference by which an object of this kind, with this metadata, controls another."""
    return OwnerReference(
        api_version=api_version,
        kind=kind,
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
