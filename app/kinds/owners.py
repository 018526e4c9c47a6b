"""Who manages an object. Plans, controllers and the store's index of dependents ask here."""

from app.kinds.base import Object, OwnerReference


def controller_of(obj: Object) -> OwnerReference | None:
    """The one owner that manages the object."""
    return next((owner for owner in obj.metadata.owner_references if owner.controller), None)


def controller_uid(obj: Object) -> str | None:
    owner = controller_of(obj)
    return owner.uid if owner else None
