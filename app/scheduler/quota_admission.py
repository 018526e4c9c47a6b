"""Quota admission: which pods pass the quotas of their namespaces before a node is looked for.

A `QuotaAdmission` serves one round, in the place of `schedule`: it hands pods that have quota on to `Whole`, and refuses the
others, which then wait in the queue. Without quotas it only hands on. Quota reserved for a pod that then fits no node passes to
the next pod in the queue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.kinds.pod.pod import Pod
from app.machinery.owner_references import controller_of
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import Units
from app.scheduler.fair_sharing import Asking, FairSharing
from app.scheduler.filters import Refusal
from app.scheduler.gangs import Group, Groups, Whole, stretches
from app.scheduler.pod_info import PodInfo, order_of
from app.scheduler.preemption_context import Budgets
from app.scheduler.quota_snapshot import QuotaSnapshot, Shortage
from app.scheduler.reclaim import victims
from app.scheduler.scheduling_round import Outcome, Pending


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
