"""Pod info: what pods ask for. Pods that ask for the same share one, and what is found out for one holds for all.

The scheduler's controller makes a pod info when a pod comes, and keeps it as long as the pod. Alike pods share one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from app.kinds.pod.affinity import PodAffinityTerm, TopologySpreadConstraint, WeightedPodAffinityTerm
from app.kinds.pod.pod import Pod, PodSpec
from app.kinds.pod.pod_resources import Amounts, requests
from app.machinery.base import LabelSelector
from app.machinery.owner_references import controller_uid
from app.machinery.selectors import NOTHING, Requirement, Selector, from_label_selector
from app.scheduler.pod_counts import Bond, Choice, Term

_encode = msgspec.json.Encoder(order="deterministic").encode
# What a pod that does not say what it needs is taken for, when nodes are compared (not when it is asked what fits).
_SOME_CPU, _SOME_MEMORY = 100, 200 * 2**20
_OWNERS = 1_000  # whose last pod is remembered
_WISHES = 4_000


class HostPort(NamedTuple):
    """A port of the node itself. An empty address is all of them."""

    protocol: str
    port: int
    ip: str


class Spread(NamedTuple):
    """A constraint on how evenly pods are spread."""

    term: Term
    max_skew: int
    is_hard: bool
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """What the pods of one class have in common. `key` is equal for pods that can be treated alike.

    where: equal for pods that the same nodes suit, if there is room.
    """

    key: bytes
    where: bytes
    pod: Pod  # any of them, for what filters look at
    needs: Amounts  # more than nothing of each; one of `pods`
    cpu: int  # what it counts for where nodes are compared
    memory: int
    ports: tuple[HostPort, ...] = ()
    near: tuple[Term, ...] = ()
    apart: tuple[Term, ...] = ()
    likes: tuple[tuple[Term, int], ...] = ()  # by weight; below nothing for what it does not like
    spreads: tuple[Spread, ...] = ()
    bonds: tuple[Bond, ...] = ()  # what concerns others once it is on a node


_Same = tuple[object, ...]


class PodInfos:
    """Makes pod infos, and hands out the same one for alike pods."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[_Same, PodInfo]] = {}  # by owner
        self._known: dict[bytes, PodInfo] = {}

    def of(self, pod: Pod) -> PodInfo:
        owner = controller_uid(pod)
        spec = pod.spec
        if not owner or _looks_at_labels(spec):
            return self._shared(pod)
        same = _looked_at(spec)
        last = self._last.get(owner)
        if last is not None and last[0] == same:
            return last[1]
        if len(self._last) >= _OWNERS:
            self._last.clear()
        found = self._shared(pod)
        self._last[owner] = (same, found)
        return found

    def _shared(self, pod: Pod) -> PodInfo:
        made = pod_info_of(pod)
        if len(self._known) >= _WISHES:
            self._known.clear()
        return self._known.setdefault(made.key, made)


def _looks_at_labels(spec: PodSpec) -> bool:
    """Then pods of one owner may differ."""
    about_pods = spec.affinity is not None and (spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity)
    return bool(about_pods or spec.topology_spread_constraints)


def _looked_at(spec: PodSpec) -> _Same:
    """All that a pod info is made of, but for labels."""
    return (
        spec.containers,
        spec.init_containers,
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.tolerations,
        spec.affinity,
        spec.volumes,
    )


def pod_info_of(pod: Pod) -> PodInfo:
    """A pod's class."""
    spec = pod.spec
    needs = {name: count for name, count in requests(pod).items() if count > 0} | {"pods": 1}
    affinity = spec.affinity
    about_nodes = affinity.node_affinity if affinity else None
    ports = tuple(sorted(_ports(spec)))
    near, apart, likes = _near(pod), _apart(pod), tuple(_likes(pod))
    spreads = tuple(_spread(pod, each) for each in spec.topology_spread_constraints)
    claim = missing_claim(pod)
    about_pods: object = None
    if near or apart or likes or spreads:
        # Whether a pod is one of those that it asks about is part of its class.
        choices = [term.pods for term in (*near, *(each.term for each in spreads))]
        itself = [each.selector.matches(pod.metadata.labels) for each in choices]
        about_pods = (near, apart, likes, spreads, itself)
    return PodInfo(
        key=_encode((needs, ports, spec.node_selector, spec.tolerations, about_nodes, about_pods, claim)),
        where=_encode((spec.node_selector, spec.tolerations, about_nodes, claim)),
        pod=pod,
        needs=needs,
        cpu=needs.get("cpu", _SOME_CPU),
        memory=needs.get("memory", _SOME_MEMORY),
        ports=ports,
        near=near,
        apart=apart,
        likes=likes,
        spreads=spreads,
        bonds=tuple(_bonds(near, apart, likes)),
    )


