"""Deployment controller: reconciles a Deployment when it or one of its ReplicaSets changes.

The decision is `app.plans.deployments.deployment`. ReplicaSets of others are not adopted.
"""

from collections.abc import Awaitable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from functools import partial
from typing import cast

from msgspec.structs import replace

from app.controllers.apps.replica_sets import is_terminating, owners
from app.controllers.batch.creation_review import CreationReview
from app.controllers.planned_write import PlannedWrite
from app.kinds.apps.deployment import KIND as DEPLOYMENTS
from app.kinds.apps.deployment import Deployment
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.apps.replicaset import ReplicaSet
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.plans.admission.pod_security.namespace_policy import USUAL_CONFIGURATION, PodSecurityConfiguration
from app.plans.deployments import deployment as deployment_plan
from app.registry.admission.admission import Admission, NamespaceLocks, RuleCache
from app.store import Key, Mirror


class DeploymentController:
    component = "deployment-controller"
    kinds = frozenset({DEPLOYMENTS.resource, REPLICA_SETS.resource})

    def __init__(
        self,
        mirror: Mirror,
        locks: NamespaceLocks,
        pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION,
        admission: Admission | None = None,
    ) -> None:
        self._mirror, self._locks = mirror, locks
        self._rules = RuleCache(mirror, pod_security)
        self._review = CreationReview(self._rules, admission, self.component)

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == DEPLOYMENTS.resource:
            return [key]
        if key.kind != REPLICA_SETS.resource:
            return ()
        return owners(DEPLOYMENTS.name, DEPLOYMENTS.resource, before, now)

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._locks.of(key.namespace) if self._rules.has_quotas(key.namespace) else nullcontext()

    def enqueue_all(self) -> Iterable[Key]:
        return [
            Key(DEPLOYMENTS.resource, each.metadata.namespace, each.metadata.name)
            for each in self._mirror.all(DEPLOYMENTS.resource)
        ]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite] | Awaitable[Sequence[PlannedWrite]]:
        return self._review.plan(partial(self._plan, key, now), now)

    def _plan(
        self, key: Key, now: datetime, refusal: ApiError | None, *, with_quotas: bool = True
    ) -> Sequence[PlannedWrite]:
        """A ReplicaSet is charged to quotas in any case: webhooks change none of its costs."""
        del with_quotas
        found = cast("Deployment | None", self._mirror.get(key))
        if found is None or is_terminating(self._mirror, key.namespace):
            return []
        owned = [each for each in self._mirror.owned(found.metadata.uid) if isinstance(each, ReplicaSet)]
        rules = replace(self._rules.rules(key.namespace), refusal=refusal)
        plan = deployment_plan.plan(found, owned, partial(self._is_taken, key.namespace), now, rules)
        return [PlannedWrite(plan, [found])]

    def _is_taken(self, namespace: str, name: str) -> bool:
        return self._mirror.get(Key(REPLICA_SETS.resource, namespace, name)) is not None
