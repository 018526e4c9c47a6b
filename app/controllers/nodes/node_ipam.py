"""Node IPAM controller: gives each node its pod CIDR. The decision is `app.plans.nodes.node_ipam`.

All nodes are one key, so that no two plans of one process give away the same.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from ipaddress import IPv4Network
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node
from app.machinery.base import Object
from app.plans.nodes import node_ipam
from app.plans.plan import Emit, Plan
from app.store import Key, Mirror

_ALL = Key(NODES.resource, "", "")


class NodeIpamController:
    component = "cidrAllocator"
    kinds = frozenset({NODES.resource})

    def __init__(self, mirror: Mirror, cluster: IPv4Network) -> None:
        self._mirror, self._cluster = mirror, cluster
        self._refused: set[str] = set()  # UIDs of nodes that were told that nothing is left

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """A node comes, or goes and leaves its CIDR to another."""
        if key.kind != NODES.resource or (before is not None and now is not None):
            return ()
        if now is None:
            self._refused.clear()
        return [_ALL]

    def enqueue_all(self) -> Iterable[Key]:
        return [_ALL]

    def reconcile(self, _key: Key, now: datetime) -> Sequence[PlannedWrite]:
        nodes = [cast("Node", each) for each in self._mirror.all(NODES.resource)]
        plan = node_ipam.plan([each for each in nodes if each.metadata.uid not in self._refused], self._cluster)
        self._refused |= {each.about.metadata.uid for each in plan.actions if isinstance(each, Emit)}
        again_at = now if len(plan.actions) == node_ipam.MOST else None
        return [PlannedWrite(Plan(plan.actions, again_at))] if plan.actions else ()
