"""Pod network cache: pod CIDRs and addresses of all nodes, which agents ask for to set their routes.

As new as the feed's cursor. Made anew only when a CIDR or an address changes, not with each status of a node.
"""

import zlib
from typing import cast

import msgspec

from app.client.protocol import NetworkPeer, PodNetwork
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node
from app.plans.nodes.node_ipam import CLUSTER_CIDR
from app.registry.codec import key_of
from app.registry.mirror_cache import MirrorCache
from app.store import Key, Mirror, Store


class PodNetworkCache:
    def __init__(self, store: Store) -> None:
        self._cache = MirrorCache(store, frozenset({NODES.resource}))
        self._mirror: Mirror | None = None
        self._peers: dict[str, NetworkPeer] | None = None

    async def read(self, node: str) -> PodNetwork:
        """Return the network as this node sees it."""
        mirror = await self._follow()
        if self._peers is None:
            found = (_peer(cast("Node", each)) for each in mirror.all(NODES.resource))
            self._peers = {each.node: each for each in found if each is not None}
        own, itself = self._peers.get(node), cast("Node | None", mirror.get(key_of(NODES, "", node)))
        if own is None or itself is None:
            return PodNetwork()
        others = tuple(each for name, each in sorted(self._peers.items()) if name != node)
        made = PodNetwork(cidr=own.cidr, cluster=itself.metadata.annotations.get(CLUSTER_CIDR, own.cidr), peers=others)
        return msgspec.structs.replace(made, version=zlib.crc32(msgspec.json.encode(made)) or 1)

    async def _follow(self) -> Mirror:
        mirror = await self._cache.mirror()
        if mirror is not self._mirror:
            self._mirror, self._peers = mirror, None
            mirror.listen(self._on_change)
        return mirror

    def _on_change(self, _: Key, before: object | None, now: object | None) -> None:
        old, new = (_peer(cast("Node", each)) if each else None for each in (before, now))
        if old != new:
            self._peers = None


def _peer(node: Node) -> NetworkPeer | None:
    address = next((each.address for each in node.status.addresses if each.type == "InternalIP"), "")
    return NetworkPeer(node.metadata.name, node.spec.pod_cidr, address) if node.spec.pod_cidr and address else None
