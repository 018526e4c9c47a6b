"""Verbs for every kind: create, get, list, update, patch, delete.

The API calls these with decoded objects and gets the bytes to send. Every write is one write set with the revisions that it
was made from as preconditions; what the client did not pin is tried again on the newest version.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from app.kinds.core.namespace import KIND as NAMESPACE
from app.kinds.core.resourcequota import KIND as QUOTA
from app.machinery import errors
from app.machinery.apply.managed_fields import FieldManager
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError, Cause
from app.plans.admission.pod_admission import Rules, charge_quotas, check
from app.plans.admission.review import NOTHING, Review, merge
from app.plans.plan import Update
from app.registry import offload
from app.registry.admission.policy_review import PolicyWrite
from app.registry.codec import NAMESPACES, check_size, decode, key_of, write_of
from app.registry.registry import Registry as Registry  # noqa: PLC0414 - most callers of verbs need it, too
from app.registry.verbs import deletion
from app.registry.verbs.strategies import strategy_of
from app.registry.verbs.versions import USUAL_OPTIONS, UpdateOptions, check_identity, new, revise
from app.store import Conflict, Key, StoredObject, Write, precondition
from app.store.change_feed import versioned

_TRIES = 8
Edit = Callable[[Object], Object]


@dataclass(frozen=True)
class Answer:
    """An object's bytes as sent, what the client should be warned of, and what an audit log should note."""

    body: bytes
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] | None = None


async def get(registry: Registry, kind: Kind, namespace: str, name: str) -> StoredObject | None:
    return await registry.store.get(key_of(kind, namespace, name))


async def get_many(registry: Registry, keys: Sequence[Key]) -> dict[Key, StoredObject]:
    """Those of the objects that exist, in one query."""
    return await registry.store.get_many(keys)


async def find(registry: Registry, kind: Kind, namespace: str, name: str) -> StoredObject:
    head = await get(registry, kind, namespace, name)
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
    by: FieldManager | None = None,
    dry_run: bool = False,
    size: int = 0,
) -> Answer:
    """Create `obj` in `namespace`; 409 if the name is taken, 404 or 403 for a namespace that is absent or going.

    `size`: bytes of what was sent.
    """
    given, obj = obj, await strategy_of(kind).drop_disabled_fields(registry, namespace, obj)
    again = {"Conflict"} if obj.metadata.name else {"Conflict", "AlreadyExists"}
    for attempt in range(_TRIES):
        rules = await registry.admission.rules(namespace)
        try:
            async with registry.admission.lock(namespace, rules):
                draft = await _admit(registry, kind, namespace, _Request(given, obj, by), size)
                if rules.policies:
                    draft = await _review_draft(registry, kind, draft, dry_run)
                body = await _store_new(registry, kind, draft, dry_run)
                return Answer(body, draft.warnings, draft.audit_annotations)
        except ApiError as error:
            if error.reason not in again or attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


class _Request(NamedTuple):
    """An object as its client sent it (`given`), the same as it is to be judged, and who sent it."""

    given: Object
    object: Object
    by: FieldManager | None


class _Draft(NamedTuple):
    """An object that may be created: how it will be stored, and the quotas that it is charged to."""

    write: Write
    charged: Sequence[Update]
    warnings: tuple[str, ...]
    audit_annotations: Mapping[str, str]


async def _admit(registry: Registry, kind: Kind, namespace: str, sent: _Request, size: int) -> _Draft:
    """The object as it will be stored. Only the newest rules may refuse it."""
    rules = _snapshot(await registry.admission.rules(namespace), size)
    try:
        return await offload.run(size, _draft, kind, namespace, sent, registry.now(), rules)
    except ApiError as error:
        if error.reason != "Forbidden":
            raise
    await registry.admission.catch_up()
    if kind.namespaced:
        await _check_namespace(registry, kind, namespace, sent.object.metadata.name)
    rules = _snapshot(await registry.admission.rules(namespace), size)
    return await offload.run(size, _draft, kind, namespace, sent, registry.now(), rules)


