"""Pod CIDRs of nodes: each node gets a part of the cluster's, once and for as long as it exists. Pure.

As Kubernetes' node IPAM controller with its default mask: /24, which is 254 addresses. Called by the node IPAM controller.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

from msgspec.structs import replace

from app.kinds.core.node import Node
from app.machinery.cidr import MASK
from app.plans.plan import Action, Emit, Plan, Update

CLUSTER_CIDR = "jobplane.dev/cluster-cidr"  # annotation of a node: what its own CIDR is a part of
MOST = 250  # nodes in one plan


def plan(nodes: Iterable[Node], cluster: IPv4Network) -> Plan:
    """Give a CIDR to each node that has none; an event on a node for which none is left."""
    nodes = list(nodes)
    free = _free(nodes, cluster)
    actions: list[Action] = []
    for node in sorted((each for each in nodes if not each.spec.pod_cidr), key=lambda each: each.metadata.name)[:MOST]:
        cidr = next(free, None)
        actions.append(_exhausted(node, cluster) if cidr is None else _assign(node, str(cidr), str(cluster)))
    return Plan(tuple(actions))


def _free(nodes: Iterable[Node], cluster: IPv4Network) -> Iterator[IPv4Network]:
    used = {each.spec.pod_cidr for each in nodes}
    return (each for each in cluster.subnets(new_prefix=MASK) if str(each) not in used)


def _assign(node: Node, cidr: str, cluster: str) -> Action:
    meta = replace(node.metadata, annotations=node.metadata.annotations | {CLUSTER_CIDR: cluster})
    return Update(replace(node, metadata=meta, spec=replace(node.spec, pod_cidr=cidr, pod_cidrs=(cidr,))), node)


def _exhausted(node: Node, cluster: IPv4Network) -> Action:
    message = f"Node {node.metadata.name} status is now: CIDRNotAvailable: {cluster} has no /{MASK} left"
    return Emit("Normal", "CIDRNotAvailable", message, node, once=True)
