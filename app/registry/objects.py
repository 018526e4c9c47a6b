"""The verbs, once, for every kind: create, get, list, update, patch, delete.

The API calls these with decoded objects and gets the bytes to send. Every write is one write set with the revisions that it
was made from as preconditions; what the client did not pin is tried again on the newest version.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from secrets import choice
from typing import Any, cast
from uuid import uuid4

import msgspec

from app.kinds import errors
from app.kinds.base import Kind, Object, ObjectMeta
from app.kinds.errors import ApiError, Cause
from app.kinds.features import USUAL, Features
from app.kinds.managed_fields import Writer, after_create, after_update, is_same, with_entries
from app.kinds.metadata import validate_metadata, validate_metadata_update
from app.kinds.namespace import KIND as NAMESPACE
from app.kinds.pod import Pod
from app.kinds.pod_defaults import as_sent
from app.kinds.resourcequota import KIND as QUOTA
from app.plans.admission import NO_RULES, Rules, completed, judged
from app.plans.plan import Update
from app.registry import deletion
from app.registry.admission import Admission
from app.registry.codec import NAMESPACES, decode, key_of, write_of
from app.registry.gangs import Gangs
from app.registry.policy import Policy
from app.store import Conflict, Head, Key, Store, Write, guard
from app.store.feed import versioned

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: Kubernetes' own choice
_TRIES = 8
Edit = Callable[[Object], Object]


@dataclass(frozen=True)
class Registry:
    """The store, the clock that stamps what is written, and the feature gates that are on."""

    store: Store
    clock: Callable[[], datetime]
    features: Features = USUAL

    def now(self) -> datetime:
        return self.clock().replace(microsecond=0)

    @cached_property
    def policy(self) -> Policy:
        return Policy(self.store)

    @cached_property
    def admission(self) -> Admission:
        return Admission(self.store, self.policy)

    @cached_property
    def gangs(self) -> Gangs:
        return Gangs(self.store, self.features)


@dataclass(frozen=True)
class Answer:
    """An object's bytes as sent, and what the client should be warned of."""

    body: bytes
    warnings: tuple[str, ...] = ()


def random_name(prefix: str) -> str:
    """What generateName asks for: the prefix, cut to 58 characters, and five random ones."""
    return prefix[:58] + "".join(choice(_ALPHABET) for _ in range(5))


async def find(registry: Registry, kind: Kind, namespace: str, name: str) -> Head:
    head = await registry.store.get(key_of(kind, namespace, name))
    if head is None:
        raise errors.not_found(kind.resource, name)
    return head


# --- create


async def create(
    registry: Registry,
    kind: Kind,
    namespace: str,
    obj: Object,
    *,
    by: Writer | None = None,
    dry_run: bool = False,
) -> Answer:
    """Create `obj` in `namespace`; 409 if the name is taken, 404 or 403 for a namespace that is absent or going."""
    given, obj = obj, await registry.gangs.fitted(namespace, obj)
    again = {"Conflict"} if obj.metadata.name else {"Conflict", "AlreadyExists"}
    for attempt in range(_TRIES):
        rules = await registry.admission.rules(namespace)
        try:
            async with registry.admission.turn(namespace, rules):
                ready, charged = await _admitted(registry, kind, namespace, obj, by)
                made = await _store_new(registry, kind, ready, charged, dry_run)
                return Answer(made, tuple(kind.warnings(_as_asked(ready, given), None)))
        except ApiError as error:
            if error.reason not in again or attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


async def _admitted(
    registry: Registry, kind: Kind, namespace: str, obj: Object, by: Writer | None
) -> tuple[Object, Sequence[Update]]:
    """The object as it will be stored, and the quotas that it is charged to. Only the newest rules may refuse it."""
    rules = await registry.admission.rules(namespace)
    try:
        made = new(kind, namespace, obj, registry.now(), rules, by)
        return made, judged(kind.resource, made, rules)
    except ApiError as error:
        if error.reason != "Forbidden":
            raise
    await registry.admission.catch_up()
    if kind.namespaced:
        await _check_place(registry, kind, namespace, obj.metadata.name)
    rules = await registry.admission.rules(namespace)
    made = new(kind, namespace, obj, registry.now(), rules, by)
    return made, judged(kind.resource, made, rules)


