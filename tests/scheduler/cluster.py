"""Builders of nodes, pods and clusters for tests of scheduling; readers of outcomes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from app.kinds.core.node import Node, NodeSpec, NodeStatus
from app.kinds.pod.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from app.kinds.pod.container import Container, ContainerPort, ResourceRequirements
from app.kinds.pod.pod import Pod, PodSpec
from app.machinery.base import LabelSelector, ObjectMeta
from app.scheduler import DEFAULT, Cluster, PlacementResult, PodInfos, ScoringSettings, schedule
from app.scheduler.fit_hints import without_hint

HOST = "kubernetes.io/hostname"


def a_node(
    name: str = "n1", labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **has: str
) -> Node:
    """With 4 CPUs, 8Gi and room for 10 pods; its name is its host."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"} | has
    meta = ObjectMeta(name=name, labels={HOST: name} | (labels or {}))
    return Node(metadata=meta, spec=NodeSpec(**(spec or {})), status=NodeStatus(allocatable=allocatable))


def a_pod(
    name: str = "p",
    spec: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "default",
    ports: Sequence[ContainerPort] = (),
    **needs: str,
) -> Pod:
    main = Container(name="main", image="busybox", resources=ResourceRequirements(requests=needs), ports=tuple(ports))
    meta = ObjectMeta(name=name, namespace=namespace, uid=f"uid-of-{namespace}-{name}", labels=labels or {})
    return Pod(metadata=meta, spec=PodSpec(containers=(main,), **(spec or {})))


def many(count: int, start: str = "p", **more: Any) -> list[Pod]:
    return [a_pod(f"{start}{number}", **more) for number in range(count)]


def term(key: str = HOST, namespaces: Sequence[str] = (), **labels: str) -> PodAffinityTerm:
    """Pods with these labels; `key` is the topology key."""
    return PodAffinityTerm(
        label_selector=LabelSelector(match_labels=labels), topology_key=key, namespaces=tuple(namespaces)
    )


def near(*terms: PodAffinityTerm) -> dict[str, Any]:
    """Spec with required pod affinity."""
    needed = PodAffinity(required_during_scheduling_ignored_during_execution=terms)
    return {"affinity": Affinity(pod_affinity=needed)}


def apart(*terms: PodAffinityTerm) -> dict[str, Any]:
    needed = PodAntiAffinity(required_during_scheduling_ignored_during_execution=terms)
    return {"affinity": Affinity(pod_anti_affinity=needed)}


def likes(one: PodAffinityTerm, weight: int = 100) -> dict[str, Any]:
    """Spec with preferred pod affinity; with a negative weight, anti-affinity."""
    weighted = (WeightedPodAffinityTerm(weight=abs(weight), pod_affinity_term=one),)
    if weight > 0:
        return {
            "affinity": Affinity(
                pod_affinity=PodAffinity(preferred_during_scheduling_ignored_during_execution=weighted)
            )
        }
    anti = PodAntiAffinity(preferred_during_scheduling_ignored_during_execution=weighted)
    return {"affinity": Affinity(pod_anti_affinity=anti)}


def even(key: str = "zone", skew: int = 1, hard: bool = True, **more: Any) -> TopologySpreadConstraint:
    """Of pods labelled app=a, unless another selector is given."""
    return TopologySpreadConstraint(
        topology_key=key,
        max_skew=skew,
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        **{"label_selector": LabelSelector(match_labels={"app": "a"})} | more,
    )


def spread(*constraints: TopologySpreadConstraint) -> dict[str, Any]:
    return {"topology_spread_constraints": constraints}


def a_selector(*demands: tuple[str, str, tuple[str, ...]], field: bool = False) -> NodeSelector:
    needs = tuple(NodeSelectorRequirement(key=key, operator=op, values=values) for key, op, values in demands)
    one = NodeSelectorTerm(match_fields=needs) if field else NodeSelectorTerm(match_expressions=needs)
    return NodeSelector(node_selector_terms=(one,))


def wanting(*demands: tuple[str, str, tuple[str, ...]], field: bool = False, **more: Any) -> Pod:
    """A pod with required node affinity."""
    affinity = NodeAffinity(required_during_scheduling_ignored_during_execution=a_selector(*demands, field=field))
    return a_pod(spec={"affinity": Affinity(node_affinity=affinity)}, **more)


def a_cluster(
    nodes: Iterable[Node],
    there: Mapping[str, Sequence[Pod]] | None = None,
    settings: ScoringSettings = DEFAULT,
    namespaces: Mapping[str, Mapping[str, str]] | None = None,
) -> Cluster:
    cluster = Cluster(settings)
    for name, labels in (namespaces or {}).items():
        cluster.set_namespace(name, labels)
    for each in nodes:
        cluster.set_node(each)
    infos = PodInfos()
    for node, pods in (there or {}).items():
        for pod in pods:
            cluster.place(replace(pod, spec=replace(pod.spec, node_name=node)), node, infos.get(pod))
    return cluster


def on(cluster: Cluster, pods: Iterable[Pod]) -> PlacementResult:
    infos = PodInfos()
    return schedule([(pod, infos.get(pod)) for pod in pods], cluster)


def placed(
    pods: Iterable[Pod], nodes: Iterable[Node], there: Mapping[str, Sequence[Pod]] | None = None
) -> PlacementResult:
    return on(a_cluster(nodes, there), pods)


def where(outcome: PlacementResult) -> dict[str, str]:
    return {pod.metadata.name: node for pod, node in outcome.bound}


def counts(outcome: PlacementResult) -> Counter[str]:
    return Counter(node for _, node in outcome.bound)


def why(outcome: PlacementResult) -> list[str]:
    """In kube-scheduler's words."""
    return [without_hint(diagnosis.text()) for _, diagnosis in outcome.unbound]


def hints(outcome: PlacementResult) -> list[str]:
    """What would have to change."""
    return [diagnosis.hint for _, diagnosis in outcome.unbound]


def why_on(pod: Pod, node: Node, *there: Pod) -> str:
    """Why one pod may not run on one node; empty if it may."""
    outcome = placed([pod], [node], {node.metadata.name: there})
    return "; ".join(reason for _, diagnosis in outcome.unbound for reason in diagnosis.reasons[node.metadata.name])
