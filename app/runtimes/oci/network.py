"""Pod network of the oci runtime: for each pod a pair of links, an address of the node's pod CIDR, and a route to it.

Pods are on no bridge: the node routes between them, and takes from each link only what comes from that pod's address. So a pod
may have raw sockets, which `ping` wants, and cannot pretend to be another. The node is at the CIDR's first address, on `lo`.
A pod's network namespace is its holder's. It goes with the pod's last process, and its links and route with it: nothing has to be
removed, whatever was killed. A link is named by the pod's address, so the kernel refuses an address that is still in use.
Only ports of the node that lead to pods are rules of the firewall, which `host_ports` writes.
"""

import asyncio
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from app.runtimes.base import CreateError, Unsupported
from app.runtimes.linux import network_namespaces
from app.runtimes.linux.netlink import LOOPBACK, Netlink, link_index

LINK, LINKS = "eth0", "jpv"  # in the pod, and how names of those of the node begin
EVERYWHERE = IPv4Network("0.0.0.0/0")
_SETTINGS, _SETTINGS_6 = Path("/proc/sys/net/ipv4"), Path("/proc/sys/net/ipv6")
# As container engines have them: `ping`, and ports below 1024, without rights. Nobody else is in the pod's network.
_OPEN = {"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"}


class PodLinks:
    """Of one agent, whose folder is `root`. Without a CIDR pods share the node's network."""

    def __init__(self, root: Path) -> None:
        self._label = f"lo:jp-{zlib.crc32(os.fsencode(root)):08x}"
        self.cidr: IPv4Network | None = None
        self._taken: set[IPv4Address] = set()
        self._last = 0
        self._thread = ThreadPoolExecutor(max_workers=1)

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def use(self, cidr: str) -> None:
        """Give pods addresses of it from now on. Raises OSError, Unsupported."""
        network = IPv4Network(cidr)
        if network == self.cidr:
            return
        try:
            await network_namespaces.call_in_thread(partial(_prepare, self._label, network))
        except PermissionError as error:
            raise Unsupported("the agent lacks the rights to make links and addresses (CAP_NET_ADMIN)") from error
        self.cidr, self._last = network, secrets.randbelow(network.num_addresses)

    async def attach(self, holder: int, *, has_ports: bool) -> str:
        """Lay links to the network namespace of a process; return the address. Raises CreateError, OSError.

        has_ports: ports of the node will lead to it.
        """
        if self.cidr is None:
            raise CreateError("pods have no network of their own")
        for address in self._candidates(self.cidr):
            self._taken.add(address)
            attach = partial(_attach, holder, address, gateway_of(self.cidr), has_ports=has_ports)
            try:
                await self._call(attach)
            except FileExistsError:  # of a pod that is about to end
                self._taken.discard(address)
            except BaseException:
                self._taken.discard(address)
                raise
            else:
                return str(address)
        raise CreateError(f"no address is left in {self.cidr}")

    async def _call(self, attach: Callable[[], None]) -> None:
        """One after the other: whoever changes links while another does waits for him, some of it in a loop in the kernel."""
        thread = self._thread
        try:
            await asyncio.get_running_loop().run_in_executor(thread, attach)
        except BaseException:  # it may not have come back from the pod's network
            if self._thread is thread:
                self._thread = ThreadPoolExecutor(max_workers=1)
            thread.shutdown(wait=False)
            raise

    def take(self, address: str) -> None:
        """It is a pod's already. Fine if it is empty."""
        with suppress(ValueError):
            self._taken.add(IPv4Address(address))

    def release(self, address: str) -> None:
        with suppress(ValueError):
            self._taken.discard(IPv4Address(address))

    def _candidates(self, network: IPv4Network) -> Iterator[IPv4Address]:
        """Yield free addresses, from the last one on, so that an address stays unused for as long as can be."""
        first, count = int(network.network_address), network.num_addresses
        for _ in range(count):
            self._last = (self._last + 1) % count
            address = IPv4Address(first + self._last)
            if 1 < self._last < count - 1 and address not in self._taken:
                yield address


def gateway_of(network: IPv4Network) -> IPv4Address:
    return network.network_address + 1


def _prepare(label: str, network: IPv4Network) -> None:
    gateway = gateway_of(network)
    with Netlink() as kernel:
        for other in {*kernel.addresses(label)} - {gateway}:  # of a node that was deleted and has another CIDR now
            kernel.remove_address(LOOPBACK, other)
            with suppress(ProcessLookupError):
                kernel.remove_refusal(IPv4Network((other, network.prefixlen), strict=False))
        kernel.add_address(LOOPBACK, gateway, label)
        kernel.refuse(network)
    forward = _SETTINGS / "ip_forward"
    if forward.read_text().strip() != "1":
        forward.write_text("1")


def _attach(holder: int, address: IPv4Address, gateway: IPv4Address, *, has_ports: bool) -> None:
    """In a thread, which visits the pod's network. Raises OSError, Unsupported."""
    name = f"{LINKS}{int(address):08x}"
    namespace = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Netlink() as kernel:
            # The hardware address follows from the other one: who remembers it from an earlier pod is right.
            kernel.make_veth(name, LINK, namespace, b"\x0a\x58" + address.packed)
            own = _SETTINGS / "conf" / name
            (own / "rp_filter").write_text("1")
            with suppress(FileNotFoundError):  # a pod could announce itself as the node's router
                (_SETTINGS_6 / "conf" / name / "disable_ipv6").write_text("1")
            if has_ports:
                (own / "route_localnet").write_text("1")  # for calls of 127.0.0.1 on the node
            kernel.set_neighbour_route(address, link_index(name), gateway)
        with network_namespaces.visit(namespace):
            _set_up_inside(address, gateway)
    finally:
        os.close(namespace)


def _set_up_inside(address: IPv4Address, gateway: IPv4Address) -> None:
    with Netlink() as kernel:
        kernel.set_up(LOOPBACK)
        index = link_index(LINK)
        kernel.add_address(index, address, LINK)
        kernel.set_up(index)
        kernel.set_route(EVERYWHERE, gateway, link=index)
    for setting, value in _OPEN.items():
        with suppress(OSError):  # not every kernel has them, or lets them be written
            (_SETTINGS / setting).write_text(value)
