"""Filters: which nodes a pod may run on, as far as only the two of them matter: the node, and what is left on it.

What other pods have to do with it is in `affinity` and `topology_spread`. A pod that names its node is not scheduled at
all, so there is no filter for that. Of volumes only claims keep a pod from every node: there are no PersistentVolumeClaims.
The texts are Kubernetes'.
"""

from collections.abc import Mapping

from app.kinds.core.node import UNSCHEDULABLE, Node, Taint
from app.kinds.pod.affinity import NodeSelector
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.plans.nodes.node_selector import selects
from app.plans.nodes.tolerations import is_tolerated
from app.scheduler.pod_info import HostPort, missing_claim

CORDONED = "node(s) were unschedulable"
UNSELECTED = "node(s) didn't match Pod's node affinity/selector"
UNNAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"  # no node can have all names that a term asks for
UNCLAIMED = 'persistentvolumeclaim "{}" not found'
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY = "Too many pods"

_CORDON = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
_NAME = "metadata.name"

Ports = dict[tuple[str, int], dict[str, int]]
"""Taken host ports: by protocol and number, how many pods have it at which address."""


def barred(pod: Pod, node: Node) -> str:
    """Why the pod may not run on the node, whatever the room there; empty if it may."""
    if claim := missing_claim(pod):
        return UNCLAIMED.format(claim)
    tolerations = pod.spec.tolerations
    if pod.spec.affinity is not None:
        named = _named(pod)
        if named is not None and node.metadata.name not in named:
            return UNNAMED if named else CONFLICT
    if node.spec.unschedulable and not is_tolerated(_CORDON, tolerations):
        return CORDONED
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return "" if is_selected(pod, node) else UNSELECTED


def is_of_the_pod(reason: str) -> bool:
    """Whether a reason is the same on every node: Kubernetes tells it without a count."""
    return reason == CONFLICT or reason.startswith(UNCLAIMED.partition("{")[0])


def bears(pod: Pod, node: Node) -> bool:
    """Whether the pod tolerates all that keeps pods from the node."""
    return all(
        taint.effect == "PreferNoSchedule" or is_tolerated(taint, pod.spec.tolerations) for taint in node.spec.taints
    )


def is_selected(pod: Pod, node: Node) -> bool:
    """By the pod's node selector, and by the node affinity that it requires."""
    for key, value in pod.spec.node_selector.items():
        if node.metadata.labels.get(key) != value:
            return False
    wanted = _wanted(pod)
    return wanted is None or selects(wanted, node)


def _wanted(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _named(pod: Pod) -> frozenset[str] | None:
    """The nodes that the pod asks for by name, if all of its terms do so."""
    wanted = _wanted(pod)
    names: set[str] = set()
    for term in wanted.node_selector_terms if wanted else ():
        by_name = [each.values for each in term.match_fields if each.key == _NAME and each.operator == "In"]
        if not by_name:
            return None
        names.update(set(by_name[0]).intersection(*by_name[1:]))
    return frozenset(names) if wanted and wanted.node_selector_terms else None


def lacking(free: Mapping[str, int], needs: Amounts) -> list[str]:
    """The resources of which too little is left."""
    return [name for name, count in needs.items() if free.get(name, 0) < count]


def insufficient(resource: str) -> str:
    return TOO_MANY if resource == "pods" else f"Insufficient {resource}"


def are_taken(ports: tuple[HostPort, ...], taken: Ports) -> bool:
    """A port is taken at every address if somebody has it at all of them, and the other way round."""
    for protocol, port, ip in ports:
        there = taken.get((protocol, port))
        if there and (not ip or ip in there or "" in there):
            return True
    return False


def take_ports(ports: tuple[HostPort, ...], taken: Ports, sign: int) -> None:
    for protocol, port, ip in ports:
        there = taken.setdefault((protocol, port), {})
        there[ip] = there.get(ip, 0) + sign
        if not there[ip]:
            del there[ip]
        if not there:
            del taken[protocol, port]
