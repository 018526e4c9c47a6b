"""Bootstrap: objects of a fresh cluster: namespaces, default service accounts, roles, priority classes, the storage class."""

from collections.abc import Iterator
from typing import NamedTuple, cast

from msgspec.structs import replace

from app.kinds.auth.cluster_role import ClusterRole
from app.kinds.core.namespace import FIRST, Namespace
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.kinds.core.serviceaccount import ServiceAccount
from app.kinds.scheduling.priorityclass import KIND as PRIORITY_CLASSES
from app.kinds.scheduling.priorityclass import SYSTEM
from app.kinds.storage.storageclass import KIND as STORAGE_CLASSES
from app.kinds.storage.storageclass import LOCAL_CLASS
from app.machinery.base import Kind, Object, ObjectMeta
from app.machinery.feature_gates import Features
from app.plans.admission.rbac import find_uncovered
from app.registry.authorization import default_roles
from app.registry.codec import decode, key_of, write_of
from app.registry.plan_writer import kind_of
from app.registry.registry import Registry
from app.registry.verbs.versions import new
from app.store import Conflict, Key, StoredObject, Write

_TRIES = 8


class _Wanted(NamedTuple):
    kind: Kind
    namespace: str
    object: Object


async def bootstrap(registry: Registry) -> None:
    """Create what is missing: one look, and one write if there is something. Many processes may do so at once."""
    wanted = {key_of(each.kind, each.namespace, each.object.metadata.name): each for each in _wanted(registry.features)}
    for attempt in range(_TRIES):
        writes = _writes(registry, wanted, await registry.store.get_many(list(wanted)))
        try:
            if writes:
                await registry.store.commit(writes)
            return
        except Conflict:  # another process was quicker, and may have left something to do
            if attempt == _TRIES - 1:
                raise


def _wanted(features: Features) -> Iterator[_Wanted]:
    for name in FIRST:
        yield _Wanted(NAMESPACES, "", Namespace(metadata=ObjectMeta(name=name)))
    for namespace in FIRST:
        yield _Wanted(ACCOUNTS, namespace, ServiceAccount(metadata=ObjectMeta(name="default")))
    for priority_class in SYSTEM:
        yield _Wanted(PRIORITY_CLASSES, "", priority_class)
    yield _Wanted(STORAGE_CLASSES, "", LOCAL_CLASS)
    for each in default_roles.objects(features):
        yield _Wanted(kind_of(type(each)), "", each)


def _writes(registry: Registry, wanted: dict[Key, _Wanted], found: dict[Key, StoredObject]) -> list[Write]:
    now = registry.now()
    missing = [each for key, each in wanted.items() if key not in found]
    writes = [write_of(each.kind, new(each.kind, each.namespace, each.object, now), "A") for each in missing]
    for key, head in found.items():
        each = wanted[key]
        if isinstance(each.object, ClusterRole):
            old = cast("ClusterRole", decode(each.kind, head))
            whole = _with_missing_rules(old, each.object)
            if whole != old:
                writes.append(write_of(each.kind, whole, "M", old))
    return writes


def _with_missing_rules(old: ClusterRole, default: ClusterRole) -> ClusterRole:
    """The role with the rules that an earlier version did not have, unless somebody wants it left as it is."""
    if old.aggregation_rule is not None or old.metadata.annotations.get(default_roles.UPDATED) != "true":
        return old
    missing_rules = find_uncovered(old.rules, default.rules)
    return replace(old, rules=(*old.rules, *missing_rules)) if missing_rules else old
