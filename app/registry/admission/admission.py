"""Admission: the rules that new objects are judged by, kept in memory: one look-up for a create, and nothing else without quotas.

`app.plans.admission.pod_admission` decides what the rules mean. The API's creates come through `Admission`; the controllers
have a `RuleCache` of their own over their own mirror. A charge to a quota is a write in the write set of the creation, with the
quota's revision as its precondition: that makes it exact. `NamespaceLocks` only spare useless conflicts.
"""

import asyncio
from collections import defaultdict
from contextlib import AbstractAsyncContextManager, nullcontext
from operator import attrgetter
from typing import Any, cast
from weakref import WeakValueDictionary

from app.kinds.admission.validating_admission_policy import KIND as POLICIES
from app.kinds.admission.validating_admission_policy_binding import KIND as BINDINGS
from app.kinds.core.limitrange import KIND as LIMIT_RANGES
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.runtimeclass import KIND as RUNTIME_CLASSES
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.kinds.scheduling.priorityclass import KIND as PRIORITY_CLASSES
from app.kinds.storage.storageclass import KIND as STORAGE_CLASSES
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.plans.admission.pod_admission import Rules
from app.plans.admission.pod_security.namespace_policy import (
    EXEMPT,
    USUAL_CONFIGURATION,
    NamespacePolicy,
    PodSecurityConfiguration,
)
from app.plans.admission.policies.matching import Bound, in_force
from app.plans.admission.review import NOTHING, Review
from app.registry.admission.policy_cache import PolicyCache
from app.registry.admission.policy_review import PolicyReviewer, PolicyWrite
from app.registry.admission.requester import REQUESTER
from app.store import Key, Mirror, Store

_LISTED = frozenset(
    kind.resource for kind in (QUOTAS, LIMIT_RANGES, ACCOUNTS, PRIORITY_CLASSES, RUNTIME_CLASSES, STORAGE_CLASSES)
)
_POLICIES = frozenset({POLICIES.resource, BINDINGS.resource})
RULES = _LISTED | _POLICIES | {NAMESPACES.resource}
_BEHIND_SECONDS = 1.0
TOO_MANY = 429
_by_name = attrgetter("metadata.name")


class RuleCache:
    """The rules of every namespace, as new as the mirror that they are in."""

    def __init__(self, mirror: Mirror, pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION) -> None:
        self.mirror = mirror
        self._configuration = pod_security
        self._unlabelled = pod_security.default
        self._pod_security: dict[str, NamespacePolicy] = {}  # of namespaces that differ from the others
        self.policies: tuple[Bound, ...] = self._bind_policies()
        self._objects: dict[str, defaultdict[str, dict[str, Any]]] = {kind: defaultdict(dict) for kind in _LISTED}
        for kind in RULES.intersection(mirror.kinds):
            for each in mirror.all(kind):
                self._changed(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        mirror.listen(self._changed)

    def _changed(self, key: Key, _: Object | None, now: Object | None) -> None:
        if key.kind not in RULES:
            return
        if key.kind == NAMESPACES.resource:
            self._note_policy(key.name, now)
            return
        if key.kind in _POLICIES:
            self.policies = self._bind_policies()
            return
        there = self._objects[key.kind]
        if now is not None:
            there[key.namespace][key.name] = now
            return
        there[key.namespace].pop(key.name, None)
        if not there[key.namespace]:
            del there[key.namespace]

    def _bind_policies(self) -> tuple[Bound, ...]:
        if not _POLICIES.issubset(self.mirror.kinds):
            return ()
        policies, bindings = (cast("Any", self.mirror.all(kind.resource)) for kind in (POLICIES, BINDINGS))
        return in_force(policies, bindings)

    def _note_policy(self, namespace: str, now: Object | None) -> None:
        policy = self._unlabelled if now is None else self._configuration.policy_of(namespace, now.metadata.labels)
        if policy == self._unlabelled and policy is not EXEMPT:
            self._pod_security.pop(namespace, None)
        else:
            self._pod_security[namespace] = policy

    def rules(self, namespace: str) -> Rules:
        return Rules(
            quotas=self._listed(QUOTAS.resource, namespace),
            limit_ranges=self._listed(LIMIT_RANGES.resource, namespace),
            accounts=self._objects[ACCOUNTS.resource].get(namespace, {}),
            classes=self._objects[PRIORITY_CLASSES.resource].get("", {}),
            storage_classes=self._objects[STORAGE_CLASSES.resource].get("", {}),
            runtime_classes=self._objects[RUNTIME_CLASSES.resource].get("", {}),
            pod_security=self._pod_security.get(namespace, self._unlabelled),
            policies=self.policies,
        )

    def _listed(self, kind: str, namespace: str) -> list[Any]:
        found = self._objects[kind].get(namespace)
        return sorted(found.values(), key=_by_name) if found else []

    def has_quotas(self, namespace: str) -> bool:
        return namespace in self._objects[QUOTAS.resource]


class NamespaceLocks:
    """In a namespace with quotas, one after the other: all would write the same quotas, and only the first succeed."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, namespace: str) -> asyncio.Lock:
        """A lock that is forgotten when nobody holds it."""
        return self._locks.setdefault(namespace, asyncio.Lock())


class Admission:
    """The rules for one process's creates."""

    def __init__(self, store: Store, policy: PolicyCache, pod_security: PodSecurityConfiguration) -> None:
        self._store = store
        self._policy = policy
        self._pod_security = pod_security
        self._book: RuleCache | None = None
        self.reviewer = PolicyReviewer(store)
        self.locks = NamespaceLocks()

    async def rules(self, namespace: str) -> Rules:
        return (await self._rule_cache()).rules(namespace)

    async def _rule_cache(self) -> RuleCache:
        mirror = await self._policy.mirror()
        if self._book is None or self._book.mirror is not mirror:
            self._book = RuleCache(mirror, self._pod_security)
        return self._book

    async def review(self, write: PolicyWrite) -> Review:
        """Return what the admission policies say of a client's write. Raises their refusal; never by rules that are stale."""
        book = await self._rule_cache()
        if not book.policies:
            return NOTHING
        try:
            return await self._review(book, write)
        except ApiError as error:
            if error.code == TOO_MANY:
                raise
        await self.catch_up()
        return await self._review(await self._rule_cache(), write)

    async def _review(self, book: RuleCache, write: PolicyWrite) -> Review:
        return await self.reviewer.review(book.policies, book.mirror, write, REQUESTER.get())

    def lock(self, namespace: str, rules: Rules) -> AbstractAsyncContextManager[object]:
        """Hold it from judging an object until that is stored."""
        return self.locks.of(namespace) if rules.quotas else nullcontext()

    async def catch_up(self, revision: int | None = None) -> None:
        """Until the rules are as new as the store, or as this revision. No refusal may come from rules that are stale."""
        try:
            async with asyncio.timeout(_BEHIND_SECONDS):
                await self._store.feed.reach(revision or await self._store.revision())
        except TimeoutError:
            pass
