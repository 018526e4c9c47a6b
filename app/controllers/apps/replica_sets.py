"""ReplicaSet controller: reconciles a ReplicaSet when it or one of its pods changes.

The decision is `app.plans.deployments.replica_set`. A ReplicaSet whose pods were refused is also reconciled when the rules of its
namespace change, or when a quota has room again. Pods of others are not adopted.
"""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import cast

from msgspec.structs import replace

from app.controllers.batch.creation_review import CreationReview
from app.controllers.batch.refused_objects import Refused
from app.controllers.planned_write import PlannedWrite
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.apps.replicaset import ReplicaSet
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.machinery.meta.owner_references import controller_of
from app.plans.admission.pod_security.namespace_policy import USUAL_CONFIGURATION, PodSecurityConfiguration
from app.plans.deployments import replica_set as replica_set_plan
from app.plans.plan import Names
from app.registry.admission.admission import RULES, Admission, NamespaceLocks, RuleCache
from app.registry.codec import NAMESPACES
from app.registry.verbs.versions import random_name
from app.store import Key, Mirror


class ReplicaSetController:
    component = "replicaset-controller"
    kinds = RULES | {REPLICA_SETS.resource, PODS.resource}

    def __init__(
        self,
        mirror: Mirror,
        locks: NamespaceLocks,
        pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION,
        admission: Admission | None = None,
        random_name: Names = random_name,
    ) -> None:
        self._mirror, self._locks, self._random_name = mirror, locks, random_name
        self._rules = RuleCache(mirror, pod_security)
        self._review = CreationReview(self._rules, admission, self.component)
        self._refused = Refused()  # ReplicaSets whose pods were refused

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == REPLICA_SETS.resource:
            self._refused.note(key, now)
            return [key]
        if key.kind in RULES:
            return self._refused.on_event(key, before, now)
        if key.kind != PODS.resource:
            return ()
        return owners(REPLICA_SETS.name, REPLICA_SETS.resource, before, now)

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._locks.of(key.namespace) if self._rules.has_quotas(key.namespace) else nullcontext()

    def enqueue_all(self) -> Iterable[Key]:
        found = []
        for each in self._mirror.all(REPLICA_SETS.resource):
            key = Key(REPLICA_SETS.resource, each.metadata.namespace, each.metadata.name)
            self._refused.note(key, each)
            found.append(key)
        return found

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite] | Awaitable[Sequence[PlannedWrite]]:
        return self._review.plan(partial(self._plan, key, now), now)

    def _plan(
        self, key: Key, now: datetime, refusal: ApiError | None, *, with_quotas: bool = True
    ) -> Sequence[PlannedWrite]:
        found = cast("ReplicaSet | None", self._mirror.get(key))
        if found is None or is_terminating(self._mirror, key.namespace):
            return []
        rules = replace(self._rules.rules(key.namespace), refusal=refusal)
        rules = rules if with_quotas else replace(rules, quotas=())
        pods = [each for each in self._mirror.owned(found.metadata.uid) if isinstance(each, Pod)]
        plan = replica_set_plan.plan(found, pods, self._unused_names(key.namespace), now, rules)
        return [PlannedWrite(plan, [found])]

    def _unused_names(self, namespace: str) -> Names:
        given: set[str] = set()

        def unused_name(prefix: str) -> str:
            while (name := self._random_name(prefix)) in given or self._mirror.get(Key(PODS.resource, namespace, name)):
                pass
            given.add(name)
            return name

        return unused_name


def owners(kind: str, resource: str, before: Object | None, now: Object | None) -> Collection[Key]:
    """The objects of a kind that control an object, or did before it changed. Mostly none: pods of Jobs come by, too."""
    found: list[Key] = []
    for each in (before, now):
        by = controller_of(each) if each is not None else None
        if each is not None and by is not None and by.kind == kind:
            found.append(Key(resource, each.metadata.namespace, by.name))
    return found


def is_terminating(mirror: Mirror, namespace: str) -> bool:
    """Return whether a namespace is being deleted: nothing can be created there."""
    found = mirror.get(Key(NAMESPACES, "", namespace))
    return found is not None and found.metadata.deletion_timestamp is not None
