"""The node controller: looks at a node when it, its lease or its pods change, and when its lease would have run out."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.lease import NODE_NAMESPACE, Lease
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.durations import FIRST, span
from app.plans.nodes import node_lifecycle as node_plan
from app.plans.nodes import node_loss_timing
from app.plans.plan import Delete, Plan
from app.store import Key, Mirror


class NodeLifecycleController:
    component = "node-controller"
    kinds = frozenset({LEASES.resource, NODES.resource, PODS.resource})

    def __init__(
        self, mirror: Mirror, clock: Callable[[], datetime], elapsed: Callable[[], float], grace: timedelta
    ) -> None:
        """`elapsed`: seconds that only rise. Neither nodes' clocks nor a change of this machine's loses a node."""
        self._mirror = mirror
        self._clock = clock
        self._elapsed = elapsed
        self._grace = grace
        self._seen_at: dict[str, float] = {}
        self._renewed: set[str] = set()  # nodes whose lease was renewed since this process looks
        self._missing_since: dict[str, float] = {}
        self._pods: defaultdict[str, dict[Key, Pod]] = defaultdict(dict)

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == LEASES.resource and key.namespace == NODE_NAMESPACE:
            return self._lease_changed(key.name, cast("Lease | None", before), cast("Lease | None", now))
        if key.kind == NODES.resource:
            return self._node_changed(key.name, now is not None)
        if key.kind == PODS.resource:
            return self._pod_changed(key, cast("Pod | None", before), cast("Pod | None", now))
        return []

    def _lease_changed(self, node: str, before: Lease | None, now: Lease | None) -> Iterable[Key]:
        """A renewal is of interest only if the node counts as lost; else the deadline simply moves."""
        if now is None or (before is not None and before.spec == now.spec):
            return []  # no renewal: it went, or was labelled
        if before is not None:
            self._renewed.add(node)
        self._seen_at[node] = self._elapsed()
        here = cast("Node | None", self._mirror.get(_key(node)))
        return [_key(node)] if here is not None and _is_lost(here) else []

    def _node_changed(self, name: str, exists: bool) -> Iterable[Key]:
        if exists:
            self._missing_since.pop(name, None)
            self._seen_at.setdefault(name, self._elapsed())
        else:
            self._missing_since.setdefault(name, self._elapsed())
            self._seen_at.pop(name, None)
            self._renewed.discard(name)
        return [_key(name)]

    def _pod_changed(self, key: Key, before: Pod | None, now: Pod | None) -> Iterable[Key]:
        names = {pod.spec.node_name for pod in (before, now) if pod is not None and pod.spec.node_name}
        for name in names:
            if now is not None and now.spec.node_name == name:
                self._pods[name][key] = now
            elif name in self._pods:
                self._pods[name].pop(key, None)
                if not self._pods[name]:
                    del self._pods[name]
        return [_key(name) for name in names if self._has_work(name)]

    def _has_work(self, name: str) -> bool:
        """Pods of a healthy node are nothing to look at."""
        node = cast("Node | None", self._mirror.get(_key(name)))
        if node is None:
            self._missing_since.setdefault(name, self._elapsed())
            return True
        return any(taint.effect == "NoExecute" for taint in node.spec.taints)

    def enqueue_all(self) -> Iterable[Key]:
        return [_key(node.metadata.name) for node in self._mirror.all(NODES.resource)] + [
            _key(name) for name in self._missing_since
        ]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        node = cast("Node | None", self._mirror.get(key))
        pods = list(self._pods.get(key.name, {}).values())
        lease = cast("Lease | None", self._mirror.get(Key(LEASES.resource, NODE_NAMESPACE, key.name)))
        if node is None and not pods:
            self._missing_since.pop(key.name, None)
            return []
        if node is None:
            since = self._on_the_clock(self._missing_since.setdefault(key.name, self._elapsed()))
            return [PlannedWrite(node_plan.plan_without_node(key.name, pods, since, now.replace(microsecond=0)))]
        seen_at = self._on_the_clock(self._seen_at.setdefault(key.name, self._elapsed()))
        if _is_lost(node) and key.name not in self._renewed:
            seen_at = FIRST  # another process has found it lost; that this one has come to act brings no node back
        plan = node_plan.plan(node, pods, seen_at, self._grace_of(lease), now)
        return [PlannedWrite(plan, [lease] if lease is not None and _ends_pods(plan) else ())]

    def _on_the_clock(self, moment: float) -> datetime:
        """Time of day of a monotonic moment, by the clock as it goes now."""
        return self._clock() - timedelta(seconds=self._elapsed() - moment)

    def _grace_of(self, lease: Lease | None) -> timedelta:
        seconds = lease.spec.lease_duration_seconds if lease is not None else None
        return node_loss_timing.lost_after(None if seconds is None else span(seconds), self._grace)


def _key(node: str) -> Key:
    return Key(NODES.resource, "", node)


def _ends_pods(plan: Plan) -> bool:
    """Without their node's word: only if no renewal was committed that the mirror does not show yet."""
    return any(isinstance(each, Delete) and each.grace_period_seconds == 0 for each in plan.actions)


def _is_lost(node: Node) -> bool:
    return any(each.status == "Unknown" for each in node.status.conditions)
