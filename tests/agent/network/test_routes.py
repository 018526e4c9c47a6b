"""Routes in a network namespace of the test's own: those that can be are made, and what is gone is removed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from app.client.protocol import NetworkPeer, PodNetwork
from tests.e2e.machines import Network, laid
from tests.runtimes import engines

SCRIPT = """
import json, sys
import msgspec
from app.agent.network.routes import open_firewall, set_routes
from app.client.protocol import PodNetwork
network = msgspec.json.decode(sys.argv[1], type=PodNetwork)
open_firewall(network)
print(json.dumps(set_routes(network, "10.213.83.11")))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    engines.needed("iptables")
    with laid(Network("jproutes", "10.213.83", ["a"])) as network:
        yield network


def run(network: Network, *command: str) -> str:
    whole = [*network.into("a"), *command]
    return subprocess.run(
        whole, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": "."}
    ).stdout


def set_routes(network: Network, **peers: str) -> list[str]:
    """What cannot be reached; and the routes are as they should be, which is looked at by `ip`."""
    made = tuple(NetworkPeer(name, f"10.214.{number}.0/24", at) for number, (name, at) in enumerate(peers.items(), 1))
    wanted = PodNetwork(version=1, cidr="10.214.0.0/24", cluster="10.214.0.0/16", peers=made)
    text = msgspec.json.encode(wanted).decode()
    unreachable: list[str] = json.loads(run(network, sys.executable, "-c", SCRIPT, text))
    return unreachable


def routes(network: Network) -> dict[str, str]:
    found = json.loads(run(network, "ip", "-j", "route", "show", "proto", "74"))
    return {each["dst"]: each["gateway"] for each in found}


def test_routes_follow_the_nodes(network: Network) -> None:
    assert set_routes(network, b="10.213.83.12", far="198.51.100.7", twin="10.213.83.11") == ["far"]
    assert routes(network) == {"10.214.1.0/24": "10.213.83.12"}

    assert set_routes(network, b="10.213.83.13", c="10.213.83.14") == []
    assert routes(network) == {"10.214.1.0/24": "10.213.83.13", "10.214.2.0/24": "10.213.83.14"}

    assert set_routes(network) == []
    assert routes(network) == {}
    rules = run(network, "iptables-save")
    assert rules.count("-A POSTROUTING -s 10.214.0.0/24 ! -d 10.214.0.0/16 -j MASQUERADE") == 1
    assert rules.count("-j ACCEPT") == 2
