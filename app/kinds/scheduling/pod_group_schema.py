"""Fields that a PodGroup and the templates of a Workload share: how the pods of a group are to be scheduled.

`podgroup` and `workload` are made of it; `pod_group_validation` checks it.
"""

from typing import Annotated

import msgspec

from app.machinery.base import Int32, Struct, at

POD, POD_GROUP = "Pod", "PodGroup"
DISRUPTION_MODES = (POD, POD_GROUP)
MOST_CLAIMS = 4
MOST_TOPOLOGIES = 1


class BasicSchedulingPolicy(Struct):
    """Pod by pod, as pods without a group are. There is nothing to say about it."""


class GangSchedulingPolicy(Struct):
    """All or nothing."""

    min_count: Annotated[
        Int32,
        at(1, "So many pods must find a place at the same time, or none is given one. At least 1.", required=True),
    ] = 0


class PodGroupSchedulingPolicy(Struct):
    """How the pods of a group find their places. Exactly one must be set."""

    basic: Annotated[BasicSchedulingPolicy | None, at(1, "Pod by pod.")] = None
    gang: Annotated[GangSchedulingPolicy | None, at(2, "All or nothing.")] = None


class TopologyConstraint(Struct):
    """The pods of a group must be near each other."""

    key: Annotated[
        str, at(1, "A label of nodes: all pods go to nodes on which it has the same value.", required=True)
    ] = ""


class PodGroupSchedulingConstraints(Struct):
    """Where the pods of a group may go, all together."""

    topology: Annotated[
        tuple[TopologyConstraint, ...], at(1, "What the nodes must have in common; at most one.", list_type="atomic")
    ] = ()


class PodGroupResourceClaim(Struct):
    """A claim that the pods of a group share. Names exactly one claim, or one template of claims."""

    name: Annotated[str, at(1, "Name by which the group knows it. A DNS label.", required=True)] = ""
    resource_claim_name: Annotated[str | None, at(2, "Name of a ResourceClaim in the namespace.")] = None
    resource_claim_template_name: Annotated[
        str | None,
        at(3, "Name of a ResourceClaimTemplate in the namespace, of which the group gets a claim of its own."),
    ] = None


class _Terms(Struct):
    """What a group and its template say in the same words and under the same numbers."""

    scheduling_policy: Annotated[
        PodGroupSchedulingPolicy, at(2, "How the pods find their places. Cannot change.", required=True)
    ] = msgspec.field(default_factory=PodGroupSchedulingPolicy)
    scheduling_constraints: Annotated[
        PodGroupSchedulingConstraints | None, at(3, "Where the pods may go, all together. Cannot change.")
    ] = None
    resource_claims: Annotated[
        tuple[PodGroupResourceClaim, ...],
        at(4, "Claims that the pods share; at most 4. Cannot change.", patch_key="name", patch="merge,retainKeys"),
    ] = ()
    disruption_mode: Annotated[
        str | None, at(5, "Pod: each may be disrupted by itself. PodGroup: all or none. Cannot change.")
    ] = None
    priority_class_name: Annotated[str, at(6, "Name of the PriorityClass of the group. Cannot change.")] = ""
    priority: Annotated[Int32 | None, at(7, "The group's priority: the higher, the sooner. Cannot change.")] = None


class PodGroupTemplate(_Terms):
    """What PodGroups are made from."""

    name: Annotated[str, at(1, "Name of the template, each once in a Workload. A DNS label.", required=True)] = ""


class WorkloadPodGroupTemplateReference(Struct):
    """Points at a template of a Workload."""

    workload_name: Annotated[str, at(1, "Name of the Workload.", required=True)] = ""
    pod_group_template_name: Annotated[str, at(2, "Name of the template in it.", required=True)] = ""


class PodGroupTemplateReference(Struct):
    """Points at what a group was made from. Exactly one must be set."""

    workload: Annotated[
        WorkloadPodGroupTemplateReference | None, at(1, "A template of a Workload in the same namespace.")
    ] = None


class PodGroupSpec(_Terms):
    """What a group is, and how its pods are to be scheduled."""

    pod_group_template_ref: Annotated[
        PodGroupTemplateReference | None, at(1, "What the group was made from, if from a template. Cannot change.")
    ] = None
