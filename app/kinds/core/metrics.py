"""Usage of nodes and pods (metrics.k8s.io/v1beta1). Made when it is asked for, so that none is a resource kind."""

from typing import Annotated

import msgspec

from app.machinery.base import Object, Quantity, Struct, Time, at


class NodeMetrics(Object):
    """What a node uses at the moment."""

    timestamp: Annotated[Time | None, at(2, "When the span ended that was looked at.", required=True)] = None
    window: Annotated[str, at(3, "How long that span was, such as 15s.", required=True)] = ""
    usage: Annotated[dict[str, Quantity], at(4, "The cpu and memory in use.", required=True)] = msgspec.field(
        default_factory=dict
    )


class ContainerMetrics(Struct):
    """What a container uses at the moment."""

    name: Annotated[str, at(1, "Name of the container.", required=True)] = ""
    usage: Annotated[dict[str, Quantity], at(2, "The cpu and memory in use.", required=True)] = msgspec.field(
        default_factory=dict
    )


class PodMetrics(Object):
    """What a pod's containers use at the moment."""

    timestamp: Annotated[Time | None, at(2, "When the span ended that was looked at.", required=True)] = None
    window: Annotated[str, at(3, "How long that span was, such as 15s.", required=True)] = ""
    containers: Annotated[
        tuple[ContainerMetrics, ...], at(4, "The containers that run.", required=True, list_type="atomic")
    ] = ()