async def _review_draft(registry: Registry, kind: Kind, draft: _Draft, dry_run: bool) -> _Draft:
    """The draft with what the admission policies say of it. Raises their refusal."""
    key = draft.write.key
    said = await registry.admission.review(
        PolicyWrite(kind, key.namespace, key.name, new=draft.write.object, dry_run=dry_run)
    )
    annotations = {**draft.audit_annotations, **said.audit_annotations}
    return draft._replace(warnings=(*draft.warnings, *said.warnings), audit_annotations=annotations)


def _snapshot(rules: Rules, size: int) -> Rules:
    """The rules as they are now, for who looks at them beside the loop, which changes them."""
    if size <= offload.LARGE:
        return rules
    return msgspec.structs.replace(rules, accounts=dict(rules.accounts), classes=dict(rules.classes))


def _draft(kind: Kind, namespace: str, sent: _Request, now: datetime, rules: Rules) -> _Draft:
    made = new(kind, namespace, sent.object, now, rules, sent.by)
    review = check(kind.resource, made, rules)
    charged = charge_quotas(kind.resource, made, rules)
    warnings = (*_warnings(kind, strategy_of(kind).client_object(made, sent.given), None), *review.warnings)
    return _Draft(write_of(kind, made, "A"), charged, warnings, review.audit_annotations)


async def _store_new(registry: Registry, kind: Kind, draft: _Draft, dry_run: bool) -> bytes:
    write = check_size(draft.write)
    writes = [write, precondition(Key(NAMESPACES, "", write.key.namespace))] if kind.namespaced else [write]
    if dry_run:
        await _check_new(registry, kind, writes)
        return write.body
    writes += [write_of(QUOTA, each.object, "M", each.old) for each in draft.charged]
    try:
        revision = (await registry.store.commit(writes))[0]
    except Conflict as conflict:
        raise await _creation_error(registry, kind, write.key, conflict) from conflict
    return versioned(write.body, revision)


async def _check_new(registry: Registry, kind: Kind, writes: list[Write]) -> None:
    key = writes[0].key
    if await registry.store.get(key):
        raise errors.already_exists(kind.resource, key.name)
    if kind.namespaced:
        await _check_namespace(registry, kind, key.namespace, key.name)


async def _check_namespace(registry: Registry, kind: Kind, namespace: str, name: str) -> None:
    found = await registry.store.get(Key(NAMESPACES, "", namespace))
    if found is None or decode(NAMESPACE, found).metadata.deletion_timestamp is not None:
        raise _no_namespace_error(kind, name, namespace, found)


async def _creation_error(registry: Registry, kind: Kind, key: Key, conflict: Conflict) -> ApiError:
    """The name is taken; or the namespace is no place; or a quota that it was charged to has changed."""
    if key in conflict.keys:
        return errors.already_exists(kind.resource, key.name)
    changed = conflict.keys[0]
    if changed.kind == NAMESPACES:
        return _no_namespace_error(kind, key.name, changed.name, await registry.store.get(changed))
    await registry.admission.catch_up(conflict.revision)
    return errors.conflict(changed.kind, changed.name)


def _no_namespace_error(kind: Kind, name: str, namespace: str, found: StoredObject | None) -> ApiError:
    """The namespace is absent, or on its way out."""
    if found is None:
        return errors.not_found(NAMESPACES, namespace)
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = Cause("NamespaceTerminating", f"namespace {namespace} is being terminated", "metadata.namespace")
    return errors.forbidden_error(kind.resource, name, why, causes=[cause._asdict()])


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
    options = UpdateOptions(status=status, uid=sent.metadata.uid, dry_run=dry_run)
    return await edit(registry, kind, namespace, name, lambda _: sent, options)


