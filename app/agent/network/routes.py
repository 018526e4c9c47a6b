"""Routes to the pods of other nodes, by netlink, and what the node's firewall lets through. Called by `pod_network`, in a thread.

A route leads to a node on a network that this node is on; the kernel refuses any other. Routes that were made here have a
protocol number of their own, so that those of nodes which are gone are found and removed, also by a later agent.
"""

import errno
import subprocess
from ipaddress import IPv4Address, IPv4Network

from app.client.protocol import PodNetwork
from app.runtimes.linux.netlink import Netlink

PROTOCOL = 74  # of routes that are ours; not assigned to anybody in iproute2's rt_protos
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL)


def set_routes(network: PodNetwork, own_address: str) -> list[str]:
    """Make the routes be those to the peers; return the nodes that none leads to. Raises OSError."""
    unreachable = []
    wanted = {IPv4Network(each.cidr): each for each in network.peers if each.address != own_address}
    with Netlink() as kernel:
        existing = {each.network for each in kernel.routes() if each.protocol == PROTOCOL}
        for cidr in existing - wanted.keys():
            kernel.remove_route(cidr, PROTOCOL)
        for cidr, peer in wanted.items():
            try:
                kernel.set_route(cidr, IPv4Address(peer.address), PROTOCOL)
            except OSError as error:
                if error.errno not in _UNREACHABLE:
                    raise
                unreachable.append(peer.node)
    return unreachable


def open_firewall(network: PodNetwork) -> None:
    """Let pods' packets through, and give those to the rest of the world the node's address. Raises OSError."""
    cluster = str(IPv4Network(network.cluster))
    _ensure("filter", "FORWARD", "-s", cluster, "-j", "ACCEPT")
    _ensure("filter", "FORWARD", "-d", cluster, "-j", "ACCEPT")
    _ensure("nat", "POSTROUTING", "-s", network.cidr, "!", "-d", cluster, "-j", "MASQUERADE")


def _ensure(table: str, chain: str, *rule: str) -> None:
    if not _iptables("-t", table, "-C", chain, *rule).returncode:
        return
    done = _iptables("-t", table, "-I", chain, *rule)
    if done.returncode:
        raise OSError(errno.EPERM, f"iptables: {done.stderr.strip()}")


def _iptables(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["iptables", "-w", "10", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
