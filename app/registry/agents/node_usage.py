"""Node usage: taken from agents, and read back for the metrics API.

What is said of a pod counts only in the word of the node that the pod is bound to, so that no agent can speak for
another's.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from app.client.protocol import NodeUsage
from app.registry.registry import Registry

STALE_AFTER = timedelta(seconds=60)
_FORGOTTEN_AFTER = timedelta(hours=1)


async def accept(registry: Registry, reports: Sequence[NodeUsage], owns: Callable[[str], bool]) -> int:
    """Keep the reports on nodes that the reporter speaks for; how many those were."""
    mine = {each.node: msgspec.json.encode(each) for each in reports if owns(each.node)}
    if mine:
        now = registry.now()
        await registry.store.usage.write(mine, now, now - _FORGOTTEN_AFTER)
    return len(mine)


class Known(NamedTuple):
    """A report that is fresh, and when it came."""

    at: datetime
    usage: NodeUsage


async def known(registry: Registry, nodes: Collection[str]) -> dict[str, Known]:
    """The fresh reports on these nodes, by node."""
    found = await registry.store.usage.read(nodes, registry.now() - STALE_AFTER)
    return {node: Known(each.at, _decode(each.body)) for node, each in found.items()}


_decode = msgspec.json.Decoder(NodeUsage).decode
