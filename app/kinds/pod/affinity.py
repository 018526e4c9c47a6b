"""Node selectors, affinity, topology spread and tolerations of a pod."""

from typing import Annotated

from app.machinery.base import (
    Int32,
    Int64,
    LabelSelector,
    Struct,
    at,
)


class NodeSelectorRequirement(Struct):
    """One demand on a node's labels or fields."""

    key: Annotated[str, at(1, "Label or field that is looked at.", required=True)] = ""
    operator: Annotated[
        str,
        at(
            2,
            "In, NotIn, Exists, DoesNotExist, Gt or Lt.",
            required=True,
            enum=("DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"),
        ),
    ] = ""
    values: Annotated[tuple[str, ...], at(3, "What the operator compares with; one integer for Gt and Lt.")] = ()


class NodeSelectorTerm(Struct):
    """Demands that must all hold. A term without any matches no node."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], at(1, "Demands on labels.")] = ()
    match_fields: Annotated[
        tuple[NodeSelectorRequirement, ...], at(2, "Demands on fields; metadata.name is the only one.")
    ] = ()


class NodeSelector(Struct):
    """Matches a node if one of its terms does."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], at(1, "The terms; at least one.", required=True)] = ()


class PreferredSchedulingTerm(Struct):
    """A wish about nodes and how much it counts."""

    weight: Annotated[Int32, at(1, "1 to 100, added to a node's score if it matches.", required=True)] = 0
    preference: Annotated[NodeSelectorTerm | None, at(2, "The wish.", required=True)] = None


class NodeAffinity(Struct):
    """Which nodes a pod needs, and which it likes."""

    required_during_scheduling_ignored_during_execution: Annotated[
        NodeSelector | None, at(1, "Must hold to be scheduled; later changes of the node do not matter.")
    ] = None
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[PreferredSchedulingTerm, ...], at(2, "Wishes; nodes with the highest sum of weights win.")
    ] = ()


class PodAffinityTerm(Struct):
    """Selects pods; the places that they run in are meant."""

    label_selector: Annotated[LabelSelector | None, at(1, "The pods, by their labels.")] = None
    namespaces: Annotated[tuple[str, ...], at(2, "Namespaces to look in; the pod's own if none is given.")] = ()
    topology_key: Annotated[str, at(3, "Node label; nodes with the same value are one place.", required=True)] = ""
    namespace_selector: Annotated[LabelSelector | None, at(4, "Further namespaces, by their labels.")] = None
    match_label_keys: Annotated[
        tuple[str, ...], at(5, "Keys whose values are taken from the new pod and must match.")
    ] = ()
    mismatch_label_keys: Annotated[
        tuple[str, ...], at(6, "Keys whose values are taken from the new pod and must differ.")
    ] = ()


class WeightedPodAffinityTerm(Struct):
    """A wish about neighbours and how much it counts."""

    weight: Annotated[Int32, at(1, "1 to 100.", required=True)] = 0
    pod_affinity_term: Annotated[PodAffinityTerm | None, at(2, "The neighbours.", required=True)] = None


class PodAffinity(Struct):
    """Pods to be near to."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], at(1, "Must hold to be scheduled.")
    ] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], at(2, "Wishes.")
    ] = ()


class PodAntiAffinity(Struct):
    """Pods to stay away from."""

    required_during_scheduling_ignored_during_execution: Annotated[
        tuple[PodAffinityTerm, ...], at(1, "Must hold to be scheduled.")
    ] = ()
    preferred_during_scheduling_ignored_during_execution: Annotated[
        tuple[WeightedPodAffinityTerm, ...], at(2, "Wishes.")
    ] = ()


class Affinity(Struct):
    """Where a pod needs or wishes to run."""

    node_affinity: Annotated[NodeAffinity | None, at(1, "With regard to nodes.")] = None
    pod_affinity: Annotated[PodAffinity | None, at(2, "Near which pods.")] = None
    pod_anti_affinity: Annotated[PodAntiAffinity | None, at(3, "Away from which pods.")] = None


class Toleration(Struct):
    """Lets a pod run in spite of a matching taint."""

    key: Annotated[str, at(1, "Key of the taint; empty, with Exists, for every key.")] = ""
    operator: Annotated[str, at(2, "Equal (the default) or Exists.", enum=("Equal", "Exists"))] = ""
    value: Annotated[str, at(3, "Value of the taint, for Equal.")] = ""
    effect: Annotated[
        str, at(4, "Effect of the taint; empty for every effect.", enum=("NoExecute", "NoSchedule", "PreferNoSchedule"))
    ] = ""
    toleration_seconds: Annotated[
        Int64 | None, at(5, "For NoExecute: how long the taint is borne; for ever if unset.")
    ] = None


class TopologySpreadConstraint(Struct):
    """How evenly matching pods are spread over places."""

    max_skew: Annotated[Int32, at(1, "How much the fullest place may exceed the emptiest.", required=True)] = 0
    topology_key: Annotated[str, at(2, "Node label; nodes with the same value are one place.", required=True)] = ""
    when_unsatisfiable: Annotated[
        str, at(3, "DoNotSchedule or ScheduleAnyway.", required=True, enum=("DoNotSchedule", "ScheduleAnyway"))
    ] = ""
    label_selector: Annotated[LabelSelector | None, at(4, "The pods that are counted.")] = None
    min_domains: Annotated[Int32 | None, at(5, "Fewer places than this count as one more, empty, place.")] = None
    node_affinity_policy: Annotated[
        str, at(6, "Whether affinity limits the places counted: Honor or Ignore.", enum=("Honor", "Ignore"))
    ] = ""
    node_taints_policy: Annotated[
        str, at(7, "Whether taints limit the places counted: Honor or Ignore.", enum=("Honor", "Ignore"))
    ] = ""
    match_label_keys: Annotated[
        tuple[str, ...], at(8, "Keys whose values are taken from the new pod and must match.")
    ] = ()
