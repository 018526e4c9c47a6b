"""Builders of PodGroups and their pods for tests of scheduling."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import (
    AllDisruptionMode,
    BasicSchedulingPolicy,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    TopologyConstraint,
)
from app.kinds.scheduling.podgroup import SCHEDULED, PodGroup, PodGroupStatus
from app.machinery.base import ObjectMeta
from app.machinery.meta.meta_condition import Condition
from app.plans.jobs.indexes import COMPLETION_INDEX
from app.scheduler import PodInfos
from app.scheduler.gang_scheduling import GangAttempt, PodGroupInfo, PodGroups, schedule_gang
from tests.scheduler.cluster import a_cluster, a_pod


def a_group(
    name: str = "g", least: int = 0, topology: str = "", scheduled: str = "", mode: str | None = None
) -> PodGroup:
    """With `least`, a gang; `scheduled` is what its condition says, `mode` how it is disrupted."""
    gang = GangSchedulingPolicy(min_count=least)
    policy = PodGroupSchedulingPolicy(gang=gang) if least else PodGroupSchedulingPolicy(basic=BasicSchedulingPolicy())
    near = PodGroupSchedulingConstraints(topology=(TopologyConstraint(key=topology),)) if topology else None
    disruption = DisruptionMode(all=AllDisruptionMode()) if mode == "all" else None
    conditions = (Condition(type=SCHEDULED, status=scheduled, reason="Scheduled"),) if scheduled else ()
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-of-{name}", generation=1),
        spec=PodGroupSpec(scheduling_policy=policy, scheduling_constraints=near, disruption_mode=disruption),
        status=PodGroupStatus(conditions=conditions),
    )


def members(
    count: int, group: str = "g", start: int = 0, spec: dict[str, Any] | None = None, **needs: str
) -> list[Pod]:
    """Each with an index."""
    more = {"scheduling_group": PodSchedulingGroup(pod_group_name=group)} | (spec or {})
    numbers = range(start, start + count)
    return [a_pod(f"{group}-{n:03}", more, {COMPLETION_INDEX: str(n)}, **({"cpu": "1"} | needs)) for n in numbers]


def on_a_node(pod: Pod, node: str = "n1", phase: str = "Running", **metadata: Any) -> Pod:
    return replace(
        pod,
        metadata=replace(pod.metadata, **metadata),
        spec=replace(pod.spec, node_name=node),
        status=replace(pod.status, phase=phase),
    )


def the_group(
    spec: PodGroup | None, waiting: Iterable[Pod], placed: Iterable[Pod] = (), name: str = "g"
) -> PodGroupInfo:
    groups, infos = PodGroups(), PodInfos()
    groups.set(("default", name), spec)
    for pod in placed:
        groups.update_pod(None, pod, None)
    for pod in waiting:
        groups.update_pod(None, pod, (pod, infos.get(pod)))
    return groups._groups["default", name]


def tried(
    spec: PodGroup | None, waiting: Iterable[Pod], nodes: Iterable[Node], placed: Sequence[Pod] = ()
) -> tuple[GangAttempt, int]:
    """The attempt, and how many pods are on the cluster afterwards."""
    there = {name: [pod for pod in placed if pod.spec.node_name == name] for name in {p.spec.node_name for p in placed}}
    cluster = a_cluster(nodes, there)
    return schedule_gang(the_group(spec, waiting, placed), cluster), len(cluster.pods)
