"""Which node each pending pod goes to. Pure: the same nodes, usage and pods give the same bindings.

Pods that ask for the same things form a class; filters run once a class and node, and a heap hands out the best node for
each pod of the class. The scheduler controller keeps the usage and carries out what comes back.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from app.kinds.affinity import Toleration
from app.kinds.node import UNSCHEDULABLE, Node, Taint
from app.kinds.pod import Pod
from app.kinds.pod_resources import Amounts, amount, requests
from app.plans.node_selection import selects

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass
class Room:
    """A node and what is left on it. `free` counts resources as `pod_resources` does, and `pods`."""

    node: Node
    free: Amounts
    size: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class Wish:
    """What the pods of one class have in common. `key` is equal for pods that can be treated alike."""

    key: bytes
    needs: Amounts
    pod: Pod  # any of them, for what filters look at


@dataclass(frozen=True)
class Outcome:
    """Bindings as (pod, node name), and why the rest stay pending."""

    bound: Sequence[tuple[Pod, str]]
    unbound: Sequence[tuple[Pod, str]]


def room(node: Node) -> Room:
    """An empty node."""
    size = {name: amount(name, quantity) for name, quantity in node.status.allocatable.items()}
    return Room(node, dict(size), size)


def take(rooms: Mapping[str, Room], node: str, needs: Amounts, sign: int = 1) -> None:
    """Count a pod as being on a node (or, with sign -1, as gone from it)."""
    here = rooms.get(node)
    if here is None:
        return
    for name, count in needs.items():
        here.free[name] = here.free.get(name, 0) - sign * count
    here.free["pods"] = here.free.get("pods", 0) - sign


def wish(pod: Pod) -> Wish:
    """A pod's class."""
    spec = pod.spec
    affinity = spec.affinity.node_affinity if spec.affinity else None
    resources = [(each.resources, each.restart_policy) for each in (*spec.containers, *spec.init_containers)]
    key = _encode((resources, spec.overhead, spec.node_selector, spec.tolerations, affinity, len(spec.init_containers)))
    return Wish(key, requests(pod), pod)


def schedule(pods: Iterable[tuple[Pod, Wish]], rooms: Mapping[str, Room]) -> Outcome:
    """Place the pods, in the order given within a class; takes their room from `rooms`."""
    classes: dict[bytes, list[tuple[Pod, Wish]]] = {}
    for pod, its_wish in pods:
        classes.setdefault(its_wish.key, []).append((pod, its_wish))
    bound: list[tuple[Pod, str]] = []
    unbound: list[tuple[Pod, str]] = []
    for members in classes.values():
        _place([pod for pod, _ in members], members[0][1], rooms, bound, unbound)
    return Outcome(bound, unbound)


def _place(
    pods: list[Pod],
    its_wish: Wish,
    rooms: Mapping[str, Room],
    bound: list[tuple[Pod, str]],
    unbound: list[tuple[Pod, str]],
) -> None:
    reasons = {name: why_not(its_wish.pod, here.node) for name, here in rooms.items()}
    needs = {**its_wish.needs, "pods": 1}
    heap = [(_load(here, needs), name) for name, here in rooms.items() if not reasons[name]]
    heapq.heapify(heap)
    for position, pod in enumerate(pods):
        node = _best(heap, rooms, needs)
        if node is None:
            message = explain(rooms, reasons, needs)
            unbound += [(each, message) for each in pods[position:]]
            return
        take(rooms, node, its_wish.needs)
        heapq.heappush(heap, (_load(rooms[node], needs), node))
        bound.append((pod, node))


def _best(heap: list[tuple[float, str]], rooms: Mapping[str, Room], needs: Amounts) -> str | None:
    """The least loaded node with room; nodes without leave the heap, as they will not get any for this class."""
    while heap:
        _, name = heapq.heappop(heap)
        if not _lacking(rooms[name], needs):
            return name
    return None


def _lacking(here: Room, needs: Amounts) -> list[str]:
    return [name for name, count in needs.items() if count > 0 and here.free.get(name, 0) < count]


def _load(here: Room, needs: Amounts) -> float:
    """How full the node would be by its fullest resource: least allocated wins, then the name."""
    shares = [
        1 - (here.free.get(name, 0) - needs.get(name, 0)) / size
        for name, size in here.size.items()
        if size and name in {"cpu", "memory", "pods"}
    ]
    return max(shares, default=0.0)


def why_not(pod: Pod, node: Node) -> str:
    """Why the pod may not run on the node, whatever the room there; empty if it may. Kubernetes' words."""
    if node.spec.unschedulable and not _tolerated(pod, _UNSCHEDULABLE):
        return "node(s) were unschedulable"
    taint = next((each for each in node.spec.taints if _keeps_out(pod, each)), None)
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not _selected(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


_UNSCHEDULABLE = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


def _keeps_out(pod: Pod, taint: Taint) -> bool:
    return taint.effect in {"NoSchedule", "NoExecute"} and not _tolerated(pod, taint)


def _tolerated(pod: Pod, taint: Taint) -> bool:
    return any(tolerates(each, taint) for each in pod.spec.tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint (core/v1's rules: an empty key with Exists covers all)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _selected(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    wanted = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return wanted is None or selects(wanted, node)


def explain(rooms: Mapping[str, Room], reasons: Mapping[str, str], needs: Amounts) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable.`"""
    if not rooms:
        return "no nodes available to schedule pods"
    counted: Counter[str] = Counter()
    for name, here in rooms.items():
        if reasons[name]:
            counted[reasons[name]] += 1
        else:
            counted.update(_named(lacking) for lacking in _lacking(here, needs))
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{len(rooms)} nodes are available: {told}."


def _named(resource: str) -> str:
    return "Too many pods" if resource == "pods" else f"Insufficient {resource}"
