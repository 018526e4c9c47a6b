"""Verbs for every kind: create, get, list, update, patch, delete.

The API calls these with decoded objects and gets the bytes to send. Every write is one write set with the revisions that it
was made from as preconditions; what the client did not pin is tried again on the newest version.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
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
from app.registry.admission.attributes import Attributes
from app.registry.codec import NAMESPACES, check_size, decode, is_in_version, key_of, write_of
from app.registry.registry import Registry as Registry  # noqa: PLC0414 - most callers of verbs need it, too
from app.registry.verbs import deletion
from app.registry.verbs.mutation import mutate_new, mutate_next
from app.registry.verbs.other_versions import compare_in_other_versions
from app.registry.verbs.strategies import strategy_of
from app.registry.verbs.versions import USUAL_OPTIONS, UpdateOptions, check_identity, new, revise
from app.store import Conflict, Key, StoredObject, Write, precondition
from app.store.change_feed import versioned

_TRIES = 8
Edit = Callable[[Object], Object]


class Created(NamedTuple):
    """Name, UID and revision of an object that was created. `revision`: 0 in a dry run."""

    name: str
    uid: str
    revision: int


class Answer(NamedTuple):
    """An object's bytes as sent, what the client should be warned of, and what an audit log should note."""

    body: bytes
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] | None = None
    created: Created | None = None


def get(registry: Registry, kind: Kind, namespace: str, name: str) -> Coroutine[Any, Any, StoredObject | None]:
    """Return the object; None if there is none."""
    return registry.store.get(key_of(kind, namespace, name))


async def find_in_version(registry: Registry, kind: Kind, namespace: str, name: str) -> StoredObject:
    """The object in the version of the kind; 404 if there is none, 500 if it cannot be converted."""
    head = await find(registry, kind, namespace, name)
    return head if kind.conversion is None else await registry.converter.load(kind, head)


async def get_many(registry: Registry, keys: Sequence[Key]) -> dict[Key, StoredObject]:
    """Return the given objects that exist, read in one query."""
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
    async with strategy_of(kind).serialize(registry):
        return await _create(registry, kind, namespace, _Request(obj, obj, by), size, dry_run=dry_run)


async def _create(
    registry: Registry, kind: Kind, namespace: str, request: "_Request", size: int, *, dry_run: bool
) -> Answer:
    strategy = strategy_of(kind)
    obj = await strategy.drop_disabled_fields(registry, namespace, request.given)
    obj = await strategy.derive_status(registry, obj)
    mutated, said = await mutate_new(registry, kind, namespace, obj, dry_run=dry_run)
    request = request._replace(object=mutated, sent=None if mutated is obj else obj)
    again = {"Conflict"} if mutated.metadata.name else {"Conflict", "AlreadyExists"}
    for attempt in range(_TRIES):
        try:
            answer = await _create_once(registry, kind, namespace, request, size, dry_run)
            return _with_review(answer, said)
        except ApiError as error:
            error.audit_annotations = {**said.audit_annotations, **error.audit_annotations}
            if error.reason not in again or attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def _with_review(answer: Answer, said: Review) -> Answer:
    if said is NOTHING:
        return answer
    notes = {**said.audit_annotations, **(answer.audit_annotations or {})}
    return answer._replace(warnings=(*said.warnings, *answer.warnings), audit_annotations=notes)


async def _create_once(
    registry: Registry, kind: Kind, namespace: str, request: "_Request", size: int, dry_run: bool
) -> Answer:
    """Judge and store. Nobody waits for the namespace while webhooks are called: quotas are charged when they have answered."""
    admission = registry.admission
    rules = await admission.rules(namespace)
    calls = bool((await admission.relevant_webhooks(kind, "CREATE")).validating)
    async with nullcontext() if calls else admission.lock(namespace, rules):
        draft = await _admit(registry, kind, namespace, request, size)
        await strategy_of(kind).review_create(registry, draft.write.object)
        if rules.policies or calls:
            draft = await _review_draft(registry, kind, draft, dry_run)
        if not calls:
            return await _store_new(registry, kind, draft, dry_run)
    async with admission.lock(namespace, rules):
        draft = await _charge(registry, kind, draft)
        return await _store_new(registry, kind, draft, dry_run)


