"""Machines of one's own, for agents: network namespaces behind a bridge, from which they reach a Jobplane on this machine."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e import preloaded, processes
from tests.e2e.cluster import Cluster, environment, until
from tests.e2e.secret_values import KNOWN, find_leaks
from tests.needs import lacking

INBOUND = (  # nobody gets in but with the answers to what was asked from inside
    "-P INPUT DROP",
    "-A INPUT -i lo -j ACCEPT",
    "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Network:
    """A bridge, by whose name everything is called, and a namespace for each machine."""

    def __init__(self, bridge: str, prefix: str, machines: Sequence[str]) -> None:
        self.bridge, self._prefix, self.machines = bridge, prefix, tuple(machines)
        self.host = f"{prefix}.1"

    def space(self, machine: str) -> str:
        return f"{self.bridge}-{machine}"

    def address(self, machine: str) -> str:
        return f"{self._prefix}.{11 + self.machines.index(machine)}"

    def _link(self, machine: str) -> str:
        """The end that is here."""
        return f"{self.bridge}{self.machines.index(machine)}"

    def lay(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("address", "add", f"{self.host}/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for machine in self.machines:
            space, link = self.space(machine), self._link(machine)
            ip("netns", "add", space)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", link, "master", self.bridge, "up")
            ip("-n", space, "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def close_inbound(self) -> None:
        for machine in self.machines:
            for rule in INBOUND:
                command = [*self.into(machine), "iptables", *rule.split()]
                subprocess.run(command, check=True, capture_output=True)

    def into(self, machine: str) -> list[str]:
        """What a command begins with that is to run there."""
        return ["ip", "netns", "exec", self.space(machine)]

    def plug(self, machine: str, how: str) -> None:
        """`up` or `down`."""
        ip("link", "set", self._link(machine), how)

    def remove(self) -> None:
        spaces = (("netns", "delete", self.space(machine)) for machine in self.machines)
        for arguments in (*spaces, ("link", "delete", self.bridge)):
            subprocess.run(["ip", *arguments], check=False, capture_output=True)


@contextmanager
def laid(network: Network, *, closed: bool = False) -> Iterator[Network]:
    """Skips, or in CI fails, where none can be laid."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for program in ("ip", *(["iptables"] if closed else [])):
        if shutil.which(program) is None:
            lacking(f"the program {program} is not there")
    network.remove()
    try:
        network.lay()
        if closed:
            network.close_inbound()
        yield network
    except subprocess.CalledProcessError as error:
        lacking(f"this kernel lays no such network: {error.cmd}: {error.stderr.decode()}")
    finally:
        network.remove()


class Server(Cluster):
    """One that listens where the machines reach it."""

    def __init__(self, folder: Path, host: str, **settings: str) -> None:
        super().__init__(folder, "--host", host, **settings)
        self.url = f"https://{host}:{self.port}"


def command(*arguments: str) -> list[str]:
    """What runs a service. `preloaded.program` runs what ends by itself, sooner."""
    return [sys.executable, "-m", "app.main.cli", *arguments]


def jobplane(*arguments: str) -> str:
    """What a command of the pages prints."""
    call = [str(preloaded.program()), *arguments]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    KNOWN.note_output(done.stdout)
    return done.stdout


@contextmanager
def agent(
    network: Network, machine: str, name: str, given: Sequence[str], folder: Path, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """One that runs there, on a folder beside which its log is. Whatever happens, nothing of it is left."""
    more = ["--node-name", name, "--data-dir", str(folder)]
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        running = subprocess.Popen(
            [*network.into(machine), *command(*given, *more)], stdout=log, stderr=log, env=environment(**settings)
        )
    try:
        yield running
        running.send_signal(signal.SIGTERM)
        running.wait(30)
        KNOWN.note_folder(folder)
        assert find_leaks(folder, [folder.with_name(f"{folder.name}.log")]) == []
    finally:
        running.kill()
        running.wait()
        for each in processes.naming(f"{folder}/"):  # its pods outlive it
            with suppress(ProcessLookupError):
                processes.kill(each.pid)
        until(lambda: not processes.naming(f"{folder}/"), 20, f"nothing is left in {folder}")


def ready(client: httpx.Client) -> dict[str, dict[str, Any]]:
    nodes = client.get("/api/v1/nodes").json()["items"]
    return {
        each["metadata"]["name"]: each
        for each in nodes
        if any(one["type"] == "Ready" and one["status"] == "True" for one in each["status"].get("conditions", []))
    }
