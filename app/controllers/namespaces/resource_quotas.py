"""The quota controller: releases what is no longer used, and puts new limits in force.

A quota is counted anew when its spec changes, when what it counts comes, ends or goes, and every five minutes. Creations
are charged where they happen; should one have escaped, because it happened while the quota was being made, it is found here.
Pods are kept as numbers of pods that cost the same, so that counting thousands of a Job's pods costs as much as one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.core.service import KIND as SERVICES
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.machinery.base import Object
from app.plans.admission import resource_quota
from app.plans.admission.resource_quota import Cost
from app.plans.plan import Plan, SetStatus, earliest
from app.registry.admission.admission import NamespaceLocks
from app.store import Key, Mirror, Store

RESYNC = timedelta(minutes=5)


class ResourceQuotaController:
    component = "resourcequota-controller"

    def __init__(self, mirror: Mirror, store: Store, locks: NamespaceLocks) -> None:
        self._mirror = mirror
        self._store = store
        self._locks = locks
        self._quotas: dict[str, dict[Key, ResourceQuota]] = {}  # by namespace
        self._costs: dict[str, dict[Key, Cost]] = {}  # of the pods of namespaces with quotas
        self._sums: defaultdict[str, Counter[Cost]] = defaultdict(Counter)
        self._started = False  # until then the mirror is being filled, and `enqueue_all` will read it whole

    def lock(self, key: Key) -> AbstractAsyncContextManager[object]:
        return self._locks.of(key.namespace)

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if not self._started:
            return []
        if key.kind == QUOTAS.resource:
            return self._quota_changed(key, cast("ResourceQuota | None", before), cast("ResourceQuota | None", now))
        if key.namespace not in self._quotas:
            return []
        if key.kind == PODS.resource:
            changed = self._pod_changed(key, cast("Pod | None", before), cast("Pod | None", now))
            return self._quotas_of(key.namespace, "pods") if changed else []
        is_recounted = before is None or now is None or _differs_in_usage(before, now)
        return self._quotas_of(key.namespace, key.kind) if is_recounted else []

    def _quotas_of(self, namespace: str, resource: str) -> list[Key]:
        """The quotas that are about a resource."""
        found = self._quotas.get(namespace, {})
        if resource == "pods":
            return [key for key, quota in found.items() if any(map(resource_quota.is_pod_resource, quota.spec.hard))]
        return [
            key
            for key, quota in found.items()
            if resource in resource_quota.counted_resources(quota) or resource_quota.measures(quota, resource)
        ]

    def _quota_changed(self, key: Key, before: ResourceQuota | None, now: ResourceQuota | None) -> list[Key]:
        namespace = key.namespace
        others = self._quotas_of(namespace, QUOTAS.resource) if before is None or now is None else []
        if now is None:
            known = self._quotas.get(namespace, {})
            known.pop(key, None)
            if not known:
                self._forget(namespace)
            return [other for other in others if other != key]
        if namespace not in self._quotas:
            self._quotas[namespace] = {}
            self._count_pods({namespace})
        self._quotas[namespace][key] = now
        return [key, *others] if before is None or before.spec != now.spec else others

    def _forget(self, namespace: str) -> None:
        for table in (self._quotas, self._costs, self._sums):
            table.pop(namespace, None)

    def _count_pods(self, namespaces: Iterable[str]) -> None:
        """What the pods of these namespaces cost: nobody kept account of it while they had no quotas."""
        for pod in self._mirror.all(PODS.resource):
            if pod.metadata.namespace in namespaces:
                key = Key(PODS.resource, pod.metadata.namespace, pod.metadata.name)
                self._pod_changed(key, None, cast("Pod", pod))

    def _pod_changed(self, key: Key, before: Pod | None, now: Pod | None) -> bool:
        """Keep account of it; tell whether it costs something else than before."""
        costs, sums = self._costs.setdefault(key.namespace, {}), self._sums[key.namespace]
        known = costs.get(key)
        if known is not None and before is not None and now is not None and _costs_the_same(before, now):
            return False
        cost = resource_quota.cost_of_pod(now) if now is not None else None
        if cost == known:
            return False
        if known is not None:
            del costs[key]
            sums[known] -= 1
            if not sums[known]:
                del sums[known]
        if cost is not None:
            costs[key] = cost
            sums[cost] += 1
        return True

    def enqueue_all(self) -> Iterable[Key]:
        self._started = True
        for namespace in list(self._quotas):
            self._forget(namespace)
        for each in self._mirror.all(QUOTAS.resource):
            key = Key(QUOTAS.resource, each.metadata.namespace, each.metadata.name)
            self._quotas.setdefault(key.namespace, {})[key] = cast("ResourceQuota", each)
        self._count_pods(self._quotas.keys())
        return [key for known in self._quotas.values() for key in known]

    def _measured(self, quota: ResourceQuota) -> Iterable[Object]:
        """Objects that count by more than their number, if the quota is about that."""
        for resource in (CLAIMS.resource, SERVICES.resource):
            if resource_quota.measures(quota, resource):
                yield from (
                    each for each in self._mirror.all(resource) if each.metadata.namespace == quota.metadata.namespace
                )

    async def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        quota = self._quotas.get(key.namespace, {}).get(key)
        if quota is None:
            return []
        # Pods and quota are of the same moment. The other objects are counted later: had one been charged meanwhile, the
        # quota would be another one, and what is made of this one would be refused.
        pods = dict(self._sums[key.namespace])
        resources = sorted(resource_quota.counted_resources(quota))
        measured = list(self._measured(quota))
        counts = await self._store.count(resources, key.namespace) if resources else {}
        after = resource_quota.recount(quota, pods, counts, now, measured)
        again_at = earliest((now + RESYNC, _after(resource_quota.next_expiry(pods, now))))
        if after is quota:
            return [PlannedWrite(Plan(again_at=again_at))]
        return [PlannedWrite(Plan((SetStatus(after),), again_at=again_at), [quota])]


def _differs_in_usage(before: Object, now: Object) -> bool:
    return resource_quota.measured_usage(before) != resource_quota.measured_usage(now)


def _costs_the_same(before: Pod, now: Pod) -> bool:
    return (
        is_terminal(before) == is_terminal(now)
        and before.metadata.deletion_timestamp == now.metadata.deletion_timestamp
        and before.metadata.deletion_grace_period_seconds == now.metadata.deletion_grace_period_seconds
        and before.spec == now.spec
    )


def _after(moment: datetime | None) -> datetime | None:
    return moment + timedelta(seconds=1) if moment else None
