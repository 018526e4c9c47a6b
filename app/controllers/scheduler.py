"""The scheduler: one round places all pending pods at once; each binding is a write set of its own.

Usage is kept as pods come and go, so a round costs what changed and the nodes, never all pods.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import cast

from app.controllers.work import Work
from app.kinds.base import Condition, Object
from app.kinds.node import KIND as NODES
from app.kinds.node import Node
from app.kinds.pod import KIND as PODS
from app.kinds.pod import Pod, condition, is_terminal
from app.kinds.pod_resources import requests
from app.plans import schedule
from app.plans.plan import Emit, Plan, Update
from app.plans.schedule import Room, Wish
from app.registry.binding import bound, with_condition
from app.store import Key, Mirror

TOGETHER = 64  # bindings of one write set
ROUND = Key("scheduler", "", "round")
SAY_AGAIN = timedelta(seconds=15)  # how often a pod that stays pending is told a changed reason
MOST = 2_000  # pods of one round


class Scheduler:
    component = "default-scheduler"

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._pending: dict[Key, tuple[Pod, Wish]] = {}
        self._rooms: dict[str, Room] = {}
        self._placed: dict[Key, tuple[str, dict[str, int]]] = {}
        self._in_vain = 0  # pods looked at since anything changed, all without a place

    def woken(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        keys: Iterable[Key] = []
        if key.kind == NODES.resource:
            keys = self._node_changed(key.name, cast("Node | None", before), cast("Node | None", now))
        if key.kind == PODS.resource:
            keys = self._pod_changed(key, cast("Pod | None", now))
        if keys:
            self._in_vain = 0
        return keys

    def _node_changed(self, name: str, before: Node | None, now: Node | None) -> Iterable[Key]:
        if now is None:
            self._rooms.pop(name, None)
            return []
        if before is not None and name in self._rooms and _offers_the_same(before, now):
            self._rooms[name].node = now
            return []
        self._rooms[name] = schedule.room(now)
        for node, needs in self._placed.values():
            if node == name:
                schedule.take(self._rooms, name, needs)
        return [ROUND] if self._pending else []

    def _pod_changed(self, key: Key, pod: Pod | None) -> Iterable[Key]:
        placed = self._placed.pop(key, None)
        if placed:
            schedule.take(self._rooms, *placed, sign=-1)
        freed = placed is not None and (pod is None or is_terminal(pod))
        if pod is not None and pod.spec.node_name and not is_terminal(pod):
            self._placed[key] = (pod.spec.node_name, placed[1] if placed else requests(pod))
            schedule.take(self._rooms, *self._placed[key])
        if pod is not None and _is_pending(pod):
            known = self._pending.get(key)
            same = known is not None and known[0].spec == pod.spec
            self._pending[key] = (pod, known[1] if known and same else schedule.wish(pod))
            return [] if same else [ROUND]
        self._pending.pop(key, None)
        return [ROUND] if freed and self._pending else []

    def everything(self) -> Iterable[Key]:
        for kind in (NODES.resource, PODS.resource):
            for each in list(self._mirror.all(kind)):
                self.woken(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        return [ROUND]

    def work(self, key: Key, now: datetime) -> Sequence[Work]:  # noqa: ARG002 - there is only one key
        pods = list(islice(self._pending.values(), MOST))
        if not pods:
            return []
        rooms = {name: Room(each.node, dict(each.free), each.size) for name, each in self._rooms.items()}
        outcome = schedule.schedule(pods, rooms)
        stamp = now.replace(microsecond=0)
        works = [_binding(outcome.bound[n : n + TOGETHER], stamp) for n in range(0, len(outcome.bound), TOGETHER)]
        works += [each for pod, why in outcome.unbound if (each := _told(pod, why, stamp))]
        return [*works, *self._next_turn(len(pods), outcome, now)]

    def _next_turn(self, looked_at: int, outcome: schedule.Outcome, now: datetime) -> Iterable[Work]:
        """If more wait than one round looks at: those without a place go to the end of the queue, so that all have a turn."""
        if len(self._pending) <= looked_at:
            return
        for pod, _ in outcome.unbound:
            key = Key(PODS.resource, pod.metadata.namespace, pod.metadata.name)
            self._pending[key] = self._pending.pop(key)
        self._in_vain = 0 if outcome.bound else self._in_vain + looked_at
        if self._in_vain < len(self._pending):
            yield Work(Plan(again_at=now))


def _offers_the_same(before: Node, now: Node) -> bool:
    return (
        before.spec == now.spec
        and before.status.allocatable == now.status.allocatable
        and before.metadata.labels == now.metadata.labels
    )


def _is_pending(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and not is_terminal(pod)
        and not pod.spec.scheduling_gates
        and pod.spec.scheduler_name in ("", "default-scheduler")
    )


def _binding(pairs: Sequence[tuple[Pod, str]], now: datetime) -> Work:
    """Some bindings as one write set. If one pod has changed meanwhile all are tried again, which is rare and cheap."""
    updates = [Update(bound(pod, node, now), pod) for pod, node in pairs]
    return Work(Plan((*updates, *(_scheduled(pod, node) for pod, node in pairs))))


def _scheduled(pod: Pod, node: str) -> Emit:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return Emit("Normal", "Scheduled", f"Successfully assigned {name} to {node}", pod)


def _told(pod: Pod, why: str, now: datetime) -> Work | None:
    """Say why a pod stays pending: at once, and again when the reason has changed for a while."""
    said = condition(pod.status.conditions, "PodScheduled")
    if said is not None and said.status == "False":
        since = said.last_probe_time or said.last_transition_time
        if said.message == why or (since is not None and now - since < SAY_AGAIN):
            return None
    since = said.last_transition_time if said is not None and said.status == "False" else now
    unschedulable = Condition(
        type="PodScheduled",
        status="False",
        reason="Unschedulable",
        message=why,
        last_probe_time=now,
        last_transition_time=since,
    )
    return Work(Plan((Update(with_condition(pod, unschedulable), pod), Emit("Warning", "FailedScheduling", why, pod))))
