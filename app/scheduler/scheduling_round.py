"""Scheduling round: which node each pending pod goes to. The scheduler's controller carries out what comes back.

Pods are taken in the order given; of a class, what fits one fits all, so each costs what the one before it changed. In
the end no pod is left over that would fit: those whose place depends on other pods are tried again after these.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.kinds.pod.pod import Pod
from app.scheduler.cache import Cluster
from app.scheduler.filters import Refusal
from app.scheduler.node_ranking import Ranking
from app.scheduler.pod_info import PodInfo

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
