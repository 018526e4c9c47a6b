"""Pod info: what a pod asks of nodes. Pods that ask for the same share one: a scheduling class.

The scheduler's controller makes one when a pod comes, and keeps it as long as the pod. What is computed for one pod of a
class holds for all. kube-scheduler's `framework.PodInfo`.
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
from app.machinery.meta.owner_references import controller_uid
from app.machinery.selectors import NOTHING, Requirement, Selector, from_label_selector
from app.plans.volumes.pod_volumes import PodVolumes
from app.scheduler.pod_counts import AffinityTerm, PodSelector, SymmetricTerm

_encode = msgspec.json.Encoder(order="deterministic").encode
# Requests that a pod without any counts for in scores (not in filters), as in kube-scheduler.
_DEFAULT_MILLICPU, _DEFAULT_MEMORY = 100, 200 * 2**20
_MAX_OWNERS = 1_000  # whose last pod is remembered
_MAX_INFOS = 4_000


class HostPort(NamedTuple):
    """Port of the node itself. An empty address is all addresses."""

    protocol: str
    port: int
    ip: str


class SpreadConstraint(NamedTuple):
    """Topology spread constraint. `is_hard`: DoNotSchedule; else ScheduleAnyway."""

    term: AffinityTerm
    max_skew: int
    is_hard: bool
    min_domains: int
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    """Scheduling class of a pod.

    key: equal for pods of one class.
    filter_key: equal for pods for which the same nodes pass the filters, if enough is free there.
    """

    key: bytes
    filter_key: bytes
    pod: Pod  # any of the class, for filters
    requests: Amounts  # above 0 of each resource; 1 of `pods`
    nonzero_cpu: int  # millicores and bytes that count in scores
    nonzero_memory: int
    host_ports: tuple[HostPort, ...] = ()
    required_affinity: tuple[AffinityTerm, ...] = ()
    required_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[tuple[AffinityTerm, int], ...] = ()  # by weight, which is negative for anti-affinity
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    symmetric_terms: tuple[SymmetricTerm, ...] = ()  # what counts for other pods once it is on a node
    volumes: PodVolumes | None = None  # of pods with claims

    @property
    def depends_on_pods(self) -> bool:
        """Pods that come to nodes may make a place for it: required affinity or topology spread."""
        return bool(self.required_affinity or self.spread_constraints)


_Fields = tuple[object, ...]


class PodInfos:
    """Makes pod infos, and shares one among alike pods."""

    def __init__(self) -> None:
        self._last_of_owner: dict[str, tuple[_Fields, PodInfo]] = {}  # by the owner's UID
        self._infos: dict[bytes, PodInfo] = {}

    def get(self, pod: Pod, volumes: PodVolumes | None = None) -> PodInfo:
        """`volumes`: of a pod with claims, as they are now."""
        owner = controller_uid(pod)
        spec = pod.spec
        if not owner or volumes is not None or _depends_on_labels(spec):
            return self._share(pod, volumes)
        fields = _class_fields(spec)
        last = self._last_of_owner.get(owner)
        if last is not None and last[0] == fields:
            return last[1]
        if len(self._last_of_owner) >= _MAX_OWNERS:
            self._last_of_owner.clear()
        info = self._share(pod)
        self._last_of_owner[owner] = (fields, info)
        return info

    def _share(self, pod: Pod, volumes: PodVolumes | None = None) -> PodInfo:
        info = pod_info_of(pod, volumes)
        if len(self._infos) >= _MAX_INFOS:
            self._infos.clear()
        return self._infos.setdefault(info.key, info)


def _depends_on_labels(spec: PodSpec) -> bool:
    """Return whether pods of one owner may be of several classes, as their labels differ."""
    has_terms = spec.affinity is not None and (spec.affinity.pod_affinity or spec.affinity.pod_anti_affinity)
    return bool(has_terms or spec.topology_spread_constraints)


def _class_fields(spec: PodSpec) -> _Fields:
    """All fields that a pod info is made of, apart from labels."""
    return (
        spec.containers,
        spec.init_containers,
        spec.overhead,
        spec.resources,
        spec.node_selector,
        spec.tolerations,
        spec.affinity,
    )


def pod_info_of(pod: Pod, volumes: PodVolumes | None = None) -> PodInfo:
    spec = pod.spec
    needed = {name: count for name, count in requests(pod).items() if count > 0} | {"pods": 1}
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    host_ports = tuple(sorted(_host_ports(spec)))
    affinity, anti_affinity = _required_affinity(pod), _required_anti_affinity(pod)
    preferred = tuple(_preferred_affinity(pod))
    spread_constraints = tuple(_spread_constraint(pod, each) for each in spec.topology_spread_constraints)
    where = volumes.key if volumes is not None else b""
    pod_terms: object = None
    if affinity or anti_affinity or preferred or spread_constraints:
        # Whether a pod matches its own terms is part of its class.
        selectors = [term.pods for term in (*affinity, *(each.term for each in spread_constraints))]
        matches_itself = [each.labels.matches(pod.metadata.labels) for each in selectors]
        pod_terms = (affinity, anti_affinity, preferred, spread_constraints, matches_itself)
    return PodInfo(
        key=_encode((needed, host_ports, spec.node_selector, spec.tolerations, node_affinity, pod_terms, where)),
        filter_key=_encode((spec.node_selector, spec.tolerations, node_affinity, where)),
        pod=pod,
        requests=needed,
        nonzero_cpu=needed.get("cpu", _DEFAULT_MILLICPU),
        nonzero_memory=needed.get("memory", _DEFAULT_MEMORY),
        host_ports=host_ports,
        required_affinity=affinity,
        required_anti_affinity=anti_affinity,
        preferred_affinity=preferred,
        spread_constraints=spread_constraints,
        symmetric_terms=tuple(_symmetric_terms(affinity, anti_affinity, preferred)),
        volumes=volumes,
    )


def _host_ports(spec: PodSpec) -> Iterator[HostPort]:
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    for container in (*spec.containers, *sidecars):
        for port in container.ports:
            if port.host_port:
                ip = "" if port.host_ip == "0.0.0.0" else port.host_ip  # noqa: S104 - a name for all addresses
                yield HostPort(port.protocol or "TCP", port.host_port, ip)


def _required_affinity(pod: Pod) -> tuple[AffinityTerm, ...]:
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity else None
    return _terms(pod, affinity.required_during_scheduling_ignored_during_execution) if affinity else ()


def _required_anti_affinity(pod: Pod) -> tuple[AffinityTerm, ...]:
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return _terms(pod, affinity.required_during_scheduling_ignored_during_execution) if affinity else ()


def _terms(pod: Pod, terms: Iterable[PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
    return tuple(_term(pod, each) for each in terms)


def _preferred_affinity(pod: Pod) -> Iterator[tuple[AffinityTerm, int]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    preferences: list[tuple[int, tuple[WeightedPodAffinityTerm, ...]]] = []
    if affinity.pod_affinity:
        preferences.append((1, affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution))
    if affinity.pod_anti_affinity:
        preferences.append((-1, affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution))
    for sign, terms in preferences:
        for each in terms:
            if each.pod_affinity_term is not None:
                yield _term(pod, each.pod_affinity_term), sign * each.weight


def _symmetric_terms(
    affinity: Iterable[AffinityTerm],
    anti_affinity: Iterable[AffinityTerm],
    preferred: Iterable[tuple[AffinityTerm, int]],
) -> Iterator[SymmetricTerm]:
    yield from (SymmetricTerm("anti-affinity", term) for term in dict.fromkeys(anti_affinity))
    yield from (SymmetricTerm("affinity", term) for term in dict.fromkeys(affinity))
    yield from (SymmetricTerm("preferred", term, weight) for term, weight in dict.fromkeys(preferred))


def _term(pod: Pod, term: PodAffinityTerm) -> AffinityTerm:
    """Without namespaces and without a namespace selector, the pod's own namespace is meant."""
    is_own = not term.namespaces and term.namespace_selector is None
    namespace_selector = from_label_selector(term.namespace_selector) if term.namespace_selector is not None else None
    labels = _narrow_selector(pod, term.label_selector, term.match_label_keys, term.mismatch_label_keys)
    namespaces = frozenset((pod.metadata.namespace,) if is_own else term.namespaces)
    return AffinityTerm(PodSelector(namespaces, namespace_selector, labels), term.topology_key)


