"""Where a pod wants to run: node selectors, affinity, spreading, tolerations."""

from typing import Annotated

from app.kinds.base import (
    Int32,
    Int64,
    LabelSelector,
    Struct,
    at,
)


class NodeSelectorRequirement(Struct):
    """TODO-DOC"""

    key: Annotated[str, at(1)] = ""
    operator: Annotated[str, at(2)] = ""
    values: Annotated[tuple[str, ...], at(3)] = ()


class NodeSelectorTerm(Struct):
    """TODO-DOC"""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], at(1)] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], at(2)] = ()


class NodeSelector(Struct):
    """TODO-DOC"""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], at(1)] = ()


class PreferredSchedulingTerm(Struct):
    """TODO-DOC"""

    weight: Annotated[Int32, at(1)] = 0
    preference: Annotated[NodeSelectorTerm | None, at(2)] = None


class NodeAffinity(Struct):
    """TODO-DOC"""

    required_during_scheduling_ignored_during_execution: Annotated[NodeSelector | None, at(1)] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[PreferredSchedulingTerm, ...], at(2)] = ()


class PodAffinityTerm(Struct):
    """TODO-DOC"""

    label_selector: Annotated[LabelSelector | None, at(1)] = None
    namespaces: Annotated[tuple[str, ...], at(2)] = ()
    topology_key: Annotated[str, at(3)] = ""
    namespace_selector: Annotated[LabelSelector | None, at(4)] = None
    match_label_keys: Annotated[tuple[str, ...], at(5)] = ()
    mismatch_label_keys: Annotated[tuple[str, ...], at(6)] = ()


class WeightedPodAffinityTerm(Struct):
    """TODO-DOC"""

    weight: Annotated[Int32, at(1)] = 0
    pod_affinity_term: Annotated[PodAffinityTerm | None, at(2)] = None


class PodAffinity(Struct):
    """TODO-DOC"""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], at(1)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], at(2)] = ()


class PodAntiAffinity(Struct):
    """TODO-DOC"""

    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], at(1)] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], at(2)] = ()


class Affinity(Struct):
    """TODO-DOC"""

    node_affinity: Annotated[NodeAffinity | None, at(1)] = None
    pod_affinity: Annotated[PodAffinity | None, at(2)] = None
    pod_anti_affinity: Annotated[PodAntiAffinity | None, at(3)] = None


class Toleration(Struct):
    """TODO-DOC"""

    key: Annotated[str, at(1)] = ""
    operator: Annotated[str, at(2)] = ""
    value: Annotated[str, at(3)] = ""
    effect: Annotated[str, at(4)] = ""
    toleration_seconds: Annotated[Int64 | None, at(5)] = None


class TopologySpreadConstraint(Struct):
    """TODO-DOC"""

    max_skew: Annotated[Int32, at(1)] = 0
    topology_key: Annotated[str, at(2)] = ""
    when_unsatisfiable: Annotated[str, at(3)] = ""
    label_selector: Annotated[LabelSelector | None, at(4)] = None
    min_domains: Annotated[Int32 | None, at(5)] = None
    node_affinity_policy: Annotated[str, at(6)] = ""
    node_taints_policy: Annotated[str, at(7)] = ""
    match_label_keys: Annotated[tuple[str, ...], at(8)] = ()
