"""How long a change takes to reach those who watch. Each object carries the moment at which it was sent.

Everything runs on one machine, so the last of 1,000 watchers waits for the client's own work on the other 999: the note
says how much that is. Watchers only stamp what they receive; it is read after the last delivery.
"""

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, percentile, spread
from benchmarks.load import scaled
from benchmarks.wire import Connection

PATH = "/api/v1/namespaces/default/configmaps"
ROUNDS = ((1, 200), (100, 50), (1_000, 20))  # watchers, changes
PATIENCE = 30.0
OPENED_AT_ONCE = 200  # of one user; 256 more than are served would get 429
_SENT = re.compile(rb'"sent":"(\d+)"')


class Audience:
    """All watchers together. `heard` is set when `due` events have been delivered to them."""

    def __init__(self) -> None:
        self.due = 0
        self.heard = asyncio.Event()
        self._seen = 0

    def hear(self, events: int) -> None:
        self._seen += events
        if self._seen == self.due:
            self.heard.set()

    def expect(self, events: int) -> None:
        self.due += events
        self.heard.clear()


class Watcher:
    """Stamps what comes."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self._pieces: list[tuple[int, bytes]] = []

    def hear(self, piece: bytes) -> None:
        self._pieces.append((time.monotonic_ns(), piece))
        self._audience.hear(piece.count(b"\n"))

    def delays(self) -> Iterator[float]:
        """Milliseconds from sending a change to having received the whole of its event."""
        rest = b""
        for at, piece in self._pieces:
            *lines, rest = (rest + piece).split(b"\n")
            yield from ((at - int(sent)) / 1e6 for line in lines for sent in _SENT.findall(line)[:1])


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    figures = []
    async with checkout.up() as cluster:
        for watchers, changes in ROUNDS:
            figures += await _round(cluster, scaled(watchers, scale), scaled(changes, scale))
    return figures


async def _round(cluster: Cluster, watchers: int, changes: int) -> list[Figure]:
    client = cluster.client
    async with client.connection() as writer, client.connections(watchers) as connections:
        audience = Audience()
        opened = await _opened(writer, connections, audience)
        served, spent = cluster.cpu(), time.process_time()
        acknowledged = []
        for number in range(changes):
            audience.expect(watchers)
            acknowledged.append(await _change(writer, f"w{watchers}-{number}"))
            async with asyncio.timeout(PATIENCE):  # for the next, so that no delivery waits for an earlier change
                await audience.heard.wait()
        spent = time.process_time() - spent
        served = await cluster.spent_since(served)
    delays = [delay for each in opened for delay in each.delays()]
    if len(delays) != watchers * changes:
        raise RuntimeError(f"{watchers * changes} deliveries expected, {len(delays)} seen")
    client_each = spent * 1e6 / len(delays)
    note = f"acknowledged p50 {percentile(acknowledged, 50):.1f} ms; client's own CPU {client_each:.0f} us a delivery"
    server_each = sum(served.values()) * 1e6 / len(delays)
    return [
        *spread(f"{watchers} watchers", delays, "ms", note=note, p99_target=100),
        Figure(
            name=f"{watchers} watchers, server's CPU a delivery",
            value=server_each,
            unit="us",
            note="the write's among it",
        ),
    ]


async def _opened(asking: Connection, connections: list[Connection], audience: Audience) -> list[Watcher]:
    revision = (await asking.read(f"{PATH}?limit=1"))["metadata"]["resourceVersion"]
    opened = [Watcher(audience) for _ in connections]
    path = f"{PATH}?watch=true&resourceVersion={revision}"
    pairs = list(zip(connections, opened, strict=True))
    for start in range(0, len(pairs), OPENED_AT_ONCE):
        await asyncio.gather(
            *(each.stream(path, watcher.hear) for each, watcher in pairs[start : start + OPENED_AT_ONCE])
        )
    return opened


async def _change(writer: Connection, name: str) -> float:
    """The milliseconds until it was acknowledged."""
    sent = time.monotonic_ns()
    body: dict[str, Any] = {"metadata": {"name": name}, "data": {"sent": str(sent)}}
    await writer.post(PATH, {"apiVersion": "v1", "kind": "ConfigMap", **body})
    return (time.monotonic_ns() - sent) / 1e6


CASE = Case(
    name="watch-delivery",
    about="POST of a ConfigMap sent until a watcher has the event, with 1, 100 and 1,000 watchers of its namespace",
    run=run,
)