def missing_claim(pod: Pod) -> str:
    """The first PersistentVolumeClaim that the pod asks for, as none exists; empty if it asks for none."""
    claims = (each.persistent_volume_claim for each in pod.spec.volumes)
    return next((each.claim_name for each in claims if each is not None), "")


def _ports(spec: PodSpec) -> Iterator[HostPort]:
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            if port.host_port:
                ip = "" if port.host_ip == "0.0.0.0" else port.host_ip  # noqa: S104 - a name for all of them
                yield HostPort(port.protocol or "TCP", port.host_port, ip)


def _near(pod: Pod) -> tuple[Term, ...]:
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    return _terms(pod, affinity.required_during_scheduling_ignored_during_execution) if affinity else ()


def _apart(pod: Pod) -> tuple[Term, ...]:
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return _terms(pod, affinity.required_during_scheduling_ignored_during_execution) if affinity else ()


def _terms(pod: Pod, terms: Iterable[PodAffinityTerm]) -> tuple[Term, ...]:
    return tuple(_term(pod, each) for each in terms)


def _likes(pod: Pod) -> Iterator[tuple[Term, int]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    sorts: list[tuple[int, tuple[WeightedPodAffinityTerm, ...]]] = []
    if affinity.pod_affinity:
        sorts.append((1, affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution))
    if affinity.pod_anti_affinity:
        sorts.append((-1, affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution))
    for sign, terms in sorts:
        for each in terms:
            if each.pod_affinity_term is not None:
                yield _term(pod, each.pod_affinity_term), sign * each.weight


def _bonds(near: Iterable[Term], apart: Iterable[Term], likes: Iterable[tuple[Term, int]]) -> Iterator[Bond]:
    yield from (Bond("apart", term) for term in dict.fromkeys(apart))
    yield from (Bond("near", term) for term in dict.fromkeys(near))
    yield from (Bond("like", term, weight) for term, weight in dict.fromkeys(likes))


def _term(pod: Pod, term: PodAffinityTerm) -> Term:
    """Without namespaces of its own, and without a selector of them, the pod's namespace is meant."""
    own = not term.namespaces and term.namespace_selector is None
    among = from_label_selector(term.namespace_selector) if term.namespace_selector is not None else None
    selector = _narrowed(pod, term.label_selector, term.match_label_keys, term.mismatch_label_keys)
    spaces = frozenset((pod.metadata.namespace,) if own else term.namespaces)
    return Term(Choice(spaces, among, selector), term.topology_key)


def _spread(pod: Pod, constraint: TopologySpreadConstraint) -> Spread:
    selector = _narrowed(pod, constraint.label_selector, constraint.match_label_keys, ())
    choice = Choice(frozenset((pod.metadata.namespace,)), None, selector, alive=True)
    return Spread(
        term=Term(choice, constraint.topology_key),
        max_skew=constraint.max_skew,
        is_hard=constraint.when_unsatisfiable != "ScheduleAnyway",
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def _narrowed(pod: Pod, selector: LabelSelector | None, same: Iterable[str], other: Iterable[str]) -> Selector:
    """The selector, with the values that the pod itself has for some keys: equal to them, or not."""
    found = from_label_selector(selector)
    if found is NOTHING:
        return found
    labels = pod.metadata.labels
    more = [Requirement(key, frozenset((labels[key],)), among=True) for key in same if key in labels]
    more += [Requirement(key, frozenset((labels[key],)), among=False) for key in other if key in labels]
    return Selector((*found.requirements, *more), found.bounds) if more else found


Order = tuple[int, float, bytes, str, str]
"""Priority, the highest first; then time of creation, class, namespace and name."""


def order_of(pod: Pod, info: PodInfo) -> Order:
    meta = pod.metadata
    return -(pod.spec.priority or 0), _seconds(meta.creation_timestamp), info.key, meta.namespace, meta.name


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0
