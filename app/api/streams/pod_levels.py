"""Pod Security levels in an agent's watch of its pods: each pod that it adds comes with the level of its namespace.

That spares the agent a request before each start. The member stands beside the object, and only where an agent asks for it by a
parameter of the query, so that Kubernetes' own watches are what they are.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.requests import Request

from app.api.http.query import parse_flag, query_of
from app.api.http.response_shape import ResponseShape
from app.api.resources.selection import Selection
from app.client.protocol import WITH_LEVELS
from app.kinds.pod.pod import KIND as PODS
from app.registry.agents.namespace_levels import recall_level
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Event

AddLevels = Callable[[Sequence[Event], Sequence[bytes]], Awaitable[list[bytes]]]
"""Takes events and their lines; returns the lines with the levels."""


def make_level_adder(
    registry: Registry, request: Request, shape: ResponseShape, selection: Selection
) -> AddLevels | None:
    """Return what adds the levels; None unless an agent watches its own pods and asks for levels."""
    if shape.kind is not PODS or not shape.is_plain_json or not parse_flag(query_of(request), WITH_LEVELS):
        return None
    if not request.state.user.is_node(selection.fields.requirement("spec.nodeName") or ""):
        return None

    async def add_levels(events: Sequence[Event], lines: Sequence[bytes]) -> list[bytes]:
        added = {event.object.key.namespace for event in events if event.type == "ADDED"}
        levels = {each: msgspec.json.encode(await recall_level(registry, each)) for each in added}
        pairs = zip(events, lines, strict=True)
        return [
            _with_level(line, levels[event.object.key.namespace]) if event.type == "ADDED" else line
            for event, line in pairs
        ]

    return add_levels


def _with_level(line: bytes, level: bytes) -> bytes:
    """Put the level beside the object of a line, which ends with a brace and a line break."""
    return b'%b,"namespace":%b}\n' % (line[:-2], level)
