"""Deletion: removed at once, or marked until the grace period is over and finalizers are removed. Pure.

Called for DELETE requests, by controllers that delete, and by updates that remove the last finalizer. Rules follow
apimachinery's graceful deletion: a second request may shorten the grace, never lengthen it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from app.machinery.base import Kind, Object
from app.machinery.durations import LONGEST_SECONDS
from app.machinery.meta.metadata_validation import FOREGROUND, ORPHAN, Propagation


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What the request asks for; None leaves it to the kind's defaults."""

    grace_seconds: int | None = None
    propagation: Propagation | None = None


class Deletion(NamedTuple):
    """`object`: its next version, or, if the deletion `is_over`, its last state."""

    object: Object
    is_over: bool


def begin(kind: Kind, obj: Object, now: datetime, demand: Demand) -> Deletion:
    """Carry out a deletion request. The last state of a kind with graceful deletion tells when it was asked for."""
    grace = kind.grace(obj) if demand.grace_seconds is None else demand.grace_seconds
    if kind.grace(obj) == 0:
        grace = 0  # nothing runs that would need time
    grace = min(grace, LONGEST_SECONDS)
    marked: Object = kind.on_delete(_mark(_with_propagation(kind, obj, demand.propagation), now, grace))
    over = is_over(kind, marked)
    return Deletion(obj if over and not kind.is_graceful else marked, over)


def is_over(kind: Kind, obj: Object) -> bool:
    """True when a marked object has nothing left to wait for: no grace, no finalizers, nothing of its kind's own."""
    meta = obj.metadata
    if meta.deletion_timestamp is None or meta.deletion_grace_period_seconds or meta.finalizers:
        return False
    return not kind.blocks_deletion(obj)


def _mark(obj: Object, now: datetime, grace: int) -> Object:
    meta = obj.metadata
    pending = meta.deletion_grace_period_seconds
    if meta.deletion_timestamp is not None and (pending is None or pending <= grace):
        return obj
    asked_at = now
    if meta.deletion_timestamp is not None and pending is not None:
        asked_at = meta.deletion_timestamp - timedelta(seconds=pending)  # a shorter grace counts from then, too
    marked = msgspec.structs.replace(
        meta,
        deletion_timestamp=(asked_at + timedelta(seconds=grace)).replace(microsecond=0),
        deletion_grace_period_seconds=grace,
        generation=meta.generation + 1 if meta.generation else 0,
    )
    return msgspec.structs.replace(obj, metadata=marked)


def _with_propagation(kind: Kind, obj: Object, propagation: Propagation | None) -> Object:
    """Finalizers carry the policy until the garbage collector has done its part."""
    finalizers = obj.metadata.finalizers
    if kind.garbage_collection == "Unsupported":
        return obj
    if propagation is None:
        if ORPHAN in finalizers or FOREGROUND in finalizers or kind.garbage_collection == "DeleteDependents":
            return obj
        propagation = "Orphan"
    kept = [each for each in finalizers if each not in {ORPHAN, FOREGROUND}]
    if propagation != "Background":
        kept.append(ORPHAN if propagation == "Orphan" else FOREGROUND)
    if tuple(kept) == finalizers:
        return obj
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, finalizers=tuple(kept)))
