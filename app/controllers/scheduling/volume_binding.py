"""Volume binding of one round: what the unbound claims of the pods that it placed get. kube-scheduler's Reserve and PreBind.

A pod and its claims are written together. In one round, a claim is bound for one pod, and a volume is given to one claim: other
pods that need it are tried again in the next round, when the binding is known. A gang whose pods share an unbound claim, but were
placed on several nodes, has that claim bound first, and follows it in the next round.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from app.kinds.pod.pod import Pod
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.plans.plan import Action, Require
from app.plans.volumes.pod_volumes import IN_USE, NO_VOLUMES, ON_ANOTHER_NODE, PodVolumes, bind_claims
from app.plans.volumes.protection import claim_names
from app.scheduler.cache import Cluster
from app.scheduler.gang_scheduling import GangAttempt

Pair = tuple[Pod, str]  # and its node


@dataclass
class Reservations:
    """actions:   that bind claims, by the UID of the pod that they are bound for.
    postponed: UIDs of pods that are tried again in the next round.
    rejected:  why pods of gangs could not have their volumes at the same time, by UID.
    alone:     actions that bind claims without a pod.
    """

    actions: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    postponed: set[str] = field(default_factory=set)
    rejected: dict[str, str] = field(default_factory=dict)
    alone: list[tuple[Action, ...]] = field(default_factory=list)

    @property
    def unplaced(self) -> set[str]:
        return self.postponed | self.rejected.keys()


@dataclass
class _Promises:
    """What this round has promised to pods.

    claims, exclusive: UIDs of claims that were bound, and of ReadWriteOncePod claims that a pod has taken.
    nodes:             of ReadWriteOnce claims, by UID: the node that has each.
    volumes:           names of volumes that were taken.
    """

    claims: set[str] = field(default_factory=set)
    exclusive: set[str] = field(default_factory=set)
    nodes: dict[str, str] = field(default_factory=dict)
    volumes: set[str] = field(default_factory=set)


class _ConflictError(Exception):
    """Says why two pods cannot have their volumes at the same time, as a filter does."""


class VolumeBinder:
    """`volumes_of`: the volumes of a pod as it was placed; None for one without claims."""

    def __init__(self, cluster: Cluster, volumes_of: Callable[[Pod], PodVolumes | None], now: datetime) -> None:
        self._cluster, self._volumes_of, self._now = cluster, volumes_of, now
        self._promises = _Promises()
        self.reservations = Reservations()

    def reserve(self, bound: Iterable[Pair], attempts: Iterable[GangAttempt]) -> Reservations:
        in_gangs: set[str] = set()
        for attempt in attempts:
            in_gangs.update(pod.metadata.uid for pod, _ in attempt.bound)
            self._reserve_unit(attempt.bound)
        for pair in bound:
            if pair[0].metadata.uid not in in_gangs:
                self._reserve_unit([pair])
        return self.reservations

    def _reserve_unit(self, pairs: Sequence[Pair]) -> None:
        """Pods that are bound together, or not at all."""
        wanted = [(pod, node, volumes) for pod, node in pairs if (volumes := self._volumes_of(pod)) is not None]
        wanted = [each for each in wanted if each[2].unbound or each[2].exclusive or each[2].single_node]
        if not wanted:
            return
        uids = {pod.metadata.uid for pod, _ in pairs}
        names = {each.claim.metadata.uid for _, _, volumes in wanted for each in volumes.unbound}
        exclusive = {uid for _, _, volumes in wanted for uid in volumes.exclusive}
        if names & self._promises.claims or exclusive & self._promises.exclusive or self._are_elsewhere(wanted):
            self.reservations.postponed |= uids
            return
        if (spread := _shared_claims(wanted)) is not None:
            self._bind_alone(*spread)
            self.reservations.postponed |= uids
            return
        try:
            nodes = _claims_of_one_node(wanted)
            decided = self._decide(wanted)
        except _ConflictError as error:
            if self._promises.volumes:
                self.reservations.postponed |= uids
            else:
                self.reservations.rejected |= dict.fromkeys(uids, str(error))
            return
        self.reservations.actions |= decided
        self._promises.claims |= names
        self._promises.exclusive |= exclusive
        self._promises.nodes |= nodes

    def _are_elsewhere(self, wanted: Sequence[tuple[Pod, str, PodVolumes]]) -> bool:
        """Return whether another node has one of their ReadWriteOnce claims."""
        promised = self._promises.nodes
        return any(promised.get(uid, node) != node for _, node, volumes in wanted for uid in volumes.single_node)

    def _decide(self, wanted: Sequence[tuple[Pod, str, PodVolumes]]) -> dict[str, tuple[Action, ...]]:
        taken, claims, exclusive = set(self._promises.volumes), set[str](), set[str]()
        decided: dict[str, tuple[Action, ...]] = {}
        for pod, name, volumes in wanted:
            if exclusive.intersection(volumes.exclusive):
                raise _ConflictError(IN_USE)
            exclusive.update(volumes.exclusive)
            node = self._cluster.node_infos[name].node
            left = _without(volumes, claims)
            choices = left.choose(node, taken)
            if choices is None:
                raise _ConflictError(NO_VOLUMES)
            taken.update(volume.metadata.name for _, volume in choices if volume is not None)
            claims.update(claim.metadata.uid for claim, _ in choices)
            decided[pod.metadata.uid] = bind_claims(left, choices, node, self._now)
        self._promises.volumes = taken
        return decided

    def _bind_alone(self, name: str, volumes: PodVolumes) -> None:
        node = self._cluster.node_infos[name].node
        choices = volumes.choose(node, self._promises.volumes)
        if choices:
            self._promises.volumes.update(volume.metadata.name for _, volume in choices if volume is not None)
            self._promises.claims.update(claim.metadata.uid for claim, _ in choices)
            self.reservations.alone.append(bind_claims(volumes, choices, node, self._now))


def _shared_claims(wanted: Sequence[tuple[Pod, str, PodVolumes]]) -> tuple[str, PodVolumes] | None:
    """The node and the volumes of the first pod with an unbound claim that another pod has on another node."""
    first: dict[str, tuple[str, PodVolumes]] = {}
    for _, node, volumes in wanted:
        for each in volumes.unbound:
            known = first.setdefault(each.claim.metadata.uid, (node, volumes))
            if known[0] != node:
                return known
    return None


def _claims_of_one_node(wanted: Sequence[tuple[Pod, str, PodVolumes]]) -> dict[str, str]:
    """Their nodes. Fails if two pods have one on two nodes."""
    nodes: dict[str, str] = {}
    for _, node, volumes in wanted:
        if any(nodes.setdefault(uid, node) != node for uid in volumes.single_node):
            raise _ConflictError(ON_ANOTHER_NODE)
    return nodes


def _without(volumes: PodVolumes, claims: set[str]) -> PodVolumes:
    """Without claims that were decided for another pod on the same node."""
    left = tuple(each for each in volumes.unbound if each.claim.metadata.uid not in claims)
    return volumes if len(left) == len(volumes.unbound) else PodVolumes(unbound=left)


def require_claims(pairs: Iterable[Pair]) -> tuple[Action, ...]:
    """No pod is bound to a claim that is gone, or going: `app.plans.volumes.protection` relies on it."""
    keys = {(pod.metadata.namespace, name) for pod, _ in pairs for name in claim_names(pod)}
    return tuple(Require(CLAIMS.resource, namespace, name) for namespace, name in sorted(keys))
