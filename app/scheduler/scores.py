"""Scores: how good a node is for a pod where several would do; of equals the first by name.

The weights are those of Kubernetes' default profile. Two things are scored otherwise than there, so that a node's score
depends on the node and its place alone, not on how all others do: nothing is stretched to the best and worst of the
round, and an image counts for where it is, not for how many nodes have it.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.plans.nodes.node_selector import selects_term
from app.plans.nodes.tolerations import is_tolerated
from app.scheduler.node_info import NodeInfo
from app.scheduler.pod_info import PodInfo

OF_TAINTS, OF_AFFINITY, OF_PLACES = 3.0, 2.0, 2.0
_SMALL, _LARGE = 23 * 2**20, 1000 * 2**20  # images below do not matter; beyond, not any more


@dataclass(frozen=True)
class Settings:
    """How a cluster wants its nodes filled: the emptiest first, or the fullest, so that others stay empty."""

    strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"

    @property
    def likes_load(self) -> bool:
        """A node gets better as pods come to it."""
        return self.strategy == "MostAllocated"


DEFAULT = Settings()


def of_room(node_info: NodeInfo, info: PodInfo, *, likes_load: bool) -> float:
    """By what would be left of CPU and memory if the pod were there.

    Kubernetes adds up how much is left on average and how balanced the two are. That is the same as to look at the one
    of which less is left; or, to fill nodes, at the one of which more is.
    """
    cpu = (node_info.spare_cpu - info.cpu) * node_info.per_cpu
    memory = (node_info.spare_memory - info.memory) * node_info.per_memory
    if likes_load:
        more = max(cpu, memory)
        return 100 - more if more > 0 else 100.0
    less = min(cpu, memory)
    return less if less > 0 else 0.0


def of_node(pod: Pod, node: Node, images: AbstractSet[str]) -> float:
    """What does not change as pods come and go: taints, preferred labels, images."""
    return OF_TAINTS * _of_taints(pod, node) + OF_AFFINITY * _of_affinity(pod, node) + _of_images(images, node)


def _of_taints(pod: Pod, node: Node) -> float:
    """A taint that merely asks to stay away costs half of the points, two of them two thirds, ..."""
    if not node.spec.taints:
        return 100.0
    count = sum(
        each.effect == "PreferNoSchedule" and not is_tolerated(each, pod.spec.tolerations) for each in node.spec.taints
    )
    return 100 / (count + 1)


def _of_affinity(pod: Pod, node: Node) -> float:
    """Share, by weight, of the preferred node affinity terms that match."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    preferences = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    total = sum(each.weight for each in preferences) if preferences else 0
    if not total:
        return 0.0
    return (
        100
        * sum(each.weight for each in preferences if each.preference and selects_term(each.preference, node))
        / total
    )


def _of_images(images: AbstractSet[str], node: Node) -> float:
    """By how much of them is on the node already."""
    if not images:
        return 0.0
    there = sum(each.size_bytes or 0 for each in node.status.images if not images.isdisjoint(each.names))
    return 100 * min(1.0, max(0.0, (there - _SMALL) / (_LARGE * len(images) - _SMALL)))


def image_name(image: str) -> str:
    """As nodes report it: with the tag that is meant if none is given."""
    return image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
