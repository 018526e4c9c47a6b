"""Scheduling round: which node each pending pod goes to. The scheduler's controller carries out what comes back.

Pods are taken in the order given; of a class, what fits one fits all, so each costs what the one before it changed. In
the end no pod is left over that would fit: those whose place depends on other pods are tried again after these.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.scheduler.cache import Cluster
from app.scheduler.filters import Refusal, most_fit_count
from app.scheduler.node_ranking import Ranking
from app.scheduler.pod_info import PodInfo, pod_info_of

Pending = tuple[Pod, PodInfo]


@dataclass(frozen=True)
class Outcome:
    """Bindings as (pod, node name), and why the rest stay pending."""

    bound: Sequence[tuple[Pod, str]]
    unbound: Sequence[tuple[Pod, Refusal]]


def schedule(pending: Iterable[Pending], cluster: Cluster) -> Outcome:
    """Place the pods, and leave them placed: do it in a trial to find out what would be."""
    bound: list[tuple[Pod, str]] = []
    left = list(pending)
    while left:  # placements take room away, but may bring whom a pod wants to be near, or be even with
        before = len(bound)
        left = _once(left, cluster, bound)
        if len(bound) == before or not any(info.near or info.spreads for _, info in left):
            break
    return Outcome(bound, _explained(left, cluster))


def _once(pending: Iterable[Pending], cluster: Cluster, bound: list[tuple[Pod, str]]) -> list[Pending]:
    left: list[Pending] = []
    full: dict[Ranking, int] = {}  # classes without a place, and when that was
    for pod, info in pending:
        ranking = cluster.ranking(pod, info)
        name = None if full.get(ranking) == cluster.now else ranking.best()
        if name is None:
            full[ranking] = cluster.now
            left.append((pod, info))
        else:
            cluster.place(pod, name, info)
            bound.append((pod, name))
    return left


def _explained(left: Iterable[Pending], cluster: Cluster) -> list[tuple[Pod, Refusal]]:
    refusals: dict[Ranking, Refusal] = {}
    explained = []
    for pod, info in left:
        ranking = cluster.ranking(pod, info)
        if ranking not in refusals:
            refusals[ranking] = ranking.refusal()
        explained.append((pod, refusals[ranking]))
    return explained


Place = tuple[str, str] | None
"""A label and its value; None is anywhere."""
Wanted = tuple[Pod, PodInfo, str]
"""A pod, and the node that is meant for it."""


def places(
    label: str, pods: Sequence[Pending], needed: int, nodes: Collection[str], cluster: Cluster
) -> Iterable[Place]:
    """Where to try, in order. `nodes` have pods of the group already: then it is their place or none."""
    if not label:
        return (None,)
    taken = sorted(
        {cluster.node_infos[node].node.metadata.labels.get(label, "") for node in nodes if node in cluster.node_infos}
    )
    if taken:
        return ((label, taken[0]),) if taken[0] else ()
    node_info = _room(label, {info.key: info for _, info in pods}.values(), cluster)
    enough = [value for value in node_info if node_info[value] >= max(needed, 1)]
    if not enough:  # one is tried all the same, to hear why
        return ((label, min(node_info, key=lambda value: (-node_info[value], value))),) if node_info else ()
    total = len(pods)
    return [(label, value) for value in sorted(enough, key=lambda value: (*_rank(node_info[value], total), value))]


def kept(label: str, pods: Iterable[Pending], nodes: Collection[str], cluster: Cluster) -> Place | Literal[False]:
    """Where room is kept for pods; False if that is not one place, or not theirs, any more."""
    if not label:
        return None
    names = {*nodes, *(pod.status.nominated_node_name for pod, _ in pods)} & cluster.node_infos.keys()
    values = {cluster.node_infos[name].node.metadata.labels.get(label, "") for name in names}
    return (label, values.pop()) if len(values) == 1 and "" not in values else False


def nominated(pods: Iterable[Pending]) -> list[Wanted]:
    """Those that room is kept for."""
    return [(pod, info, pod.status.nominated_node_name) for pod, info in pods if pod.status.nominated_node_name]


def put(wanted: Iterable[Wanted], cluster: Cluster) -> list[tuple[Pod, str]]:
    """Each on its node, as far as it may be there; some may have to wait for others to be near them."""
    done: list[tuple[Pod, str]] = []
    left, before = list(wanted), -1
    while left and len(done) > before:
        before, still = len(done), []
        for pod, its, node in left:
            if node not in cluster.node_infos or cluster.fits(pod, its, node):
                still.append((pod, its, node))
            else:
                cluster.place(pod, node, its)
                done.append((pod, node))
        left = still
    return done


def _room(label: str, infos: Collection[PodInfo], cluster: Cluster) -> Counter[str]:
    """For how many of the pods each place may have room."""
    found: Counter[str] = Counter()
    for node_info in cluster.node_infos.values():
        value = node_info.node.metadata.labels.get(label)
        if value:
            found[value] += most_fit_count(node_info, infos)
    return found


def _rank(node_info: int, total: int) -> tuple[bool, int]:
    """The fullest that takes all; then, of those that do not, the one that takes most."""
    return (False, node_info) if node_info >= total else (True, -node_info)


def inside(pods: Iterable[Pending], place: Place) -> Iterable[Pending]:
    """The pods, as if each had asked for nodes of that place."""
    if place is None:
        return pods
    label, value = place

    def narrowed(pod: Pod) -> Pod:
        selector = pod.spec.node_selector | {label: value}
        return replace(pod, spec=replace(pod.spec, node_selector=selector))

    @cache
    def narrow(original: PodInfo) -> PodInfo:
        return pod_info_of(narrowed(original.pod))

    return [(narrowed(pod), narrow(original)) for pod, original in pods]


def told(label: str) -> str:
    """What to add to a count of pods that can be placed."""
    return f" on nodes with the same {label}" if label else ""


def nowhere(label: str) -> str:
    return f"no node has the label {label}, which all pods of the group must have in common"