class _Request(NamedTuple):
    """An object as its client sent it (`given`), the same as it is to be judged, and who sent it.

    sent: the object before webhooks changed it, if they did.
    """

    given: Object
    object: Object
    by: FieldManager | None
    sent: Object | None = None


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
    """The draft with what admission policies and webhooks say of it. Raises their refusal."""
    key = draft.write.key
    said = await registry.admission.review(
        Attributes(kind, key.namespace, key.name, new=draft.write.object, dry_run=dry_run)
    )
    annotations = {**draft.audit_annotations, **said.audit_annotations}
    return draft._replace(warnings=(*draft.warnings, *said.warnings), audit_annotations=annotations)


async def _charge(registry: Registry, kind: Kind, draft: _Draft) -> _Draft:
    """The draft charged to the quotas as they are by now. Only the newest ones may refuse it."""
    namespace, made = draft.write.key.namespace, draft.write.object
    if made is None:
        return draft
    try:
        charged = charge_quotas(kind.resource, made, await registry.admission.rules(namespace))
    except ApiError:
        await registry.admission.catch_up()
        charged = charge_quotas(kind.resource, made, await registry.admission.rules(namespace))
    return draft._replace(charged=charged)


def _snapshot(rules: Rules, size: int) -> Rules:
    """The rules as they are now, for who looks at them beside the loop, which changes them."""
    if size <= offload.LARGE:
        return rules
    return msgspec.structs.replace(rules, accounts=dict(rules.accounts), classes=dict(rules.classes))


def _draft(kind: Kind, namespace: str, sent: _Request, now: datetime, rules: Rules) -> _Draft:
    made = new(kind, namespace, sent.object, now, rules, sent.by, sent.sent)
    review = check(kind.resource, made, rules)
    charged = charge_quotas(kind.resource, made, rules)
    warnings = (*_warnings(kind, strategy_of(kind).client_object(made, sent.given), None), *review.warnings)
    return _Draft(write_of(kind, made, "A"), charged, warnings, review.audit_annotations)


async def _store_new(registry: Registry, kind: Kind, draft: _Draft, dry_run: bool) -> Answer:
    write = check_size(draft.write)
    writes = [await registry.converter.convert_write(kind, write), *_places(kind, write.key.namespace)]
    if dry_run:
        await _check_new(registry, kind, writes)
        return _answer(draft, write.body, 0)
    writes += [write_of(QUOTA, each.object, "M", each.old) for each in draft.charged]
    try:
        revision = (await registry.store.commit(writes))[0]
    except Conflict as conflict:
        raise await _creation_error(registry, kind, write.key, conflict) from conflict
    return _answer(draft, versioned(write.body, revision), revision)


def _answer(draft: _Draft, body: bytes, revision: int) -> Answer:
    created = Created(draft.write.key.name, draft.write.uid, revision)
    return Answer(body, draft.warnings, draft.audit_annotations, created)


def _places(kind: Kind, namespace: str) -> Iterator[Write]:
    """What must live for an object to be created: its namespace, and the definition of a custom kind."""
    if kind.namespaced:
        yield _must_live(NAMESPACES, namespace)
    if kind.definition:
        yield _must_live(DEFINITIONS.resource, kind.definition)


@lru_cache(1024)
def _must_live(resource: str, name: str) -> Write:
    return precondition(Key(resource, "", name))


