"""Reclaim: which borrowers are evicted so that quota returns to its owners. As Kueue's `reclaimWithinCohort`.

No more victims than needed, the least important and the youngest first. Disruption budgets are weighed: a pod whose eviction
violates one is evicted only if the others are not enough. Called by `quota_admission`.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.scheduler.eviction_units import DisruptionBudgets, EvictionUnit, EvictionUnits, priority_of
from app.scheduler.fair_sharing import FairSharing
from app.scheduler.node_info import PlacedPod
from app.scheduler.preemption import sum_requests

if TYPE_CHECKING:
    from app.scheduler.quota_admission import QuotaSnapshot


class _Cohort:
    """What the queues of a cohort claim beyond its unused quota, after the pods that are terminating."""

    def __init__(self, name: str, fair: FairSharing, snapshot: "QuotaSnapshot", terminating: Collection[str]) -> None:
        self._configs = {namespace: config for namespace, config in fair.configs.items() if config.cohort == name}
        self._missing: Amounts = {}
        for namespace, config in self._configs.items():
            if config.reclaims:
                for resource, count in snapshot.claims(namespace).items():
                    self._missing[resource] = self._missing.get(resource, 0) + count
        for resource in self._missing:
            self._missing[resource] -= snapshot.unused(name, resource)
        self._used = {namespace: dict(fair.usage.get(namespace)) for namespace in self._configs}
        self._evictable: list[PlacedPod] = []
        self.has_assumed_pods = False  # placed in this round
        if self.is_short:
            for each in fair.cluster.pods.values():
                if each.pod.metadata.namespace in self._configs:
                    self._add_pod(each, terminating)

    def _add_pod(self, placed: PlacedPod, terminating: Collection[str]) -> None:
        meta = placed.pod.metadata
        if meta.deletion_timestamp is not None or meta.uid in terminating:
            self._return_quota(placed)
        elif placed.pod.spec.node_name:
            self._evictable.append(placed)
        else:
            self.has_assumed_pods = True

    @property
    def is_short(self) -> bool:
        return any(count > 0 for count in self._missing.values())

    def _return_quota(self, placed: PlacedPod, sign: int = 1) -> None:
        """Account for a pod's end; with sign -1, undo that."""
        namespace = placed.pod.metadata.namespace
        config, used = self._configs[namespace], self._used[namespace]
        for resource, count in placed.info.requests.items():
            if resource in config.nominal:
                used[resource] = used.get(resource, 0) - sign * count
                if resource in self._missing:
                    self._missing[resource] -= sign * count

    def _return_quota_of(self, unit: EvictionUnit, sign: int = 1) -> None:
        for each in unit.given:
            self._return_quota(each, sign)

    def _borrows_missing(self, unit: EvictionUnit) -> bool:
        """The unit uses a missing resource, of which its namespace borrows."""
        namespace, requests = unit.pods[0].metadata.namespace, sum_requests(unit.given)
        config, used = self._configs[namespace], self._used[namespace]
        return any(
            requests.get(resource) and resource in config.nominal and used.get(resource, 0) > config.nominal[resource]
            for resource, count in self._missing.items()
            if count > 0
        )

    def find_victims(self, units: EvictionUnits, budgets: DisruptionBudgets) -> Iterator[Pod]:
        chosen: list[EvictionUnit] = []
        violating = self._choose(units.make(sorted(self._evictable, key=_eviction_order)), chosen, budgets.copy())
        self._choose(violating, chosen)
        for each in reversed(chosen):  # reprieve the more important if the others are enough
            self._return_quota_of(each, -1)
            if self.is_short:
                self._return_quota_of(each)
                yield from each.pods

    def _choose(
        self, units: Iterable[EvictionUnit], chosen: list[EvictionUnit], budgets: DisruptionBudgets | None = None
    ) -> list[EvictionUnit]:
        """Choose as many units as are needed and the budgets allow. Returns those whose eviction would violate a budget."""
        violating: list[EvictionUnit] = []
        for each in units:
            if not self.is_short:
                break
            if not self._borrows_missing(each):
                continue
            if budgets is not None and not budgets.allow(each.pods):
                violating.append(each)
                continue
            if budgets is not None:
                budgets.consume(each.pods)
            self._return_quota_of(each)
            chosen.append(each)
        return violating


def find_reclaim_victims(
    fair: FairSharing,
    snapshot: "QuotaSnapshot",
    terminating: Collection[str],
    units: EvictionUnits,
    budgets: DisruptionBudgets,
) -> tuple[dict[str, tuple[Pod, ...]], bool]:
    """Victims by cohort; and whether quota is still missing that pods placed in this round have, which cannot be evicted yet.

    `terminating`: UIDs of victims of this round.
    """
    found: dict[str, tuple[Pod, ...]] = {}
    awaits_commit = False
    for name in _find_cohorts(fair):
        cohort = _Cohort(name, fair, snapshot, terminating)
        if pods := tuple(cohort.find_victims(units, budgets)):
            found[name] = pods
        awaits_commit |= cohort.is_short and cohort.has_assumed_pods
    return found, awaits_commit


def _find_cohorts(fair: FairSharing) -> Iterable[str]:
    """Cohorts with pending requests of a queue that reclaims."""
    cohorts = {
        config.cohort for namespace, config in fair.configs.items() if config.reclaims and fair.pending_in(namespace)
    }
    return sorted(cohorts)


def _eviction_order(placed: PlacedPod) -> tuple[int, float, str]:
    pod = placed.pod
    began = pod.status.start_time or pod.metadata.creation_timestamp
    return priority_of(pod), -began.timestamp() if began is not None else -math.inf, pod.metadata.uid
