"""Admission: the rules that new objects are judged by, kept in memory: one look-up for a create, and nothing else without quotas.

`app.plans.admission.pod_admission` decides what the rules mean. The API's creates come through `Admission`; the controllers
have a `RuleCache` of their own over their own mirror. A charge to a quota is a write in the write set of the creation, with the
quota's revision as its precondition: that makes it exact. `NamespaceLocks` only spare useless conflicts.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from app.kinds.admission.mutating_webhook_configuration import KIND as MUTATING
from app.kinds.admission.validating_admission_policy import KIND as POLICIES
from app.kinds.admission.validating_admission_policy_binding import KIND as BINDINGS
from app.kinds.admission.validating_webhook_configuration import KIND as VALIDATING
from app.kinds.core.limitrange import KIND as LIMIT_RANGES
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.runtimeclass import KIND as RUNTIME_CLASSES
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.kinds.scheduling.priorityclass import KIND as PRIORITY_CLASSES
from app.kinds.storage.storageclass import KIND as STORAGE_CLASSES
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.plans.admission.pod_admission import Rules
from app.plans.admission.pod_security.namespace_policy import (
    EXEMPT,
    USUAL_CONFIGURATION,
    NamespacePolicy,
    PodSecurityConfiguration,
)
from app.plans.admission.policies.matching import Bound, could_match, in_force
from app.plans.admission.review import NOTHING, Review, merge
from app.plans.admission.webhooks.matching import NO_WEBHOOKS, NONE, Relevant, Webhooks
from app.registry.admission.attributes import Attributes
from app.registry.admission.policy_cache import PolicyCache
from app.registry.admission.policy_review import PolicyReviewer
from app.registry.admission.requester import REQUESTER
from app.registry.admission.webhook_review import Mutated, WebhookReviewer
from app.registry.kind_table import KindCache
from app.registry.webhook_calls.service_resolver import ServiceResolver
from app.registry.webhook_calls.webhook_client import WebhookClient
from app.store import Key, Mirror, Store

_LISTED = frozenset(
    kind.resource for kind in (QUOTAS, LIMIT_RANGES, ACCOUNTS, PRIORITY_CLASSES, RUNTIME_CLASSES, STORAGE_CLASSES)
)
_POLICIES = frozenset({POLICIES.resource, BINDINGS.resource})
_WEBHOOKS = frozenset({MUTATING.resource, VALIDATING.resource})
RULES = _LISTED | _POLICIES | _WEBHOOKS | {NAMESPACES.resource}
TOO_MANY = 429
MOST_KNOWN = 1_000  # namespaces whose rules are remembered; a client may name any
T = TypeVar("T")
_by_name = attrgetter("metadata.name")


class RuleCache:
    """The rules of every namespace, as new as the mirror that they are in."""

    def __init__(self, mirror: Mirror, pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION) -> None:
        self.mirror = mirror
        self._configuration = pod_security
        self._unlabelled = pod_security.default
        self._pod_security: dict[str, NamespacePolicy] = {}  # of namespaces that differ from the others
        self.policies: tuple[Bound, ...] = self._bind_policies()
        self.webhooks = self._list_webhooks()
        self._objects: dict[str, defaultdict[str, dict[str, Any]]] = {kind: defaultdict(dict) for kind in _LISTED}
        self._rules: dict[str, Rules] = {}  # of the namespaces that were asked for since something changed
        for kind in RULES.intersection(mirror.kinds):
            for each in mirror.all(kind):
                self._changed(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        mirror.listen(self._changed)

    def _changed(self, key: Key, _: Object | None, now: Object | None) -> None:
        if key.kind not in RULES:
            return
        self._rules.clear()
        if key.kind == NAMESPACES.resource:
            self._note_policy(key.name, now)
            return
        if key.kind in _POLICIES:
            self.policies = self._bind_policies()
            return
        if key.kind in _WEBHOOKS:
            self.webhooks = self._list_webhooks()
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

    def _list_webhooks(self) -> Webhooks:
        if not _WEBHOOKS.issubset(self.mirror.kinds):
            return NO_WEBHOOKS
        mutating, validating = (cast("Any", self.mirror.all(kind.resource)) for kind in (MUTATING, VALIDATING))
        return Webhooks(mutating, validating)

    def _note_policy(self, namespace: str, now: Object | None) -> None:
        policy = self._unlabelled if now is None else self._configuration.policy_of(namespace, now.metadata.labels)
        if policy == self._unlabelled and policy is not EXEMPT:
            self._pod_security.pop(namespace, None)
        else:
            self._pod_security[namespace] = policy

    def rules(self, namespace: str) -> Rules:
        found = self._rules.get(namespace)
        if found is None:
            if len(self._rules) >= MOST_KNOWN:
                self._rules.clear()
            found = self._rules[namespace] = self._make_rules(namespace)
        return found

    def _make_rules(self, namespace: str) -> Rules:
        return Rules(
            quotas=self._listed(QUOTAS.resource, namespace),
            limit_ranges=self._listed(LIMIT_RANGES.resource, namespace),
            accounts=self._objects[ACCOUNTS.resource].get(namespace, {}),
            classes=self._objects[PRIORITY_CLASSES.resource].get("", {}),
            storage_classes=self._objects[STORAGE_CLASSES.resource].get("", {}),
            runtime_classes=self._objects[RUNTIME_CLASSES.resource].get("", {}),
            pod_security=self._pod_security.get(namespace, self._unlabelled),
            policies=self.policies,
            webhooks=self.webhooks,
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
    """The rules for one process's creates, and the policies and webhooks for all that its clients write."""

    def __init__(
        self, store: Store, policy: PolicyCache, pod_security: PodSecurityConfiguration, kinds: KindCache
    ) -> None:
        self._store = store
        self._policy = policy
        self._pod_security = pod_security
        self._kinds = kinds
        self._book: RuleCache | None = None
        self.reviewer = PolicyReviewer(store)
        self.resolver = ServiceResolver(store)
        self.webhooks = WebhookReviewer(WebhookClient(self.resolver), self.reviewer.evaluator)
        self.locks = NamespaceLocks()

    async def rules(self, namespace: str) -> Rules:
        return (self._newest() or await self._rule_cache()).rules(namespace)

    def _newest(self) -> RuleCache | None:
        """Return the rules that are held; None if they are not the newest. Without coroutines, as each write asks four times."""
        book = self._book
        return book if book is not None and book.mirror is self._policy.newest() else None

    async def _rule_cache(self) -> RuleCache:
        mirror = await self._policy.mirror()
        if self._book is None or self._book.mirror is not mirror:
            self._book = RuleCache(mirror, self._pod_security)
        return self._book

    # --- policies and webhooks

    async def relevant_webhooks(self, kind: Kind, operation: str, subresource: str = "") -> Relevant:
        """Return the webhooks that are about a resource."""
        webhooks = (self._newest() or await self._rule_cache()).webhooks
        if not webhooks:
            return NONE
        table = await self._kinds.table()
        return webhooks.relevant(kind, operation, subresource, table.versions, table.generation)

    async def judges(self, kind: Kind, operation: str) -> bool:
        """Return whether a policy or a webhook is about what is done to a resource."""
        book = await self._rule_cache()
        found = await self.relevant_webhooks(kind, operation)
        return bool(found.mutating or found.validating) or could_match(book.policies, kind, operation, "")

    async def mutate(self, write: Attributes) -> Mutated:
        """Return the object as the mutating webhooks want it. Raises their refusal; never by rules that are stale."""
        book = await self._rule_cache()
        if not book.webhooks:
            return Mutated(write.new, NOTHING)
        return await self._with_newest_webhooks(book, partial(self._mutate, write))

    async def _mutate(self, write: Attributes) -> Mutated:
        found = await self.relevant_webhooks(write.kind, write.operation, write.subresource)
        if not found.mutating:
            return Mutated(write.new, NOTHING)
        mirror = (await self._rule_cache()).mirror
        return await self.webhooks.mutate(found.mutating, mirror, write, REQUESTER.get())

    async def _with_newest_webhooks(self, book: RuleCache, call: Callable[[], Awaitable[T]]) -> T:
        """The result of a call. If it is refused, and the webhooks were others by then, it is made once more."""
        before = book.webhooks
        try:
            return await call()
        except ApiError as error:
            if error.code == TOO_MANY:
                raise
            await self.catch_up()
            if (await self._rule_cache()).webhooks is before:
                raise
        return await call()

    async def review(self, write: Attributes) -> Review:
        """Return what policies and validating webhooks say of a client's write. Raises their refusal; never by stale rules."""
        book = await self._rule_cache()
        policies = await self._review_by_policies(book, write) if book.policies else NOTHING
        if not book.webhooks:
            return policies
        return merge((policies, await self._with_newest_webhooks(book, partial(self._validate, write))))

    async def _validate(self, write: Attributes) -> Review:
        found = await self.relevant_webhooks(write.kind, write.operation, write.subresource)
        if not found.validating:
            return NOTHING
        mirror = (await self._rule_cache()).mirror
        return await self.webhooks.validate(found.validating, mirror, write, REQUESTER.get())

    async def _review_by_policies(self, book: RuleCache, write: Attributes) -> Review:
        try:
            return await self._review(book, write)
        except ApiError as error:
            if error.code == TOO_MANY:
                raise
        await self.catch_up()
        return await self._review(await self._rule_cache(), write)

    async def _review(self, book: RuleCache, write: Attributes) -> Review:
        return await self.reviewer.review(book.policies, book.mirror, write, REQUESTER.get())

    def lock(self, namespace: str, rules: Rules) -> AbstractAsyncContextManager[object]:
        """Hold it from judging an object until that is stored."""
        return self.locks.of(namespace) if rules.quotas else nullcontext()

    async def catch_up(self, revision: int | None = None) -> None:
        """Until the rules are as new as the store, or as this revision. No refusal may come from rules that are stale."""
        await self._policy.catch_up(revision)
