"""What a fresh cluster starts with: the namespaces that everybody expects, and their default service accounts."""

from app.kinds import by_name
from app.kinds.base import Kind, ObjectMeta
from app.kinds.errors import ApiError
from app.kinds.namespace import FIRST
from app.registry.objects import Registry, create


async def bootstrap(registry: Registry) -> None:
    """Create what is missing. Many processes may do so at once."""
    namespace, account = by_name("", "Namespace"), by_name("", "ServiceAccount")
    if namespace is None or account is None:
        raise LookupError("the kinds Namespace and ServiceAccount are part of every build")
    for name in FIRST:
        await _ensure(registry, namespace, "", name)
    for name in FIRST:
        await _ensure(registry, account, name, "default")


async def _ensure(registry: Registry, kind: Kind, namespace: str, name: str) -> None:
    try:
        await create(registry, kind, namespace, kind.type(metadata=ObjectMeta(name=name)))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
