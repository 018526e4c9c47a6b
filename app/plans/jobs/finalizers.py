"""The finalizer that keeps a Job's pod in the store until the Job has counted it. For the plans of Jobs and of garbage."""

from typing import TypeVar

from msgspec.structs import replace

from app.machinery.base import Object

TRACKING = "batch.kubernetes.io/job-tracking"

T = TypeVar("T", bound=Object)


def is_tracked(obj: Object) -> bool:
    return TRACKING in obj.metadata.finalizers


def tracked(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    return finalizers if TRACKING in finalizers else (*finalizers, TRACKING)


def loosened(obj: T) -> T:
    """Without the finalizer, for nobody has more to learn from it; the same object if it has none."""
    return without(obj, TRACKING) if is_tracked(obj) else obj


def without(obj: T, finalizer: str) -> T:
    finalizers = tuple(each for each in obj.metadata.finalizers if each != finalizer)
    return replace(obj, metadata=replace(obj.metadata, finalizers=finalizers))
