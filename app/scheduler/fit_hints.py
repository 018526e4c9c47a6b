"""Fit hint: what would have to change for a pending pod to fit, computed from the same nodes as the diagnosis.

`Ranking.diagnose` asks for it; it ends the message of the condition PodScheduled, after kube-scheduler's own words. It names the
node that lacks the least, and what a person can change about a node that has room: uncordon it, remove a taint, set a label.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from app.kinds.core.node import UNSCHEDULABLE, Taint
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.machinery.quantity import canonical
from app.plans.nodes.tolerations import is_tolerated
from app.scheduler import filters
from app.scheduler.node_info import NodeInfo
from app.scheduler.pod_info import PodInfo

START = "Fits if "
_LOOKED_AT = 200  # nodes with room that are looked at for what else rejects the pod
_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_IN_BYTES = ("memory", "ephemeral-storage")

NodeInfos = Mapping[str, NodeInfo]
Reasons = Mapping[str, tuple[str, ...]]


def find_hint(pod: Pod, info: PodInfo, node_infos: NodeInfos, reasons: Reasons) -> str:
    """One sentence, or nothing if no single change would help. `reasons`: why each node is rejected."""
    about_resources: dict[tuple[str, ...], bool] = {}  # few nodes have reasons of their own
    full: list[str] = []
    others: list[str] = []
    for name, given in reasons.items():
        if given not in about_resources:
            about_resources[given] = _is_about_resources(given)
        (full if about_resources[given] else others).append(name)
    found = [
        _resource_hint(info.requests, full, node_infos),
        _node_hint(pod, info, sorted(others), node_infos, reasons),
    ]
    hints = [each for each in found if each]
    return f"{START}{'; or if '.join(hints)}." if hints else ""


def without_hint(message: str) -> str:
    """The message in kube-scheduler's words only. Hints change with each pod that ends, reasons do not."""
    return message.partition(f" {START}")[0]


# --- resources


def _is_about_resources(reasons: tuple[str, ...]) -> bool:
    return all(each == filters.TOO_MANY_PODS or each.startswith("Insufficient ") for each in reasons)


def _resource_hint(requests: Amounts, names: Sequence[str], node_infos: NodeInfos) -> str:
    """Of the nodes that are rejected for what is free on them only."""
    needs = [(name, count) for name, count in requests.items() if count > 0]
    large = [name for name in names if not _lack(needs, node_infos[name].allocatable)]
    if large:
        name = min((_lack(needs, node_infos[name].free), name) for name in large)[1]
        return _hint_to_free(requests, name, node_infos[name].free)
    if not names:
        return ""
    name = min((_lack(needs, node_infos[name].allocatable), name) for name in names)[1]
    return _hint_to_add(requests, name, node_infos[name].allocatable)


def _lack(needs: Iterable[tuple[str, int]], there: Mapping[str, int]) -> float:
    """The part of a request that is missing, of the resource of which most is missing. There may be 10,000 nodes."""
    worst = 0.0
    for name, count in needs:
        missing = count - there.get(name, 0)
        if missing > 0 and missing > worst * count:
            worst = missing / count
    return worst


def _hint_to_free(requests: Amounts, name: str, free: Mapping[str, int]) -> str:
    """The node is large enough, and too full."""
    short = filters.find_insufficient(free, requests)
    if short == ["pods"]:
        return f"a pod ends on {name}, which has as many as it may"
    short = [each for each in short if each != "pods"]
    wanted = " and ".join(_format_free(each, requests[each]) for each in short)
    there = " and ".join(_format(each, max(0, free.get(each, 0))) for each in short)
    nearest = "the most free is" if len(short) == 1 else "the nearest is"
    return f"a node has {wanted}: {nearest} {there} on {name}"


def _hint_to_add(requests: Amounts, name: str, has: Mapping[str, int]) -> str:
    """No node is large enough, however little runs on it."""
    short = filters.find_insufficient(has, requests)
    wanted = " and ".join(_format_whole(each, requests[each]) for each in short)
    there = " and ".join(_format(each, has.get(each, 0)) for each in short)
    return f"a node with {wanted} joins, or the pod requests less: the largest is {name} with {there}"


def _format_free(resource: str, count: int) -> str:
    if resource == "cpu":
        return f"{_format(resource, count)} free CPU{'' if count == 1000 else 's'}"
    return f"{_format(resource, count)}{' of' if resource in _IN_BYTES else ''} free {resource}"


def _format_whole(resource: str, count: int) -> str:
    if resource == "cpu":
        return f"{_format(resource, count)} CPU{'' if count == 1000 else 's'}"
    return f"{_format(resource, count)} of {resource}"


def _format(resource: str, count: int) -> str:
    """As a quantity that people read; bytes are rounded down to three digits or so."""
    if resource == "cpu":
        return canonical(f"{count}m")
    if resource not in _IN_BYTES and not resource.startswith("hugepages-"):
        return str(count)
    suffix, size = next((each for each in _BINARY if count >= each[1] and not count % each[1]), ("", 1))
    if count // size >= 10_000:
        suffix, size = next((each for each in _BINARY if count >= 10 * each[1]), (suffix, size))
    return f"{count // size}{suffix}"


# --- everything else about a node that has room


def _node_hint(pod: Pod, info: PodInfo, names: Iterable[str], node_infos: NodeInfos, reasons: Reasons) -> str:
    with_room = (each for each in names if not filters.find_insufficient(node_infos[each].free, info.requests))
    hints = (_hint_for_node(pod, info, node_infos[name], reasons[name]) for name in islice(with_room, _LOOKED_AT))
    return next((hint for hint in hints if hint), "")


def _hint_for_node(pod: Pod, info: PodInfo, node_info: NodeInfo, reasons: tuple[str, ...]) -> str:
    """The one change that makes the node fit; empty if it takes several, or depends on other pods."""
    node, name = node_info.node, node_info.node.metadata.name
    if info.volumes is not None and info.volumes.filter(node):
        return ""
    if reasons == (filters.PORTS_TAKEN,):
        return f"host port {info.host_ports[0].port} is free on {name}"
    taints = [each for each in node.spec.taints if _rejects(each, pod)]
    matches = filters.matches_node_affinity(pod, node)
    if node.spec.unschedulable:
        return f"{name} is uncordoned" if matches and not [each for each in taints if each.key != UNSCHEDULABLE] else ""
    if taints:
        taint = f"{{{taints[0].key}: {taints[0].value}}}"
        return f"the taint {taint} of {name} goes, or the pod tolerates it" if matches and len(taints) == 1 else ""
    return "" if matches else _affinity_hint(pod, node_info)


def _rejects(taint: Taint, pod: Pod) -> bool:
    return taint.effect != "PreferNoSchedule" and not is_tolerated(taint, pod.spec.tolerations)


def _affinity_hint(pod: Pod, node_info: NodeInfo) -> str:
    labels, name = node_info.node.metadata.labels, node_info.node.metadata.name
    missing = {key: value for key, value in pod.spec.node_selector.items() if labels.get(key) != value}
    if missing:
        wanted = ", ".join(f"{key}={value}" for key, value in sorted(missing.items()))
        return f"{name}, which has room, has the label{'s' if len(missing) > 1 else ''} {wanted}"
    return f"the pod's node affinity allows {name}, which has room"