def new(
    kind: Kind, namespace: str, obj: Object, now: datetime, rules: Rules = NO_RULES, by: Writer | None = None
) -> Object:
    """The object as it will be stored, or a 422 with every cause."""
    if obj.metadata.resource_version:
        raise errors.bad_request("resourceVersion should not be set on objects to be created")
    _check_namespace(kind, namespace, obj.metadata)
    given = obj
    if isinstance(obj, Pod):
        obj = completed(_within(obj, namespace), rules)
    sent = obj.metadata
    metadata = msgspec.structs.replace(
        sent,
        name=sent.name or (random_name(sent.generate_name) if sent.generate_name else ""),
        namespace=namespace if kind.namespaced else "",
        uid=str(uuid4()),
        creation_timestamp=now,
        deletion_timestamp=None,
        deletion_grace_period_seconds=None,
        generation=0,
        self_link="",
        managed_fields=None,
    )
    drafted = kind.prepare(msgspec.structs.replace(obj, metadata=metadata))
    made: Object = kind.on_create(drafted, now)
    if by is not None:  # owns what it sent and its defaults, not what admission and the kind have added
        own = as_sent(kind.prepare(given), given) if isinstance(given, Pod) else drafted
        made = with_entries(made, after_create(kind, own, given.metadata.managed_fields, by))
    causes = validate_metadata(made.metadata, namespaced=kind.namespaced, name_format=kind.name_format)
    _refuse(kind, made, causes + kind.validate(made))
    return made


def _check_namespace(kind: Kind, namespace: str, sent: ObjectMeta) -> None:
    if kind.namespaced and sent.namespace and sent.namespace != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _as_asked(made: Object, given: Object) -> Object:
    """What to warn its client of: not of what admission has added to a pod."""
    if isinstance(made, Pod) and isinstance(given, Pod):
        return msgspec.structs.replace(made, spec=given.spec)
    return made


def _within(pod: Pod, namespace: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace))


async def _store_new(registry: Registry, kind: Kind, obj: Object, charged: Sequence[Update], dry_run: bool) -> bytes:
    write = write_of(kind, obj, "A")
    writes = [write, guard(Key(NAMESPACES, "", obj.metadata.namespace))] if kind.namespaced else [write]
    if dry_run:
        await _check_new(registry, kind, writes)
        return write.body
    writes += [write_of(QUOTA, each.object, "M", each.old) for each in charged]
    try:
        revision = (await registry.store.commit(writes))[0]
    except Conflict as conflict:
        raise await _why_not(registry, kind, write.key, conflict) from conflict
    return versioned(write.body, revision)


async def _check_new(registry: Registry, kind: Kind, writes: list[Write]) -> None:
    key = writes[0].key
    if await registry.store.get(key):
        raise errors.already_exists(kind.resource, key.name)
    if kind.namespaced:
        await _check_place(registry, kind, key.namespace, key.name)


async def _check_place(registry: Registry, kind: Kind, namespace: str, name: str) -> None:
    found = await registry.store.get(Key(NAMESPACES, "", namespace))
    if found is None or decode(NAMESPACE, found).metadata.deletion_timestamp is not None:
        raise _no_place(kind, name, namespace, found)


async def _why_not(registry: Registry, kind: Kind, key: Key, conflict: Conflict) -> ApiError:
    """The name is taken; or the namespace is no place; or a quota that it was charged to has changed."""
    if key in conflict.keys:
        return errors.already_exists(kind.resource, key.name)
    changed = conflict.keys[0]
    if changed.kind == NAMESPACES:
        return _no_place(kind, key.name, changed.name, await registry.store.get(changed))
    await registry.admission.catch_up(conflict.revision)
    return errors.conflict(changed.kind, changed.name)


def _no_place(kind: Kind, name: str, namespace: str, found: Head | None) -> ApiError:
    """The namespace is absent, or on its way out."""
    if found is None:
        return errors.not_found(NAMESPACES, namespace)
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    return errors.refused(kind.resource, name, why, causes=[cause._asdict()])


# --- update


