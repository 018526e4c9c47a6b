"""The scheduler: one round places all pending pods at once; each binding is a write set of its own.

`app.plans.scheduling` decides, on a cluster that is kept up to date here as nodes and pods come and go. What a round has
placed counts from then on, before it is committed: so no two rounds give away the same room.
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
from app.plans.plan import Emit, Plan, Update
from app.plans.scheduling import DEFAULT, Cluster, Outcome, Pending, Settings, Wish, Wishes, schedule
from app.registry.binding import bound, with_condition
from app.registry.codec import NAMESPACES
from app.store import Key, Mirror

TOGETHER = 64  # bindings of one write set
ROUND = Key("scheduler", "", "round")
SAY_AGAIN = timedelta(seconds=15)  # how often a pod that stays pending is told a changed reason
MOST = 2_000  # pods of one round


class Scheduler:
    component = "default-scheduler"

    def __init__(self, mirror: Mirror, settings: Settings = DEFAULT) -> None:
        self._mirror = mirror
        self._wishes = Wishes()
        self._cluster = Cluster(settings)
        self._pending: dict[Key, Pending] = {}
        self._assumed: set[str] = (
            set()
        )  # UIDs of pods that were placed by the last round, and not yet seen on their nodes
        self._in_vain = 0  # pods looked at since anything changed, all without a place

    def woken(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        keys: Iterable[Key] = []
        if key.kind == NODES.resource:
            keys = self._node_changed(key.name, cast("Node | None", now))
        if key.kind == PODS.resource:
            keys = self._pod_changed(key, cast("Pod | None", before), cast("Pod | None", now))
        if key.kind == NAMESPACES:
            keys = self._namespace_changed(key.name, now)
        if keys:
            self._in_vain = 0
        return keys

    def _node_changed(self, name: str, now: Node | None) -> Iterable[Key]:
        changed = self._cluster.set_node(now) if now is not None else self._cluster.remove_node(name)
        return [ROUND] if changed and self._pending else []

    def _namespace_changed(self, name: str, now: Object | None) -> Iterable[Key]:
        changed = self._cluster.set_namespace(name, now.metadata.labels if now is not None else None)
        return [ROUND] if changed and self._pending else []

    def _pod_changed(self, key: Key, before: Pod | None, now: Pod | None) -> Iterable[Key]:
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            self._pending.pop(key, None)
            freed = self._is_gone(before.metadata.uid)
        else:
            freed = now is not None and is_terminal(now) and self._is_gone(now.metadata.uid)
        if now is not None and _is_pending(now):
            return self._waits(key, now)
        waited = self._pending.pop(key, None)
        if now is not None and now.spec.node_name and not is_terminal(now):
            self._assumed.discard(now.metadata.uid)
            self._cluster.place(now, now.spec.node_name, self._wish_of(now, waited))
        return [ROUND] if freed and self._pending else []

    def _is_gone(self, uid: str) -> bool:
        """Take a pod from its node; True if it was on one."""
        self._assumed.discard(uid)
        return self._cluster.unplace(uid) is not None

    def _waits(self, key: Key, pod: Pod) -> Iterable[Key]:
        known = self._pending.get(key)
        same = known is not None and known[0].spec == pod.spec and known[0].metadata.labels == pod.metadata.labels
        self._pending[key] = (pod, known[1] if known and same else self._wishes.of(pod))
        return [] if same else [ROUND]

    def _wish_of(self, pod: Pod, waited: Pending | None) -> Wish:
        placed = self._cluster.placed.get(pod.metadata.uid)
        if placed is not None:
            return placed.wish
        return waited[1] if waited is not None else self._wishes.of(pod)

    def everything(self) -> Iterable[Key]:
        for kind in (NAMESPACES, NODES.resource, PODS.resource):
            for each in list(self._mirror.all(kind)):
                self.woken(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        return [ROUND]

    def work(self, _: Key, now: datetime) -> Sequence[Work]:
        self._forget_assumed()
        pods = list(islice(self._pending.values(), MOST))
        if not pods:
            return []
        outcome = schedule(pods, self._cluster)
        self._cluster.forget()
        self._assumed.update(pod.metadata.uid for pod, _ in outcome.bound)
        stamp = now.replace(microsecond=0)
        works = [_binding(outcome.bound[n : n + TOGETHER], stamp) for n in range(0, len(outcome.bound), TOGETHER)]
        works += [each for pod, why in outcome.unbound if (each := _told(pod, why.text(), stamp))]
        return [*works, *self._next_turn(len(pods), outcome, now)]

    def _forget_assumed(self) -> None:
        """All of the last round is committed or refused, and what was committed has been seen: the rest did not happen."""
        for uid in self._assumed:
            self._cluster.unplace(uid)
        self._assumed.clear()

    def _next_turn(self, looked_at: int, outcome: Outcome, now: datetime) -> Iterable[Work]:
        """If more wait than one round looks at: those without a place go to the end of the queue, so that all have a turn."""
        if len(self._pending) <= looked_at:
            return
        for pod, _ in outcome.unbound:
            key = Key(PODS.resource, pod.metadata.namespace, pod.metadata.name)
            self._pending[key] = self._pending.pop(key)
        self._in_vain = 0 if outcome.bound else self._in_vain + looked_at
        if self._in_vain < len(self._pending):
            yield Work(Plan(again_at=now))


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
