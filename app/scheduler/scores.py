"""Scores: how good a node is for a pod that fits several; of equal nodes the first by name is taken.

The weights are those of kube-scheduler's default profile. Two scores differ from there, so that the score of a node depends on
that node and its topology domains alone: nothing is normalized to the best and worst node of the round, and an image counts for
where it is, not for how many nodes have it. Scores of pod affinity and topology spread are in their modules.
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

TAINT_WEIGHT, NODE_AFFINITY_WEIGHT, POD_CONSTRAINT_WEIGHT = 3.0, 2.0, 2.0
_MIN_IMAGE_BYTES, _MAX_IMAGE_BYTES = 23 * 2**20, 1000 * 2**20  # ImageLocality: 0 points below, no more points above


@dataclass(frozen=True)
class ScoringSettings:
    """Scoring strategy of NodeResourcesFit: the emptiest node first, or the fullest, so that others stay empty."""

    strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"

    @property
    def prefers_allocated(self) -> bool:
        """A node's score rises as pods come to it."""
        return self.strategy == "MostAllocated"


DEFAULT = ScoringSettings()


def score_resources(node_info: NodeInfo, info: PodInfo, *, prefers_allocated: bool) -> float:
    """0 to 100, by the CPU and memory that would be free if the pod were there.

    kube-scheduler adds the average that is free (NodeResourcesFit) to the balance of the two (BalancedAllocation). That is the
    same as the smaller of the two parts that are free; with MostAllocated, the larger.
    """
    cpu = (node_info.nonzero_free_cpu - info.nonzero_cpu) * node_info.percent_per_millicpu
    memory = (node_info.nonzero_free_memory - info.nonzero_memory) * node_info.percent_per_byte
    if prefers_allocated:
        larger = max(cpu, memory)
        return 100 - larger if larger > 0 else 100.0
    smaller = min(cpu, memory)
    return smaller if smaller > 0 else 0.0


def score_node(pod: Pod, node: Node, images: AbstractSet[str]) -> float:
    """Weighted sum of what does not change as pods come and go: taints, preferred node affinity, images."""
    taints, affinity = _score_taints(pod, node), _score_node_affinity(pod, node)
    return TAINT_WEIGHT * taints + NODE_AFFINITY_WEIGHT * affinity + _score_images(images, node)


def _score_taints(pod: Pod, node: Node) -> float:
    """100 divided by 1 + the untolerated PreferNoSchedule taints."""
    if not node.spec.taints:
        return 100.0
    count = sum(
        each.effect == "PreferNoSchedule" and not is_tolerated(each, pod.spec.tolerations) for each in node.spec.taints
    )
    return 100 / (count + 1)


def _score_node_affinity(pod: Pod, node: Node) -> float:
    """Share, by weight, of the preferred node affinity terms that match."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    preferences = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    total = sum(each.weight for each in preferences) if preferences else 0
    if not total:
        return 0.0
    matching = (each.weight for each in preferences if each.preference and selects_term(each.preference, node))
    return 100 * sum(matching) / total


def _score_images(images: AbstractSet[str], node: Node) -> float:
    """By the bytes of the pod's images that are on the node."""
    if not images:
        return 0.0
    present = sum(each.size_bytes or 0 for each in node.status.images if not images.isdisjoint(each.names))
    maximum = _MAX_IMAGE_BYTES * len(images)
    return 100 * min(1.0, max(0.0, (present - _MIN_IMAGE_BYTES) / (maximum - _MIN_IMAGE_BYTES)))


def image_name(image: str) -> str:
    """Image as nodes report it: with the tag `latest` if none is given."""
    return image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
