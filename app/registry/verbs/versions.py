"""Versions of an object: makes the first from what was sent, and the next from that and the last; or refuses with every cause.

Called by `objects`, which commits them.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from app.machinery import errors
from app.machinery.apply.managed_fields import (
    FieldManager,
    OtherVersions,
    is_same,
    managed_fields_after_create,
    managed_fields_after_update,
    with_entries,
)
from app.machinery.base import Kind, Object, ObjectMeta
from app.machinery.custom.custom_object import with_status_of
from app.machinery.errors import Cause
from app.machinery.meta.metadata_validation import validate_metadata, validate_metadata_update
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.registry.uids import new_uid, random_letters
from app.registry.verbs.strategies import strategy_of


@dataclass(frozen=True, kw_only=True)
class UpdateOptions:
    """Whether an edit is of the status, who is on record for it, which object it is for, and whether it is only for show.

    A `uid` that is not the object's is a conflict. One that the edit itself would set is a change that is not allowed.
    `size` is of what was sent, in bytes. `before_change` is called with the version that is about to be edited.
    """

    status: bool = False
    by: FieldManager | None = None
    uid: str = ""
    dry_run: bool = False
    size: int = 0
    before_change: Callable[[Object], Awaitable[None]] | None = None


USUAL_OPTIONS = UpdateOptions()


def random_name(prefix: str) -> str:
    """Return what generateName asks for: the prefix, cut to 58 characters, and five random ones."""
    return prefix[:58] + random_letters(5)


def new(
    kind: Kind,
    namespace: str,
    obj: Object,
    now: datetime,
    rules: Rules = NO_RULES,
    by: FieldManager | None = None,
    sent: Object | None = None,
) -> Object:
    """The object as it will be stored, or a 422 with every cause.

    `sent`: what its client is on record for, if webhooks have changed that since.
    """
    if obj.metadata.resource_version:
        raise errors.bad_request("resourceVersion should not be set on objects to be created")
    _check_namespace(kind, namespace, obj.metadata)
    strategy = strategy_of(kind)
    given, obj = obj, strategy.admit(obj, namespace, rules)
    meta = obj.metadata
    metadata = msgspec.structs.replace(
        meta,
        name=meta.name or (random_name(meta.generate_name) if meta.generate_name else ""),
        namespace=namespace if kind.namespaced else "",
        uid=new_uid(),
        creation_timestamp=now,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
        generation=0,
        self_link="",
        managed_fields=None,
    )
    drafted = kind.prepare(msgspec.structs.replace(obj, metadata=metadata))
    made: Object = kind.on_create(drafted, now)
    if by is not None:
        own = strategy.client_fields(kind, kind.prepare(sent) if sent is not None else drafted, sent or given)
        made = with_entries(made, managed_fields_after_create(kind, own, (sent or given).metadata.managed_fields, by))
    check_valid(kind, made)
    return made


def _check_namespace(kind: Kind, namespace: str, sent: ObjectMeta) -> None:
    if kind.namespaced and sent.namespace and sent.namespace != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_identity(kind: Kind, sent: Object, old: Object) -> None:
    meta = sent.metadata
    if meta.name and meta.name != old.metadata.name:
        raise errors.bad_request(
            f"the name of the object ({meta.name}) does not match the name on the URL ({old.metadata.name})"
        )
    if meta.namespace and meta.namespace != old.metadata.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if meta.resource_version and meta.resource_version != old.metadata.resource_version:
        raise errors.conflict(kind.resource, old.metadata.name)


def revise(
    kind: Kind, sent: Object, old: Object, options: UpdateOptions, others: OtherVersions | None = None
) -> Object:
    """The next version of `old`, or a 422 with every cause. `others`: the change as it looks in other versions."""
    entries = sent.metadata.managed_fields
    meta = next_metadata(sent.metadata, old.metadata)
    sent = kind.prepare(msgspec.structs.replace(sent, metadata=meta))
    made: Object = kind.on_status(_next_status(sent, old), old) if options.status else kind.on_update(sent, old)
    if options.by is not None:
        touched = made if options.status else _without_status(kind, sent, old)
        entries = managed_fields_after_update(kind, touched, old, entries, options.by, others or {})
        made = made if made == old and is_same(entries, old.metadata.managed_fields) else with_entries(made, entries)
    causes = _validate_metadata(kind, made.metadata)
    causes += validate_metadata_update(made.metadata, old.metadata)
    causes += kind.validate_status(made, old) if options.status else kind.validate_next(made, old)
    _refuse(kind, made, causes)
    return made


def next_metadata(sent: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """Restore what the server owns, and fill in the parts of the identity that the client left out."""
    return msgspec.structs.replace(
        sent,
        name=old.name,
        namespace=old.namespace,
        uid=sent.uid or old.uid,
        generate_name=old.generate_name,
        creation_timestamp=sent.creation_timestamp or old.creation_timestamp,
        deletion_timestamp=old.deletion_timestamp,
        deletion_grace_period_seconds=old.deletion_grace_period_seconds,
        generation=old.generation,
        resource_version=old.resource_version,
        self_link="",
        managed_fields=old.managed_fields,
    )


def _next_status(sent: Object, old: Object) -> Object:
    """A status write keeps labels and annotations, and everything else as it was."""
    meta = msgspec.structs.replace(old.metadata, labels=sent.metadata.labels, annotations=sent.metadata.annotations)
    return with_status_of(msgspec.structs.replace(old, metadata=meta), sent)  # only kinds with one come here


def _without_status(kind: Kind, sent: Object, old: Object) -> Object:
    """Return what was sent, but for a status that an update does not touch."""
    return with_status_of(sent, old) if kind.has_status else sent


def check_valid(kind: Kind, made: Object) -> None:
    """Raise the 422 if a new object is invalid."""
    _refuse(kind, made, _validate_metadata(kind, made.metadata) + kind.validate(made))


def _validate_metadata(kind: Kind, meta: ObjectMeta) -> list[Cause]:
    return validate_metadata(
        meta, namespaced=kind.namespaced, name_format=kind.name_format, core_finalizers=kind.core_finalizers
    )


def _refuse(kind: Kind, obj: Object, causes: list[Cause]) -> None:
    if causes:
        raise errors.unprocessable(kind.name, kind.group, obj.metadata.name, causes)
