"""Nodes get their pod CIDRs on a real database, and agents are told of the others'."""

import httpx

from app.api.auth.authenticator import NODES as NODE_GROUP
from app.api.auth.authenticator import User
from app.api.auth.tokens import issue
from app.client.protocol import NetworkPeer, PodNetwork
from app.controllers.nodes.node_ipam import NodeIpamController
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node, NodeAddress, NodeStatus
from app.machinery.base import ObjectMeta
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.api.conftest import serving
from tests.conftest import NO_TLS
from tests.controllers.running import every, running, until
from tests.registry.examples import create

PATH = "/apis/agents.jobplane.dev/v1/nodes/n0/network"


async def a_node(registry: Registry, name: str) -> None:
    status = NodeStatus(addresses=(NodeAddress(type="InternalIP", address=f"192.0.2.{name[1:]}"),))
    await create(registry, NODES, Node(metadata=ObjectMeta(name=name), status=status))


async def cidrs(registry: Registry) -> dict[str, str]:
    return {each.metadata.name: each.spec.pod_cidr for each in await every(registry, NODES)}


async def test_nodes_that_come_get_a_cidr_and_one_that_goes_leaves_it(registry: Registry) -> None:
    await a_node(registry, "n0")
    async with running(registry, NodeIpamController):
        for number in range(1, 6):
            await a_node(registry, f"n{number}")
        await until(registry, lambda: count(registry, 4))
        gone = next(name for name, cidr in (await cidrs(registry)).items() if cidr and name != "n0")
        await objects.delete(registry, NODES, "", gone, Demand())
        await until(registry, lambda: count(registry, 4))

    found = [each for each in (await cidrs(registry)).values() if each]
    assert sorted(found) == [f"10.244.{number}.0/24" for number in range(4)]


async def count(registry: Registry, wanted: int) -> bool:
    found = await cidrs(registry)
    return sum(map(bool, found.values())) == wanted


async def test_an_agent_is_told_of_other_nodes_once(registry: Registry) -> None:
    for name in ("n0", "n1"):
        await a_node(registry, name)
    async with running(registry, NodeIpamController):
        await until(registry, lambda: count(registry, 2))
    token = await issue(registry, User(name="system:node:n0", groups=(NODE_GROUP,), nodes=("n0",)))
    async with (
        serving(registry) as url,
        httpx.AsyncClient(base_url=url, verify=NO_TLS, headers={"Authorization": f"Bearer {token}"}) as client,
    ):
        first = (await client.get(PATH)).json()
        again = (await client.get(PATH, params={"known": first["version"]})).json()
        other = await client.get(PATH.replace("n0", "n1"))

    mine = await cidrs(registry)
    peer = NetworkPeer("n1", mine["n1"], "192.0.2.1")
    assert first == {
        "version": first["version"],
        "cidr": mine["n0"],
        "cluster": "10.244.0.0/22",
        "peers": [[peer.node, peer.cidr, peer.address]],
    }
    assert again == {"version": first["version"]}
    assert other.status_code == 403
    soon = await registry.pod_networks.read("absent")  # that there is a network, of which it will get a part
    assert soon == PodNetwork(version=soon.version, cluster="10.244.0.0/22")