def _spread_constraint(pod: Pod, constraint: TopologySpreadConstraint) -> SpreadConstraint:
    labels = _narrow_selector(pod, constraint.label_selector, constraint.match_label_keys, ())
    selector = PodSelector(frozenset((pod.metadata.namespace,)), None, labels, skips_terminating=True)
    return SpreadConstraint(
        term=AffinityTerm(selector, constraint.topology_key),
        max_skew=constraint.max_skew,
        is_hard=constraint.when_unsatisfiable != "ScheduleAnyway",
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def _narrow_selector(
    pod: Pod, selector: LabelSelector | None, match_keys: Iterable[str], mismatch_keys: Iterable[str]
) -> Selector:
    """Add the pod's own values of matchLabelKeys and mismatchLabelKeys to the selector."""
    found = from_label_selector(selector)
    if found is NOTHING:
        return found
    labels = pod.metadata.labels
    more = [Requirement(key, frozenset((labels[key],)), among=True) for key in match_keys if key in labels]
    more += [Requirement(key, frozenset((labels[key],)), among=False) for key in mismatch_keys if key in labels]
    return Selector((*found.requirements, *more), found.bounds) if more else found


SortKey = tuple[int, float, bytes, str, str]
"""Priority, the highest first; then time of creation in seconds, class, namespace and name."""


def queue_sort_key(pod: Pod, info: PodInfo) -> SortKey:
    meta = pod.metadata
    return -(pod.spec.priority or 0), _seconds(meta.creation_timestamp), info.key, meta.namespace, meta.name


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0