async def edit(
    registry: Registry, kind: Kind, namespace: str, name: str, change: Edit, options: UpdateOptions = USUAL_OPTIONS
) -> Answer:
    """Apply `change` to the newest version. If what it returns names no resourceVersion, a conflict is tried again."""
    strategy = strategy_of(kind)
    for _ in range(_TRIES):
        head = await find(registry, kind, namespace, name)
        size = max(options.size, len(head.body))
        old, changed = await offload.run(size, _apply, kind, head, change, options)
        sent = await strategy.drop_disabled_fields(registry, namespace, changed, old)
        check_identity(kind, sent, old)
        try:
            made = await offload.run(size, revise, kind, sent, old, options)
            review = await _review_update(registry, kind, (old, made), options)
            warnings = () if options.status else await offload.run(size, _warnings, kind, made, old)
            body = await _store_next(registry, kind, old, made, dry_run=options.dry_run, size=size, by_client=True)
            return Answer(body, (*warnings, *review.warnings), review.audit_annotations)
        except Conflict:  # somebody was quicker; a client that pinned a version gets a 409 from check_identity
            continue
    raise errors.conflict(kind.resource, name)


async def _review_update(
    registry: Registry, kind: Kind, versions: tuple[Object, Object], options: UpdateOptions
) -> Review:
    """What the kind's strategy and the admission policies say of the next version. Raises their refusal."""
    old, made = versions
    own = NOTHING if options.status else await strategy_of(kind).review_update(registry, made, old)
    meta = made.metadata
    subresource = "status" if options.status else options.by.subresource if options.by else ""
    write = PolicyWrite(kind, meta.namespace, meta.name, made, old, subresource, options.dry_run)
    return merge((own, await registry.admission.review(write)))


def _apply(kind: Kind, head: StoredObject, change: Edit, options: UpdateOptions) -> tuple[Object, Object]:
    """The object before and after."""
    old = decode(kind, head)
    check_preconditions(kind, old, Preconditions(uid=options.uid))
    return old, change(old)


async def _store_next(
    registry: Registry, kind: Kind, old: Object, made: Object, *, dry_run: bool, size: int = 0, by_client: bool = False
) -> bytes:
    write, is_same = await offload.run(size, _next_write, kind, old, made)
    if by_client and write.change == "M":
        check_size(write, old)
    if dry_run or is_same:
        return versioned(write.body, write.expected)
    revision = (await registry.store.commit([write]))[0]
    return versioned(write.body, revision)


def _warnings(kind: Kind, made: Object, old: Object | None) -> tuple[str, ...]:
    return tuple(kind.warnings(made, old))


def _next_write(kind: Kind, old: Object, made: Object) -> tuple[Write, bool]:
    """The write, and whether it changes nothing."""
    return write_of(kind, made, "D" if deletion.is_over(kind, made) else "M", old), made == old


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


@dataclass(frozen=True)
class Deleted:
    """`body`: the object's bytes, at the revision of this deletion. `is_over`: it waits for neither grace nor finalizers."""

    uid: str
    body: bytes
    is_over: bool


async def delete(
    registry: Registry,
    kind: Kind,
    namespace: str,
    name: str,
    demand: deletion.Demand,
    preconditions: Preconditions = Preconditions(),
    *,
    dry_run: bool = False,
) -> Deleted:
    """Delete, or begin to."""
    if name in kind.immortal:
        raise errors.forbidden_error(kind.resource, name, f"this {kind.singular} may not be deleted")
    for _ in range(_TRIES):
        old = decode(kind, await find(registry, kind, namespace, name))
        check_preconditions(kind, old, preconditions)
        await registry.admission.review(PolicyWrite(kind, old.metadata.namespace, name, old=old, dry_run=dry_run))
        begun = deletion.begin(kind, old, registry.now(), demand)
        write = write_of(kind, begun.object, "D" if begun.is_over else "M", old)
        unchanged = not begun.is_over and begun.object == old
        if dry_run or unchanged:
            return Deleted(old.metadata.uid, versioned(write.body, write.expected), begun.is_over)
        try:
            revision = (await registry.store.commit([write]))[0]
        except Conflict:
            continue
        return Deleted(old.metadata.uid, versioned(write.body, revision), begun.is_over)
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
