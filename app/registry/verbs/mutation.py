"""Mutation: what the mutating admission webhooks make of an object that a client writes, before it is judged and stored.

Called by `objects`. A webhook sees the object as Kubernetes shows it: with defaults, after the rules of the namespace, without
what the server sets at the creation. What it returns is completed and validated as if the client had sent it.
"""

from msgspec.structs import replace

from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.plans.admission.review import NOTHING, Review
from app.registry.admission.attributes import Attributes
from app.registry.registry import Registry
from app.registry.verbs.strategies import strategy_of
from app.registry.verbs.versions import next_metadata


async def mutate_new(
    registry: Registry, kind: Kind, namespace: str, obj: Object, *, dry_run: bool
) -> tuple[Object, Review]:
    """A new object as the webhooks want it; the same one if none changes it. Raises their refusal."""
    found = await registry.admission.relevant_webhooks(kind, "CREATE")
    if not found.mutating:
        return obj, NOTHING
    shown = await _complete_new(registry, kind, namespace, obj)
    attributes = Attributes(kind, shown.metadata.namespace, shown.metadata.name, new=shown, dry_run=dry_run)
    mutated = await registry.admission.mutate(attributes)
    return obj if mutated.object is shown or mutated.object is None else mutated.object, mutated.review


async def _complete_new(registry: Registry, kind: Kind, namespace: str, obj: Object) -> Object:
    """A new object with what the rules of its namespace add. Only the newest rules may refuse it."""
    strategy = strategy_of(kind)
    try:
        admitted = strategy.admit(obj, namespace, await registry.admission.rules(namespace))
    except ApiError as error:
        if error.reason != "Forbidden":
            raise
        await registry.admission.catch_up()
        admitted = strategy.admit(obj, namespace, await registry.admission.rules(namespace))
    meta = admitted.metadata
    meta = replace(meta, namespace=meta.namespace or namespace) if kind.namespaced else meta
    prepared: Object = kind.prepare(replace(admitted, metadata=meta))
    return prepared


async def mutate_next(
    registry: Registry, kind: Kind, sent: Object, old: Object, subresource: str, *, dry_run: bool
) -> tuple[Object, Review]:
    """The next version as the webhooks want it; what was sent if none changes it. Raises their refusal.

    Whose it is, and who is on record for its fields, stays as it was sent.
    """
    found = await registry.admission.relevant_webhooks(kind, "UPDATE", subresource)
    if not found.mutating:
        return sent, NOTHING
    shown: Object = kind.prepare(replace(sent, metadata=next_metadata(sent.metadata, old.metadata)))
    attributes = Attributes(kind, old.metadata.namespace, old.metadata.name, shown, old, subresource, dry_run)
    mutated = await registry.admission.mutate(attributes)
    if mutated.object is shown or mutated.object is None:
        return sent, mutated.review
    given = sent.metadata
    metadata = replace(
        mutated.object.metadata,
        name=given.name,
        namespace=given.namespace,
        uid=given.uid,
        resource_version=given.resource_version,
        creation_timestamp=given.creation_timestamp,
        managed_fields=given.managed_fields,
    )
    return replace(mutated.object, metadata=metadata), mutated.review
