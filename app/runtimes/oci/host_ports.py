"""Ports of the node that lead to pods of the oci runtime (`hostPort`): rules of the firewall, by iptables. Called by the runtime.

All rules of an agent are in two chains of its own, which are written as a whole whenever a pod with such a port comes or goes.
So what an agent that was killed left behind is right again with the next change, and when the next agent starts.
"""

import asyncio
import os
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from app.runtimes.base import Port
from app.runtimes.oci.network import LINKS, gateway_of

_PATIENCE = 30  # seconds
_ENTRIES = ("PREROUTING", "OUTPUT")
_LOCAL = ("-m", "addrtype", "--dst-type", "LOCAL")


class HostPorts:
    """Of one agent, whose folder is `root`."""

    def __init__(self, root: Path) -> None:
        suffix = f"{zlib.crc32(os.fsencode(root)):08X}"
        self._to, self._back = f"JOBPLANE-TO-{suffix}", f"JOBPLANE-BACK-{suffix}"
        self._lock = asyncio.Lock()
        self._written: Mapping[str, Sequence[Port]] | None = None

    async def publish(self, pods: Mapping[str, Sequence[Port]], network: IPv4Network) -> None:
        """Let the ports of these pods, by their addresses, be all that there are. Raises OSError."""
        wanted = {ip: ports for ip, ports in pods.items() if ports}
        async with self._lock:
            if self._written != wanted:
                await asyncio.to_thread(self._write, wanted, network)
                self._written = wanted

    def _write(self, pods: Mapping[str, Sequence[Port]], network: IPv4Network) -> None:
        to, back = self._to, self._back
        if not pods and _run("iptables", "-w", "10", "-t", "nat", "-n", "-L", to).returncode:
            return  # there were none before
        rules = [f"-A {to} {_rule(ip, port)}" for ip, ports in pods.items() for port in ports]
        if pods:  # answers have to come back by the node: to a pod that calls itself, and to who calls 127.0.0.1
            gateway = gateway_of(network)
            rules.append(
                f"-A {back} -s {network} -d {network} -m conntrack --ctstate DNAT -j SNAT --to-source {gateway}"
            )
            rules.append(f"-A {back} -s 127.0.0.0/8 -o {LINKS}+ -j SNAT --to-source {gateway}")
        text = "\n".join(("*nat", f":{to} - [0:0]", f":{back} - [0:0]", *rules, "COMMIT", ""))
        _demand(_run("iptables-restore", "-w", "10", "--noflush", text=text))
        for chain in _ENTRIES:
            _ensure("nat", chain, *_LOCAL, "-j", to)
        _ensure("nat", "POSTROUTING", "-j", back)
        # Pods' links route loopback addresses now: from pods, only answers may come to the node's own.
        answers = ("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT")
        _ensure("filter", "INPUT", "-i", f"{LINKS}+", "-d", "127.0.0.0/8", *answers, "-j", "DROP")


def _rule(ip: str, port: Port) -> str:
    at = f"-d {port.address} " if port.address and port.address != "0.0.0.0" else ""  # noqa: S104 - any address
    kind = port.protocol.lower()
    return f"-p {kind} {at}-m {kind} --dport {port.on_node} -j DNAT --to-destination {ip}:{port.number}"


def _ensure(table: str, chain: str, *rule: str) -> None:
    if _run("iptables", "-w", "10", "-t", table, "-C", chain, *rule).returncode:
        _demand(_run("iptables", "-w", "10", "-t", table, "-I", chain, *rule))


def _run(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=_PATIENCE)


def _demand(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise OSError(f"{done.args[0]}: {done.stderr.strip()}")
