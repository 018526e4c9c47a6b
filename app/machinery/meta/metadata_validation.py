"""Validation of object metadata, as apimachinery's `ValidateObjectMeta`.

The registry calls it on each create and update of every kind. It returns causes and raises nothing.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Literal

from app.machinery import name_validation
from app.machinery.base import ObjectMeta, OwnerReference
from app.machinery.errors import Cause, forbidden, invalid, required, too_long
from app.machinery.name_validation import NameFormat

IMMUTABLE = "field is immutable"
NEGATIVE = "must be greater than or equal to 0"
ANNOTATIONS_LIMIT = 256 * 1024
MANAGER_LIMIT = 128  # bytes
SUBRESOURCE_LIMIT = 256  # bytes
UID_LIMIT = 253  # bytes; dependents are found by it in an index
MOST_CAUSES = 500  # reported, of hundreds of thousands that a hostile object could have

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"  # finalizers that record a deletion's propagationPolicy
Propagation = Literal["Orphan", "Background", "Foreground"]  # what happens to the dependents of a deleted object
_STANDARD_FINALIZERS = ("kubernetes", ORPHAN, FOREGROUND)
_DISALLOWED_OWNER = ("v1", "Event")


def validate_metadata(
    meta: ObjectMeta, *, namespaced: bool, name_format: NameFormat, core_finalizers: bool = True
) -> list[Cause]:
    """Return the causes, at most `MOST_CAUSES`. A name from generateName must have been generated before.

    `core_finalizers`: finalizers have a slash, as the core API's validation demands in addition to the common one.
    """
    return list(islice(_find_causes(meta, namespaced, name_format, core_finalizers), MOST_CAUSES))


def _find_causes(meta: ObjectMeta, namespaced: bool, name_format: NameFormat, core_finalizers: bool) -> Iterator[Cause]:
    yield from _validate_name(meta, name_format)
    yield from _validate_namespace(meta, namespaced)
    if meta.generation < 0:
        yield invalid("metadata.generation", meta.generation, NEGATIVE)
    yield from validate_labels(meta.labels, "metadata.labels")
    yield from validate_annotations(meta.annotations, "metadata.annotations")
    if meta.owner_references:
        yield from _validate_owner_references(meta.owner_references)
    if meta.finalizers:
        yield from _validate_finalizers(meta.finalizers, core=core_finalizers)
    for index, entry in enumerate(meta.managed_fields or ()):
        path = f"metadata.managedFields[{index}]"
        yield from validate_manager(entry.manager, f"{path}.manager")
        if len(entry.subresource.encode()) > SUBRESOURCE_LIMIT:
            yield too_long(f"{path}.subresource", SUBRESOURCE_LIMIT)


def validate_manager(manager: str, path: str) -> Iterator[Cause]:
    """Validate a field manager's name."""
    if len(manager.encode()) > MANAGER_LIMIT:
        yield too_long(path, MANAGER_LIMIT)
    if manager.isprintable():
        return
    at = 0
    for character in manager:
        if not character.isprintable():
            yield invalid(path, manager, f"invalid character U+{ord(character):04X} (at position {at})")
        at += len(character.encode())


def validate_metadata_update(new: ObjectMeta, old: ObjectMeta) -> list[Cause]:
    """Return causes for changes of immutable metadata. Fields that the client left out are unchanged: the registry sets them."""
    causes = [
        invalid(f"metadata.{wire}", after, IMMUTABLE)
        for wire, after, before in (
            ("name", new.name, old.name),
            ("namespace", new.namespace, old.namespace),
            ("uid", new.uid, old.uid),
            ("creationTimestamp", new.creation_timestamp, old.creation_timestamp),
            ("deletionTimestamp", new.deletion_timestamp, old.deletion_timestamp),
            ("deletionGracePeriodSeconds", new.deletion_grace_period_seconds, old.deletion_grace_period_seconds),
        )
        if after not in ("", None) and after != before
    ]
    added = sorted(set(new.finalizers) - set(old.finalizers))
    if old.deletion_timestamp and added:
        listed = ", ".join(f'"{finalizer}"' for finalizer in added)
        text = "no new finalizers can be added if the object is being deleted, found new finalizers"
        causes.append(forbidden("metadata.finalizers", f"{text} []string{{{listed}}}"))
    return causes


def validate_labels(labels: dict[str, str], path: str) -> Iterator[Cause]:
    """Validate labels, and maps with the same rules: matchLabels, nodeSelector."""
    for key, value in labels.items():
        if name_validation.is_label(key, value):
            continue
        for fault in name_validation.qualified_name(key):
            yield invalid(path, key, fault)
        for fault in name_validation.label_value(value):
            yield invalid(path, value, fault)


def validate_annotations(annotations: dict[str, str], path: str) -> Iterator[Cause]:
    if not annotations:
        return
    for key in annotations:
        for fault in name_validation.qualified_name(key.lower()):
            yield invalid(path, key, fault)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)


def _validate_name(meta: ObjectMeta, name_format: NameFormat) -> Iterator[Cause]:
    if meta.generate_name:
        for fault in name_validation.object_name(meta.generate_name, name_format, prefix=True):
            yield invalid("metadata.generateName", meta.generate_name, fault)
    if not meta.name:
        yield required("metadata.name", "name or generateName is required")
        return
    for fault in name_validation.object_name(meta.name, name_format):
        yield invalid("metadata.name", meta.name, fault)


def _validate_namespace(meta: ObjectMeta, namespaced: bool) -> Iterator[Cause]:
    if not namespaced:
        if meta.namespace:
            yield forbidden("metadata.namespace", "not allowed on this type")
    elif not meta.namespace:
        yield required("metadata.namespace")
    else:
        for fault in name_validation.dns_label(meta.namespace):
            yield invalid("metadata.namespace", meta.namespace, fault)


def _validate_owner_references(owners: tuple[OwnerReference, ...]) -> Iterator[Cause]:
    controllers = []
    for index, owner in enumerate(owners):
        yield from _validate_owner_reference(owner, f"metadata.ownerReferences[{index}]")
        if owner.controller:
            controllers.append(f"{owner.kind}/{owner.name}")
    if len(controllers) > 1:
        text = 'Only one reference can have Controller set to true. Found "true" in references for'
        yield invalid("metadata.ownerReferences", owners, f"{text} {controllers[0]} and {controllers[1]}")


def _validate_owner_reference(owner: OwnerReference, path: str) -> Iterator[Cause]:
    version = owner.api_version
    if version.count("/") > 1 or version.endswith("/"):
        yield invalid(f"{path}.apiVersion", version, "must be <group>/<version> or <version>")
    for wire, value in (("apiVersion", version), ("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
        if not value:
            yield required(f"{path}.{wire}", "must not be empty")
    if len(owner.uid.encode()) > UID_LIMIT:
        yield too_long(f"{path}.uid", UID_LIMIT)
    if (version, owner.kind) == _DISALLOWED_OWNER:
        yield invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


def _validate_finalizers(finalizers: tuple[str, ...], *, core: bool) -> Iterator[Cause]:
    path = "metadata.finalizers"
    for finalizer in finalizers:
        for fault in name_validation.qualified_name(finalizer):
            yield invalid(path, finalizer, fault)
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        yield invalid(path, finalizers, f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set")
    if core:
        yield from _validate_core_finalizers(finalizers)


def _validate_core_finalizers(finalizers: tuple[str, ...]) -> Iterator[Cause]:
    path = "metadata.finalizers"
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"{path}[{index}]", finalizer, text)