async def _check_new(registry: Registry, kind: Kind, writes: list[Write]) -> None:
    key = writes[0].key
    if await registry.store.get(key):
        raise errors.already_exists(kind.resource, key.name)
    if kind.namespaced:
        await _check_namespace(registry, kind, key.namespace, key.name)
    if kind.definition:
        definition = await registry.store.get(Key(DEFINITIONS.resource, "", kind.definition))
        if definition is None or decode(DEFINITIONS, definition).metadata.deletion_timestamp is not None:
            raise _no_definition_error(kind, key.name, definition)


def _no_definition_error(kind: Kind, name: str, found: StoredObject | None) -> ApiError:
    """The definition of the kind is absent, or on its way out."""
    if found is None:
        return ApiError(404, "NotFound", "the server could not find the requested resource")
    why = "create not allowed while custom resource definition is terminating"
    return errors.forbidden_error(kind.resource, name, why)


async def _check_namespace(registry: Registry, kind: Kind, namespace: str, name: str) -> None:
    found = await registry.store.get(Key(NAMESPACES, "", namespace))
    if found is None or decode(NAMESPACE, found).metadata.deletion_timestamp is not None:
        raise _no_namespace_error(kind, name, namespace, found)


async def _creation_error(registry: Registry, kind: Kind, key: Key, conflict: Conflict) -> ApiError:
    """The name is taken; or the namespace is no place; or a quota that it was charged to has changed."""
    if key in conflict.keys:
        return errors.already_exists(kind.resource, key.name)
    changed = conflict.keys[0]
    if changed.kind == DEFINITIONS.resource:
        return _no_definition_error(kind, key.name, await registry.store.get(changed))
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
        try:
            async with nullcontext() if options.status else strategy.serialize(registry):
                return await _try_edit(registry, kind, key_of(kind, namespace, name), change, options)
        except Conflict:  # somebody was quicker; a client that pinned a version gets a 409 from check_identity
            continue
    raise errors.conflict(kind.resource, name)


async def _try_edit(registry: Registry, kind: Kind, key: Key, change: Edit, options: UpdateOptions) -> Answer:
    strategy = strategy_of(kind)
    stored = await find(registry, kind, key.namespace, key.name)
    head = await registry.converter.load(kind, stored)
    size = max(options.size, len(head.body))
    if options.before_change is not None:
        await options.before_change(decode(kind, head))
    old, changed = await offload.run(size, _apply, kind, head, change, options)
    sent = await strategy.drop_disabled_fields(registry, key.namespace, changed, old)
    if not options.status:
        sent = await strategy.derive_status(registry, sent, old)
    check_identity(kind, sent, old)
    sent, mutated = await mutate_next(registry, kind, sent, old, _subresource(options), dry_run=options.dry_run)
    others = await compare_in_other_versions(registry, kind, old, sent, _updater(options))
    made = await offload.run(size, revise, kind, sent, old, options, others)
    review = await _review_update(registry, kind, (old, made), options)
    warnings = () if options.status else await offload.run(size, _warnings, kind, made, old)
    write, is_same = await offload.run(size, _next_write, kind, old, made)
    if write.change == "M":
        check_size(write, old)
    body = await _store_next(registry, kind, write, stored, dry_run=options.dry_run, is_same=is_same)
    review = merge((mutated, review))
    return Answer(body, (*warnings, *review.warnings), review.audit_annotations)


async def _review_update(
    registry: Registry, kind: Kind, versions: tuple[Object, Object], options: UpdateOptions
) -> Review:
    """What the kind's strategy, admission policies and webhooks say of the next version. Raises their refusal."""
    old, made = versions
    strategy = strategy_of(kind)
    is_reviewed = strategy.reviews_status or not options.status
    own = await strategy.review_update(registry, made, old) if is_reviewed else NOTHING
    meta = made.metadata
    write = Attributes(kind, meta.namespace, meta.name, made, old, _subresource(options), options.dry_run)
    return merge((own, await registry.admission.review(write)))


def _subresource(options: UpdateOptions) -> str:
    return "status" if options.status else options.by.subresource if options.by else ""


