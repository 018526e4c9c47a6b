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
    """`cluster`: the cluster's pod CIDR as this process was told; empty: there is none, or the nodes say."""

    def __init__(self, store: Store, cluster: str = "") -> None:
        self._cluster = cluster
        self._cache = MirrorCache(store, frozenset({NODES.resource}))
        self._mirror: Mirror | None = None
        self._peers: dict[str, NetworkPeer] | None = None
        self._seen = ""  # the cluster's, as some node has it

    async def read(self, node: str) -> PodNetwork:
        """Return the network as this node sees it. With `cluster` and without `cidr` the node will get one soon."""
        mirror = await self._follow()
        if self._peers is None:
            found = (_peer(cast("Node", each)) for each in mirror.all(NODES.resource))
            self._peers = {each.node: each for each in found if each is not None}
            self._seen = _cluster_of(mirror)
        own, itself = self._peers.get(node), cast("Node | None", mirror.get(key_of(NODES, "", node)))
        if own is None or itself is None:
            return _numbered(PodNetwork(cluster=self._cluster or self._seen))
        others = tuple(each for name, each in sorted(self._peers.items()) if name != node)
        cluster = itself.metadata.annotations.get(CLUSTER_CIDR, own.cidr)
        return _numbered(PodNetwork(cidr=own.cidr, cluster=cluster, peers=others))

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


def _numbered(network: PodNetwork) -> PodNetwork:
    """With a version; 0 stands for no pod network at all."""
    if not network.cluster:
        return network
    return msgspec.structs.replace(network, version=zlib.crc32(msgspec.json.encode(network)) or 1)


def _cluster_of(mirror: Mirror) -> str:
    """Empty if no node has one."""
    nodes = (cast("Node", each) for each in mirror.all(NODES.resource))
    return next((found for each in nodes if (found := each.metadata.annotations.get(CLUSTER_CIDR))), "")


def _peer(node: Node) -> NetworkPeer | None:
    address = next((each.address for each in node.status.addresses if each.type == "InternalIP"), "")
    return NetworkPeer(node.metadata.name, node.spec.pod_cidr, address) if node.spec.pod_cidr and address else None
