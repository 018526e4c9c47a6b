"""Node usage: taken from agents, and read back for the metrics API.

What is said of a pod counts only in the word of the node that the pod is bound to, so that no agent can speak for
another's.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

import msgspec

from app.machinery.base import Struct, at
from app.registry.registry import Registry

STALE_AFTER = timedelta(seconds=60)
_FORGOTTEN_AFTER = timedelta(hours=1)
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Used(Struct):
    """How much: nanocores on average over the window, bytes at its end."""

    cpu: Annotated[_Count, at(0)] = 0
    memory: Annotated[_Count, at(0)] = 0


class NodeUsage(Struct):
    """A node's report. `pods` has what each container uses, by pod UID and container name."""

    node: Annotated[str, at(0)] = ""
    window: Annotated[float, msgspec.Meta(gt=0, le=3600), at(0)] = 1.0
    used: Annotated[Used, at(0)] = msgspec.field(default_factory=Used)
    pods: Annotated[dict[str, dict[str, Used]], at(0)] = msgspec.field(default_factory=dict)


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
