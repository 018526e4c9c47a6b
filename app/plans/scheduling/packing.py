"""All pods of a group in one place: nodes with the same value of a label, such as one zone or one rack.

Of the places with room for all, the fullest is tried first, so that large ones stay free for large groups. Pure; for `gangs`.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache

from msgspec.structs import replace

from app.kinds.pod import Pod
from app.plans.scheduling.cluster import Cluster
from app.plans.scheduling.round import Pending
from app.plans.scheduling.slots import most_slots
from app.plans.scheduling.wish import Wish, wish

Place = tuple[str, str] | None
"""A label and its value; None is anywhere."""


def places(
    label: str, pods: Sequence[Pending], needed: int, nodes: Collection[str], cluster: Cluster
) -> Iterable[Place]:
    """Where to try, in order. `nodes` have pods of the group already: then it is their place or none."""
    if not label:
        return (None,)
    taken = sorted({cluster.rooms[node].node.metadata.labels.get(label, "") for node in nodes if node in cluster.rooms})
    if taken:
        return ((label, taken[0]),) if taken[0] else ()
    room = _room(label, {wish.key: wish for _, wish in pods}.values(), cluster)
    enough = [value for value in room if room[value] >= max(needed, 1)]
    if not enough:  # one is tried all the same, to hear why
        return ((label, min(room, key=lambda value: (-room[value], value))),) if room else ()
    total = len(pods)
    return [(label, value) for value in sorted(enough, key=lambda value: (*_rank(room[value], total), value))]


def _room(label: str, wishes: Collection[Wish], cluster: Cluster) -> Counter[str]:
    """For how many of the pods each place may have room."""
    found: Counter[str] = Counter()
    for room in cluster.rooms.values():
        value = room.node.metadata.labels.get(label)
        if value:
            found[value] += most_slots(room, wishes)
    return found


def _rank(room: int, total: int) -> tuple[bool, int]:
    """The fullest that takes all; then, of those that do not, the one that takes most."""
    return (False, room) if room >= total else (True, -room)


def inside(pods: Iterable[Pending], place: Place) -> Iterable[Pending]:
    """The pods, as if each had asked for nodes of that place."""
    if place is None:
        return pods
    label, value = place

    def narrowed(pod: Pod) -> Pod:
        selector = pod.spec.node_selector | {label: value}
        return replace(pod, spec=replace(pod.spec, node_selector=selector))

    @cache
    def narrow(original: Wish) -> Wish:
        return wish(narrowed(original.pod))

    return [(narrowed(pod), narrow(original)) for pod, original in pods]


def told(label: str) -> str:
    """What to add to a count of pods that can be placed."""
    return f" on nodes with the same {label}" if label else ""


def nowhere(label: str) -> str:
    return f"no node has the label {label}, which all pods of the group must have in common"
