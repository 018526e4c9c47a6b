"""Pod Security levels of namespaces, as agents learn them: on their request, and with the pods that their watch adds."""

from typing import cast

from app.client.protocol import NamespaceLevel
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.registry.codec import decode, key_of
from app.registry.registry import Registry
from app.registry.verbs.objects import get


async def read_level(registry: Registry, namespace: str) -> NamespaceLevel:
    """Return the level of a namespace, as the database has it."""
    head = await get(registry, NAMESPACES, "", namespace)
    return await _level(registry, None if head is None else cast("Namespace", decode(NAMESPACES, head)))


async def recall_level(registry: Registry, namespace: str) -> NamespaceLevel:
    """Return the level from memory: as new as the change feed's cursor, and so as any change that a watch has sent."""
    mirror = await registry.policy.mirror()
    return await _level(registry, cast("Namespace | None", mirror.get(key_of(NAMESPACES, "", namespace))))


async def _level(registry: Registry, namespace: Namespace | None) -> NamespaceLevel:
    if namespace is None:
        return NamespaceLevel()
    meta, policy = namespace.metadata, registry.pod_security
    is_default = not policy.is_enforced_by_choice(meta.name, meta.labels)
    has_services = await registry.services.has_services(meta.name)
    return NamespaceLevel(meta.uid, policy.enforced_level(meta.name, meta.labels), is_default, has_services)
