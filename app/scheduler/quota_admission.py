"""Quota admission: which pods pass the quotas of their namespaces before a node is looked for.

A `QuotaAdmission` serves one round, in the place of `schedule`: it hands pods that have quota on to `Whole`, and refuses the
others, which then wait in the queue. Without quotas it only hands on. Quota reserved for a pod that then fits no node passes to
the next pod in the queue.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.kinds.pod.pod import Pod
from app.machinery.owner_references import controller_of
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import Budgets, Units
from app.scheduler.fair_sharing import Asking, FairSharing, QueueConfig, limited
from app.scheduler.filters import Refusal
from app.scheduler.gang_scheduling import Group, Groups, Whole, stretches
from app.scheduler.placement import Outcome, Pending
from app.scheduler.pod_info import PodInfo, order_of
from app.scheduler.reclaim import victims


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


@dataclass(frozen=True, slots=True, eq=False)
class OverQuota(Refusal):
    """No node was asked."""

    said: str = ""
    goes: tuple[Pod, ...] = ()

    @property
    def victims(self) -> tuple[Pod, ...] | None:
        return self.goes

    def text(self, preemption: str = "") -> str:  # noqa: ARG002 - of nodes there is nothing to say
        return self.said


@dataclass(frozen=True, slots=True, eq=False)
class _Party:
    """A pod, or the pods of a gang, at the gate."""

    asking: Asking
    pods: Sequence[Pending]
    group: Group | None


class QuotaAdmission:
    def __init__(self, fair: FairSharing, groups: Groups, whole: Whole, budgets: Budgets | None = None) -> None:
        """`budgets`: of whoever may be made to go so that quota is returned; whoever learns of it notes that there."""
        self._fair = fair
        self._budgets = budgets or Budgets()
        self._groups = groups
        self._whole = whole
        self._going: set[str] = set()  # who was chosen to go in this round
        self.is_open = False  # what is to be taken back was only given in this round: look again when that is committed

    def __call__(self, pending: Iterable[Pending], cluster: Cluster) -> Outcome:
        if not self._fair.is_active:
            return self._whole(pending, cluster)
        bound: list[tuple[Pod, str]] = []
        unbound: list[tuple[Pod, Refusal]] = []
        left, full = list(self._parties(pending)), _Full()
        while left:
            snapshot = QuotaSnapshot(self._fair)
            passed, waiting = self._sorted_out(left, snapshot, full, unbound)
            outcome = self._whole([each for party in passed for each in party.pods], cluster)
            bound += outcome.bound
            unbound += outcome.unbound
            if not waiting or not outcome.unbound:
                unbound += self._refused(waiting)
                break
            full.learn(passed, outcome)
            left = [party for party, _ in waiting]
        return Outcome(bound, unbound)

    def may(self, pod: Pod, info: PodInfo) -> Refusal | None:
        """Why one pod has no quota."""
        if not self._fair.is_active:
            return None
        waiting = self._sorted_out([_alone(pod, info)], QuotaSnapshot(self._fair), _Full(), [])[1]
        return next((refusal for _, refusal in self._refused(waiting)), None)

    def _parties(self, pending: Iterable[Pending]) -> Iterable[_Party]:
        for group, some in stretches(pending, self._groups):
            if group is None:
                yield from (_alone(pod, info) for pod, info in some)
            else:
                yield _together(group, some)

    def _sorted_out(
        self, parties: Iterable[_Party], snapshot: QuotaSnapshot, full: "_Full", unbound: list[tuple[Pod, Refusal]]
    ) -> tuple[list[_Party], list[tuple[_Party, Shortage]]]:
        """Who passes, and who waits; of whom it is known that no node takes them, that is said."""
        passed, waiting = [], []
        for party in parties:
            if known := full.of(party):
                self._fair.leave(party.asking)
                unbound.append((party.pods[0][0], known))
                continue
            shortage = None if self._is_tried(party) else snapshot.shortage(party.asking)
            if shortage is None:
                self._fair.leave(party.asking)
                snapshot.passes(party.asking)
                passed.append(party)
                continue
            if shortage.is_for_good:
                self._fair.leave(party.asking)
            else:
                self._fair.join(party.asking, shortage.short, shortage.why)
            snapshot.forget(party.asking.namespace)
            waiting.append((party, shortage))
        return passed, waiting

    def _is_tried(self, party: _Party) -> bool:
        return party.group is not None and self._whole.knows(party.group)

    def _refused(self, waiting: Sequence[tuple[_Party, Shortage]]) -> list[tuple[Pod, Refusal]]:
        """The first of a cohort to whom quota is given back has those go who have borrowed it."""
        if not waiting:
            return []
        units = Units(self._fair.cluster, self._groups)
        going, is_open = victims(self._fair, QuotaSnapshot(self._fair), self._going, units, self._budgets)
        self.is_open |= is_open
        refused: list[tuple[Pod, Refusal]] = []
        for party, shortage in waiting:
            terms = self._fair.terms[party.asking.namespace]
            goes = going.pop(terms.cohort, ()) if terms.reclaims and self._fair.waits(party.asking.uids[0]) else ()
            self._going.update(each.metadata.uid for each in goes)
            plain = OverQuota({}, frozenset(), shortage.why)
            if party.group is not None:
                self._whole.refuse(party.group, plain)
            first = OverQuota({}, frozenset(), shortage.why, goes) if goes else plain
            refused += [(pod, plain if number else first) for number, (pod, _) in enumerate(party.pods)]
        return refused


class _Full:
    """Classes that no node takes: they need not be tried again in the same round."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, bytes], Refusal] = {}

    def of(self, party: _Party) -> Refusal | None:
        return self._of.get(_class_of(party)) if self._of and party.group is None else None

    def learn(self, passed: Iterable[_Party], outcome: Outcome) -> None:
        refused = {pod.metadata.uid: refusal for pod, refusal in outcome.unbound}
        for party in passed:
            refusal = refused.get(party.asking.uids[0])
            if party.group is None and refusal is not None:
                self._of[_class_of(party)] = refusal


def _class_of(party: _Party) -> tuple[str, bytes]:
    return party.asking.namespace, party.pods[0][1].key


def _alone(pod: Pod, info: PodInfo) -> _Party:
    meta = pod.metadata
    asking = Asking(meta.uid, meta.namespace, info.needs, order_of(pod, info), _who(pod), (meta.uid,))
    return _Party(asking, [(pod, info)], None)


def _together(group: Group, asked: Sequence[Pending]) -> _Party:
    """All of a group that wait count, also those whose turn it is not: they are placed together."""
    needs: dict[str, int] = {}
    pods = [*group.waiting.values()] or asked
    for _, info in pods:
        for name, count in info.needs.items():
            needs[name] = needs.get(name, 0) + count
    first = min(pods, key=lambda each: order_of(*each))
    uids = tuple(pod.metadata.uid for pod, _ in pods)
    asking = Asking(group.key, group.key[0], needs, order_of(*first), _who(first[0]), uids)
    return _Party(asking, asked, group)


def _who(pod: Pod) -> str:
    owner = controller_of(pod)
    return f"{owner.kind.lower()} {owner.name}" if owner is not None else f"pod {pod.metadata.name}"