async def update(
    registry: Registry,
    kind: Kind,
    namespace: str,
    name: str,
    sent: Object,
    *,
    status: bool = False,
    dry_run: bool = False,
) -> Answer:
    """Replace the object, or its status, by what was sent."""
    terms = Terms(status=status, uid=sent.metadata.uid, dry_run=dry_run)
    return await edit(registry, kind, namespace, name, lambda _: sent, terms)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Whether an edit is of the status, who is on record for it, which object it is for, and whether it is only for show.

    A `uid` that is not the object's is a conflict. One that the edit itself would set is a change that is not allowed.
    """

    status: bool = False
    by: Writer | None = None
    uid: str = ""
    dry_run: bool = False


async def edit(
    registry: Registry, kind: Kind, namespace: str, name: str, change: Edit, terms: Terms = Terms()
) -> Answer:
    """Apply `change` to the newest version. If what it returns names no resourceVersion, a conflict is tried again."""
    for _ in range(_TRIES):
        head = await find(registry, kind, namespace, name)
        old = decode(kind, head)
        check_preconditions(kind, old, Preconditions(uid=terms.uid))
        sent = await registry.gangs.fitted(namespace, change(old), old)
        _check_identity(kind, sent, old)
        try:
            made = revised(kind, sent, old, terms)
            await registry.gangs.check_update(made, old)
            await registry.admission.check_update(made)
            body = await _store_next(registry, kind, old, made, terms.dry_run)
            return Answer(body, () if terms.status else tuple(kind.warnings(made, old)))
        except Conflict:  # somebody was quicker; a client that pinned a version is told by _check_identity
            continue
    raise errors.conflict(kind.resource, name)


def _check_identity(kind: Kind, sent: Object, old: Object) -> None:
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


def revised(kind: Kind, sent: Object, old: Object, terms: Terms) -> Object:
    """The next version of `old`, or a 422 with every cause."""
    entries = sent.metadata.managed_fields
    meta = _next_metadata(sent.metadata, old.metadata)
    sent = kind.prepare(msgspec.structs.replace(sent, metadata=meta))
    made: Object = _next_status(sent, old) if terms.status else kind.on_update(sent, old)
    if terms.by is not None:
        touched = made if terms.status else _without_status(kind, sent, old)
        entries = after_update(kind, touched, old, entries, terms.by)
        made = made if made == old and is_same(entries, old.metadata.managed_fields) else with_entries(made, entries)
    causes = validate_metadata(made.metadata, namespaced=kind.namespaced, name_format=kind.name_format)
    causes += validate_metadata_update(made.metadata, old.metadata)
    causes += kind.validate_status(made, old) if terms.status else kind.validate(made) + kind.validate_update(made, old)
    _refuse(kind, made, causes)
    return made


def _next_metadata(sent: ObjectMeta, old: ObjectMeta) -> ObjectMeta:
    """What the server owns stays; what the client left out of its identity is filled in."""
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
    return msgspec.structs.replace(old, metadata=meta, status=cast("Any", sent).status)  # only kinds with one come here


def _without_status(kind: Kind, sent: Object, old: Object) -> Object:
    """What was sent, but for a status that an update does not touch."""
    return msgspec.structs.replace(sent, status=cast("Any", old).status) if kind.has_status else sent


async def _store_next(registry: Registry, kind: Kind, old: Object, made: Object, dry_run: bool) -> bytes:
    write = write_of(kind, made, "D" if deletion.is_over(kind, made) else "M", old)
    unchanged = made == old
    if dry_run or unchanged:
        return versioned(write.body, write.expected)
    revision = (await registry.store.commit([write]))[0]
    return versioned(write.body, revision)


def _refuse(kind: Kind, obj: Object, causes: list[Cause]) -> None:
    if causes:
        raise errors.unprocessable(kind.name, kind.group, obj.metadata.name, causes)


async def rewrite(registry: Registry, kind: Kind, namespace: str, name: str, change: Edit) -> Answer:
    """Apply a change of the server's own, such as a binding: what a client may not touch is not put back."""
    for _ in range(_TRIES):
        old = decode(kind, await find(registry, kind, namespace, name))
        try:
            return Answer(await _store_next(registry, kind, old, change(old), dry_run=False))
        except Conflict:
            continue
    raise errors.conflict(kind.resource, name)


# --- delete


@dataclass(frozen=True, kw_only=True)
class Preconditions:
    uid: str = ""
    resource_version: str = ""


async def delete(
    registry: Registry,
    kind: Kind,
    namespace: str,
    name: str,
    demand: deletion.Demand,
    preconditions: Preconditions = Preconditions(),
    *,
    dry_run: bool = False,
) -> tuple[Object, bytes | None]:
    """Delete, or begin to. The object as it was, and its bytes if it lives on for its grace or finalizers."""
    if name in kind.immortal:
        raise errors.refused(kind.resource, name, f"this {kind.singular} may not be deleted")
    for _ in range(_TRIES):
        old = decode(kind, await find(registry, kind, namespace, name))
        check_preconditions(kind, old, preconditions)
        left = deletion.begin(kind, old, registry.now(), demand)
        write = write_of(kind, left or old, "M" if left else "D", old)
        if dry_run or left == old:
            return old, versioned(write.body, write.expected) if left else None
        try:
            revision = (await registry.store.commit([write]))[0]
        except Conflict:
            continue
        return old, versioned(write.body, revision) if left else None
    raise errors.conflict(kind.resource, name)


def check_preconditions(kind: Kind, old: Object, wanted: Preconditions) -> None:
    meta = old.metadata
    for label, asked, actual in (
        ("UID", wanted.uid, meta.uid),
        ("ResourceVersion", wanted.resource_version, meta.resource_version),
    ):
        if asked and asked != actual:
            why = f"Precondition failed: {label} in precondition: {asked}, {label} in object meta: {actual}"
            raise errors.conflict(kind.resource, meta.name, why)
