"""Reclaim: which borrowers go so that quota returns to its owners: no more than needed, least important and youngest first.

Disruption budgets are weighed: those whom theirs does not let go, go only if the others are not enough.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.scheduler.eviction_units import Budgets, Unit, Units, priority_of
from app.scheduler.fair_sharing import FairSharing
from app.scheduler.node_info import Placed
from app.scheduler.preemption import total

if TYPE_CHECKING:
    from app.scheduler.quota_admission import QuotaSnapshot


class _Cohort:
    """What is missing in a cohort, and what of it is on its way back."""

    def __init__(self, name: str, fair: FairSharing, snapshot: "QuotaSnapshot", going: Collection[str]) -> None:
        self._fair = fair
        self._of = {namespace: terms for namespace, terms in fair.terms.items() if terms.cohort == name}
        self.missing: Amounts = {}
        for namespace, terms in self._of.items():
            if terms.reclaims:
                for resource, count in snapshot.claims(namespace).items():
                    self.missing[resource] = self.missing.get(resource, 0) + count
        for resource in self.missing:
            self.missing[resource] -= snapshot.idle(name, resource)
        self._used = {namespace: dict(fair.ledger.of(namespace)) for namespace in self._of}
        self.there: list[Placed] = []
        self.has_news = False
        if self.is_short:
            for each in fair.cluster.placed.values():
                if each.pod.metadata.namespace in self._of:
                    self._note(each, going)

    def _note(self, placed: Placed, going: Collection[str]) -> None:
        meta = placed.pod.metadata
        if meta.deletion_timestamp is not None or meta.uid in going:
            self.take(placed)
        elif placed.pod.spec.node_name:
            self.there.append(placed)
        else:  # it was placed in this round
            self.has_news = True

    @property
    def is_short(self) -> bool:
        return any(count > 0 for count in self.missing.values())

    def take_all(self, unit: Unit, sign: int = 1) -> None:
        for each in unit.here:
            self.take(each, sign)

    def take(self, placed: Placed, sign: int = 1) -> None:
        """It gives back what it uses."""
        namespace = placed.pod.metadata.namespace
        terms, used = self._of[namespace], self._used[namespace]
        for resource, count in placed.info.needs.items():
            if resource in terms.nominal:
                used[resource] = used.get(resource, 0) - sign * count
                if resource in self.missing:
                    self.missing[resource] -= sign * count

    def helps(self, unit: Unit) -> bool:
        """It uses what is borrowed, and missing."""
        namespace, needs = unit.pods[0].metadata.namespace, total(unit.here)
        terms, used = self._of[namespace], self._used[namespace]
        return any(
            needs.get(resource) and resource in terms.nominal and used.get(resource, 0) > terms.nominal[resource]
            for resource, count in self.missing.items()
            if count > 0
        )

    def victims(self, units: Units, budgets: Budgets) -> Iterator[Pod]:
        taken: list[Unit] = []
        spared = self._take_from(units.of(sorted(self.there, key=_least)), taken, budgets.copy())
        self._take_from(spared, taken)
        for each in reversed(taken):  # the more important stay if the others are enough
            self.take_all(each, -1)
            if self.is_short:
                self.take_all(each)
                yield from each.pods

    def _take_from(self, units: Iterable[Unit], taken: list[Unit], allowed: Budgets | None = None) -> list[Unit]:
        """As many as are needed, if their budgets allow it; the others come back."""
        spared: list[Unit] = []
        for each in units:
            if not self.is_short:
                break
            if not self.helps(each):
                continue
            if allowed is not None and not allowed.allow(each.pods):
                spared.append(each)
                continue
            if allowed is not None:
                allowed.take(each.pods)
            self.take_all(each)
            taken.append(each)
        return spared


def victims(
    fair: FairSharing, snapshot: "QuotaSnapshot", going: Collection[str], units: Units, budgets: Budgets
) -> tuple[dict[str, tuple[Pod, ...]], bool]:
    """By the cohort that they give back to; and whether there may be more, of those who were placed in this round.

    `going`: UIDs of those who go although it does not show.
    """
    found: dict[str, tuple[Pod, ...]] = {}
    is_open = False
    for name in _cohorts(fair):
        cohort = _Cohort(name, fair, snapshot, going)
        if pods := tuple(cohort.victims(units, budgets)):
            found[name] = pods
        is_open |= cohort.is_short and cohort.has_news
    return found, is_open


def _cohorts(fair: FairSharing) -> Iterable[str]:
    """Those with somebody in line who takes back what is theirs."""
    waiting = {terms.cohort for namespace, terms in fair.terms.items() if terms.reclaims and fair.line(namespace)}
    return sorted(waiting)


def _least(placed: Placed) -> tuple[int, float, str]:
    pod = placed.pod
    born = pod.status.start_time or pod.metadata.creation_timestamp
    return priority_of(pod), -born.timestamp() if born is not None else -math.inf, pod.metadata.uid
