"""Placement: nodes for a list of pods, anywhere or in one topology domain, and why the others fit no node.

`schedule` serves pods without a gang; `gang_scheduling` and `gang_preemption` place the pods of a PodGroup with a topology
constraint in one domain, by the rest of this module. Of domains that fit all pods the fullest is tried first, so that large ones
stay free for large gangs: Kubernetes' topology-aware workload scheduling.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.scheduler.cache import Cluster
from app.scheduler.filters import Diagnosis, max_fit_count
from app.scheduler.node_ranking import Ranking
from app.scheduler.pod_info import PodInfo, pod_info_of

Pending = tuple[Pod, PodInfo]
Placement = tuple[str, str] | None
"""A topology domain as node label and value; None: all nodes."""
Assignment = tuple[Pod, PodInfo, str]
"""A pod, and the node that it is to have."""


@dataclass(frozen=True)
class PlacementResult:
    """Bindings as (pod, node name), and why the other pods stay pending."""

    bound: Sequence[tuple[Pod, str]]
    unbound: Sequence[tuple[Pod, Diagnosis]]


def schedule(pending: Iterable[Pending], cluster: Cluster) -> PlacementResult:
    """Place the pods in the order given. They remain placed: use a trial to roll back.

    In the end no pod is left that would fit: pods that depend on other pods are tried again after these.
    """
    bound: list[tuple[Pod, str]] = []
    left = list(pending)
    while left:
        before = len(bound)
        left = _schedule_once(left, cluster, bound)
        if len(bound) == before or not any(info.depends_on_pods for _, info in left):
            break
    return PlacementResult(bound, _diagnose_all(left, cluster))


def _schedule_once(pending: Iterable[Pending], cluster: Cluster, bound: list[tuple[Pod, str]]) -> list[Pending]:
    left: list[Pending] = []
    failed: dict[Ranking, int] = {}  # classes without a node, and the generation at which that was
    for pod, info in pending:
        ranking = cluster.ranking(pod, info)
        name = None if failed.get(ranking) == cluster.generation else ranking.best_node()
        if name is None:
            failed[ranking] = cluster.generation
            left.append((pod, info))
        else:
            cluster.place(pod, name, info)
            bound.append((pod, name))
    return left


def _diagnose_all(left: Iterable[Pending], cluster: Cluster) -> list[tuple[Pod, Diagnosis]]:
    diagnoses: dict[Ranking, Diagnosis] = {}
    unbound = []
    for pod, info in left:
        ranking = cluster.ranking(pod, info)
        if ranking not in diagnoses:
            diagnoses[ranking] = ranking.diagnose()
        unbound.append((pod, diagnoses[ranking]))
    return unbound


# Topology domains of gangs


def find_placements(
    label: str, pods: Sequence[Pending], needed: int, nodes: Collection[str], cluster: Cluster
) -> Iterable[Placement]:
    """Domains to try, in order. `nodes` have pods of the group already, so it stays in their domain."""
    if not label:
        return (None,)
    used = sorted(
        {cluster.node_infos[node].node.metadata.labels.get(label, "") for node in nodes if node in cluster.node_infos}
    )
    if used:
        return ((label, used[0]),) if used[0] else ()
    fit_counts = _count_fits(label, {info.key: info for _, info in pods}.values(), cluster)
    enough = [value for value in fit_counts if fit_counts[value] >= max(needed, 1)]
    if not enough:  # one is tried all the same, for its diagnosis
        largest = min(fit_counts, key=lambda value: (-fit_counts[value], value), default=None)
        return () if largest is None else ((label, largest),)
    enough.sort(key=lambda value: (*_fullness(fit_counts[value], len(pods)), value))
    return [(label, value) for value in enough]


def _count_fits(label: str, infos: Collection[PodInfo], cluster: Cluster) -> Counter[str]:
    """Upper bound of the pods that fit each domain, by value."""
    found: Counter[str] = Counter()
    for node_info in cluster.node_infos.values():
        value = node_info.node.metadata.labels.get(label)
        if value:
            found[value] += max_fit_count(node_info, infos)
    return found


def _fullness(fits: int, pods: int) -> tuple[bool, int]:
    """For sorting: the fullest domain that fits all pods; then, of the others, the one that fits most."""
    return (False, fits) if fits >= pods else (True, -fits)


def nominated_placement(
    label: str, pods: Iterable[Pending], nodes: Collection[str], cluster: Cluster
) -> Placement | Literal[False]:
    """The domain of the pods' nominated nodes; False if that is not one, or not that of `nodes`, any more."""
    if not label:
        return None
    names = {*nodes, *(pod.status.nominated_node_name for pod, _ in pods)} & cluster.node_infos.keys()
    values = {cluster.node_infos[name].node.metadata.labels.get(label, "") for name in names}
    return (label, values.pop()) if len(values) == 1 and "" not in values else False


def place_nominated(pods: Iterable[Pending], cluster: Cluster) -> list[tuple[Pod, str]]:
    """Place each pod on its nominated node if it fits; repeated, as some may depend on others. Returns what was placed."""
    bound: list[tuple[Pod, str]] = []
    left = [(pod, info) for pod, info in pods if pod.status.nominated_node_name]
    before = -1
    while left and len(bound) > before:
        before, rest = len(bound), []
        for pod, info in left:
            node = pod.status.nominated_node_name
            if node not in cluster.node_infos or cluster.filter_reasons(pod, info, node):
                rest.append((pod, info))
            else:
                cluster.place(pod, node, info)
                bound.append((pod, node))
        left = rest
    return bound


def restrict(pods: Iterable[Pending], placement: Placement) -> Iterable[Pending]:
    """The pods with the placement's domain as a further nodeSelector."""
    if placement is None:
        return pods
    label, value = placement

    def restrict_pod(pod: Pod) -> Pod:
        selector = pod.spec.node_selector | {label: value}
        return replace(pod, spec=replace(pod.spec, node_selector=selector))

    @cache
    def restrict_info(info: PodInfo) -> PodInfo:
        return pod_info_of(restrict_pod(info.pod), info.volumes)

    return [(restrict_pod(pod), restrict_info(info)) for pod, info in pods]
