"""CNI configuration of a CRI engine: the pod network, where nobody else has configured one. Called by the cri runtime.

The engine reads its folder of configurations by itself whenever a file changes there.
"""

import json
from pathlib import Path
from typing import Any

from app.runtimes.cri.engine import CriEngine

BRIDGE = "jobplane0"
FOLDER = Path("/etc/cni/net.d")  # where an engine looks that does not tell
NAME = "10-jobplane.conflist"
_SUFFIXES = (".conf", ".conflist", ".json")


async def write(engine: CriEngine, node: str, cidr: str) -> bool:
    """Configure the network of the node's pods. False, and nothing is written, if there is another configuration.

    Raises ConnectionError, OSError.
    """
    folder = Path((await engine.config()).get("cni", {}).get("confDir") or FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    if any(each.suffix in _SUFFIXES and each.name != NAME for each in folder.iterdir()):
        return False
    text, file = json.dumps(configuration(node, cidr), indent=2), folder / NAME
    if not file.exists() or file.read_text() != text:
        fresh = folder / f"{NAME}.new"
        fresh.write_text(text)
        fresh.rename(file)
    return True


def configuration(node: str, cidr: str) -> dict[str, Any]:
    """A bridge with the node's CIDR, whose first address is the pods' gateway, and published ports."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": cidr}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "forceAddress": True,  # of a node that was deleted and has another CIDR now
        "hairpinMode": True,
        "ipMasq": False,  # the agent does, but not between nodes
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": f"jobplane-{node}", "plugins": [bridge, ports]}