def _updater(options: UpdateOptions) -> FieldManager | None:
    """Who is on record for an update. A server-side apply has found out itself what it changes."""
    return options.by if options.by is not None and not options.by.applies else None


def _apply(kind: Kind, head: StoredObject, change: Edit, options: UpdateOptions) -> tuple[Object, Object]:
    """The object before and after."""
    old = decode(kind, head)
    check_preconditions(kind, old, Preconditions(uid=options.uid))
    return old, change(old)


async def _store_next(
    registry: Registry, kind: Kind, write: Write, before: StoredObject, *, dry_run: bool, is_same: bool
) -> bytes:
    """Store the next version. What changes nothing is written nevertheless if it was stored in an old version."""
    is_migrated = kind.conversion is None or is_in_version(kind.storage or kind, before.body)
    if is_same and is_migrated:
        return versioned(write.body, write.expected)
    stored = await registry.converter.convert_write(kind, write, before)
    if dry_run:
        return versioned(write.body, write.expected)
    revision = (await registry.store.commit([stored]))[0]
    return versioned(write.body, revision)


def _warnings(kind: Kind, made: Object, old: Object | None) -> tuple[str, ...]:
    return tuple(kind.warnings(made, old))


def _next_write(kind: Kind, old: Object, made: Object) -> tuple[Write, bool]:
    """The write, and whether it changes nothing."""
    return write_of(kind, made, "D" if deletion.is_over(kind, made) else "M", old), made == old


async def rewrite(registry: Registry, kind: Kind, namespace: str, name: str, change: Edit) -> Answer:
    """Apply a change of the server's own, such as a binding: what a client may not touch is not put back."""
    for _ in range(_TRIES):
        head = await find(registry, kind, namespace, name)
        old = decode(kind, head)
        write, is_same = _next_write(kind, old, change(old))
        try:
            return Answer(await _store_next(registry, kind, write, head, dry_run=False, is_same=is_same))
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
    """`body`: the object's bytes as stored, at the revision of this deletion.

    `is_over`: it waits for neither grace nor finalizers.
    """

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
    stored: Kind = kind.storage or kind
    for _ in range(_TRIES):
        old = decode(stored, await find(registry, kind, namespace, name))
        check_preconditions(kind, old, preconditions)
        await _review_deletion(registry, kind, old, dry_run=dry_run)
        begun = deletion.begin(kind, old, registry.now(), demand)
        write = write_of(stored, begun.object, "D" if begun.is_over else "M", old)
        unchanged = not begun.is_over and begun.object == old
        if dry_run or unchanged:
            return Deleted(old.metadata.uid, versioned(write.body, write.expected), begun.is_over)
        try:
            revision = (await registry.store.commit([write]))[0]
        except Conflict:
            continue
        return Deleted(old.metadata.uid, versioned(write.body, revision), begun.is_over)
    raise errors.conflict(kind.resource, name)


async def _review_deletion(registry: Registry, kind: Kind, old: Object, *, dry_run: bool) -> None:
    """Raise the refusal of policies and webhooks. Without any, an object need not be converted to be deleted."""
    if kind.conversion is not None and await registry.admission.judges(kind, "DELETE"):
        old = await registry.converter.convert_object(kind, old)
    attributes = Attributes(kind, old.metadata.namespace, old.metadata.name, old=old, dry_run=dry_run)
    await registry.admission.mutate(attributes)
    await registry.admission.review(attributes)


def check_preconditions(kind: Kind, old: Object, wanted: Preconditions) -> None:
    meta = old.metadata
    for label, asked, actual in (
        ("UID", wanted.uid, meta.uid),
        ("ResourceVersion", wanted.resource_version, meta.resource_version),
    ):
        if asked and asked != actual:
            why = f"Precondition failed: {label} in precondition: {asked}, {label} in object meta: {actual}"
            raise errors.conflict(kind.resource, meta.name, why)
