"""Admission of PersistentVolumeClaims: the default class, LimitRanges, and whether a claim may grow. Pure.

Kubernetes' plugins DefaultStorageClass, LimitRanger and PersistentVolumeClaimResize. The registry calls it, and
`pod_admission` for claims that a controller makes.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from app.kinds.core.limitrange import CLAIM, LimitRange
from app.kinds.storage.access_modes import STORAGE
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, class_name, requested
from app.kinds.storage.storageclass import StorageClass, default_class
from app.machinery.quantity import compare

NOT_RESIZABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


def with_default_class(claim: PersistentVolumeClaim, classes: Mapping[str, StorageClass]) -> PersistentVolumeClaim:
    """The claim with the default class if it names none; an empty name is a choice."""
    if claim.spec.storage_class_name is not None or class_name(claim):
        return claim
    default = default_class(classes.values())
    if default is None:
        return claim
    return replace(claim, spec=replace(claim.spec, storage_class_name=default.metadata.name))


def find_violation(claim: PersistentVolumeClaim, limit_ranges: Iterable[LimitRange]) -> str:
    """Return how the claim breaks a LimitRange; empty if it breaks none."""
    amount = requested(claim)
    for each in (limit for limit_range in limit_ranges for limit in limit_range.spec.limits if limit.type == CLAIM):
        low, high = each.min.get(STORAGE), each.max.get(STORAGE)
        if low is not None and compare(amount, low) < 0:
            return f"minimum {STORAGE} usage per {CLAIM} is {low}, but request is {amount}"
        if high is not None and compare(amount, high) > 0:
            return f"maximum {STORAGE} usage per {CLAIM} is {high}, but request is {amount}"
    return ""


def may_grow(claim: PersistentVolumeClaim, classes: Mapping[str, StorageClass]) -> bool:
    found = classes.get(class_name(claim))
    return found is not None and bool(found.allow_volume_expansion)
