"""Owner references: which object controls another. Plans, controllers and the store's index of dependents ask here."""

from app.machinery.base import Object, OwnerReference


def controller_of(obj: Object) -> OwnerReference | None:
    """The one owner that manages the object."""
    for owner in obj.metadata.owner_references:  # a loop, for every change of every pod comes by
        if owner.controller:
            return owner
    return None


def controller_uid(obj: Object) -> str | None:
    owner = controller_of(obj)
    return owner.uid if owner else None
