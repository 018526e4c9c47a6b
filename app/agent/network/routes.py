"""Routes to the pods of other nodes, by netlink, and what the node's firewall lets through. Called by `pod_network`, in a thread.

A route leads to a node on a network that this node is on; the kernel refuses any other. Routes that were made here have a
protocol number of their own, so that those of nodes which are gone are found and removed, also by a later agent.
"""

import errno
import subprocess
from collections.abc import Iterable
from ipaddress import IPv4Network

from app.client.protocol import PodNetwork

PROTOCOL = 74  # of routes that are ours; not assigned to anybody in iproute2's rt_protos
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL)


def set_routes(network: PodNetwork, own_address: str) -> list[str]:
    """Make the routes be those to the peers; return the nodes that none leads to. Raises OSError."""
    from pyroute2 import IPRoute  # takes 0.3 s to import, which only this runtime needs
    from pyroute2.netlink.exceptions import NetlinkError

    unreachable = []
    wanted = {each.cidr: each for each in network.peers if each.address != own_address}
    with IPRoute() as kernel:
        for cidr in _existing(kernel.get_routes(proto=PROTOCOL)) - wanted.keys():
            kernel.route("del", dst=cidr, proto=PROTOCOL)
        for cidr, peer in wanted.items():
            try:
                kernel.route("replace", dst=cidr, gateway=peer.address, proto=PROTOCOL)
            except NetlinkError as error:
                if error.code not in _UNREACHABLE:
                    raise OSError(error.code, str(error), cidr) from error
                unreachable.append(peer.node)
    return unreachable


def _existing(routes: Iterable[object]) -> set[str]:
    found = ((route.get("dst"), route["dst_len"]) for route in routes)  # type: ignore[attr-defined, index]
    return {f"{address}/{length}" for address, length in found if address}


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
