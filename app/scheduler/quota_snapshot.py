"""Quotas in the middle of a round: what was admitted counts as used before it is placed. For `quota_admission`."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.scheduler.fair_sharing import Asking, FairSharing
from app.scheduler.queue_config import QueueConfig, limited


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why there is no quota now; `is_for_good`: there never will be, as the queues are."""

    short: frozenset[str]
    why: str
    is_for_good: bool = False


class QuotaSnapshot:
    def __init__(self, fair: FairSharing) -> None:
        self._fair = fair
        self._passed: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._idle: dict[tuple[str, str], int] = {}
        self._claims: dict[str, Mapping[str, int]] = {}

    def shortage(self, asking: Asking) -> Shortage | None:
        """Nothing if it may pass."""
        terms = self._fair.terms.get(asking.namespace)
        if terms is None or not terms.nominal:
            return None
        names = list(limited(terms, asking.needs))
        for name in names:
            most = min(terms.most(name), self._fair.pool(terms.cohort, name))
            if asking.needs[name] > most:
                return Shortage(frozenset({name}), _never(terms, name, asking.needs[name], int(most)), is_for_good=True)
        short = [name for name in names if self._is_short(asking, terms, name)] or self._ahead(asking)
        return Shortage(frozenset(short), self._why(asking, terms, short[0])) if short else None

    def _is_short(self, asking: Asking, terms: QueueConfig, name: str) -> bool:
        after = self.used(asking.namespace, name) + asking.needs[name]
        if after > terms.most(name):
            return True
        left = self.idle(terms.cohort, name)
        if after > terms.nominal[name]:  # it would borrow: not what somebody waits for who owns it
            left -= self.claimed(terms.cohort, name, but=asking.namespace)
        return asking.needs[name] > left

    def _ahead(self, asking: Asking) -> list[str]:
        """What somebody waits for who comes before it in the line of the namespace."""
        for each in self._fair.line(asking.namespace):
            if each.order >= asking.order:
                break
            if each.asking.key != asking.key and (both := sorted(each.short & asking.needs.keys())):
                return both
        return []

    def _why(self, asking: Asking, terms: QueueConfig, name: str) -> str:
        used, quota = self.used(asking.namespace, name), terms.nominal[name]
        shown = f"{terms.shown(name, used)} of {terms.shown(name, quota)} used"
        after = used + asking.needs[name]
        if after <= quota and asking.needs[name] > self.idle(terms.cohort, name):
            shown += ", the rest is lent"
        elif terms.limit.get(name) and after > terms.most(name):
            shown += f", of which no more than {terms.shown(name, terms.limit[name])} may be borrowed"
        return f"queue {terms.queue.metadata.name}: over its quota of {name} ({shown})"

    def passes(self, asking: Asking) -> None:
        passed, terms = self._passed[asking.namespace], self._fair.terms.get(asking.namespace)
        for name, count in asking.needs.items():
            passed[name] += count
            key = (terms.cohort, name) if terms is not None else None
            if terms is not None and name in terms.nominal and key in self._idle:
                self._idle[terms.cohort, name] -= count
        self.forget(asking.namespace)

    def forget(self, namespace: str) -> None:
        """Its line has changed, or what it uses."""
        self._claims.pop(namespace, None)

    def used(self, namespace: str, name: str) -> int:
        return self._fair.ledger.of(namespace).get(name, 0) + self._passed[namespace][name]

    def idle(self, cohort: str, name: str) -> int:
        found = self._idle.get((cohort, name))
        if found is None:
            members = self._fair.members(cohort, name)
            found = self._idle[cohort, name] = self._fair.idle(cohort, name) - sum(
                self._passed[namespace][name] for namespace, _ in members
            )
        return found

    def claimed(self, cohort: str, name: str, but: str = "") -> int:
        """What those in line may have of their own quotas."""
        members = self._fair.members(cohort, name)
        return sum(self.claims(namespace).get(name, 0) for namespace, _ in members if namespace != but)

    def claims(self, namespace: str) -> Mapping[str, int]:
        """By resource, what the first in line of a namespace need and its own quota allows."""
        found = self._claims.get(namespace)
        if found is None:
            found = self._claims[namespace] = dict(self._claim(namespace, self._fair.terms[namespace]))
        return found

    def _claim(self, namespace: str, terms: QueueConfig) -> Iterator[tuple[str, int]]:
        total: defaultdict[str, int] = defaultdict(int)
        left = {name: quota - self.used(namespace, name) for name, quota in terms.nominal.items()}
        for each in self._fair.line(namespace):
            needs = each.asking.needs
            names = list(limited(terms, needs))
            if any(needs[name] > left[name] for name in names):
                break
            for name in names:
                left[name] -= needs[name]
                total[name] += needs[name]
        yield from total.items()


def _never(terms: QueueConfig, name: str, need: int, most: int) -> str:
    many = f"{terms.shown(name, need)} of {name}, of which it may never have more than {terms.shown(name, most)}"
    return f"queue {terms.queue.metadata.name}: asks for {many}"
