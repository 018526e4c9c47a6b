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
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, percentile, spread
from benchmarks.load import scaled
from benchmarks.wire import Client, Connection

PATH = "/api/v1/namespaces/default/configmaps"
ROUNDS = ((1, 200), (100, 50), (1_000, 20))  # watchers, changes
PAUSE = 0.02  # between changes, on top of the time that the deliveries take
PATIENCE = 30.0
_SENT = re.compile(rb'"sent":"(\d+)"')


class Watcher:
    """Stamps what comes."""

    def __init__(self) -> None:
        self.seen = 0
        self._pieces: list[tuple[int, bytes]] = []

    def hear(self, piece: bytes) -> None:
        self._pieces.append((time.monotonic_ns(), piece))
        self.seen += piece.count(b"\n")

    def delays(self) -> Iterator[float]:
        """Milliseconds from sending a change to having received the whole of its event."""
        rest = b""
        for at, piece in self._pieces:
            *lines, rest = (rest + piece).split(b"\n")
            yield from ((at - int(sent)) / 1e6 for line in lines for sent in _SENT.findall(line)[:1])


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    figures = []
    async with checkout.up() as cluster:
        await cluster.settle(10)
        for watchers, changes in ROUNDS:
            figures += await _round(cluster.client, scaled(watchers, scale), scaled(changes, scale))
    return figures


async def _round(client: Client, watchers: int, changes: int) -> list[Figure]:
    async with client.connection() as writer, client.connections(watchers) as connections:
        heard = await _opened(writer, connections)
        spent = time.process_time()
        acknowledged = [await _change(writer, heard, f"w{watchers}-{number}", number + 1) for number in range(changes)]
        spent = time.process_time() - spent
    delays = [delay for each in heard for delay in each.delays()]
    if len(delays) != watchers * changes:
        raise RuntimeError(f"{watchers * changes} deliveries expected, {len(delays)} seen")
    client_each = spent * 1e6 / len(delays)
    note = f"acknowledged p50 {percentile(acknowledged, 50):.1f} ms; client's own CPU {client_each:.0f} us a delivery"
    return spread(f"{watchers} watchers", delays, "ms", note=note)


async def _opened(asking: Connection, connections: list[Connection]) -> list[Watcher]:
    revision = (await asking.read(f"{PATH}?limit=1"))["metadata"]["resourceVersion"]
    heard = [Watcher() for _ in connections]
    path = f"{PATH}?watch=true&resourceVersion={revision}"
    await asyncio.gather(*(each.stream(path, watcher.hear) for each, watcher in zip(connections, heard, strict=True)))
    return heard


async def _change(writer: Connection, heard: list[Watcher], name: str, due: int) -> float:
    """Make a change and wait until all have it, so that no delivery waits for an earlier change."""
    sent = time.monotonic_ns()
    body: dict[str, Any] = {"metadata": {"name": name}, "data": {"sent": str(sent)}}
    await writer.post(PATH, {"apiVersion": "v1", "kind": "ConfigMap", **body})
    acknowledged = (time.monotonic_ns() - sent) / 1e6
    async with asyncio.timeout(PATIENCE):
        while any(each.seen < due for each in heard):
            await asyncio.sleep(PAUSE)
    return acknowledged


CASE = Case(
    name="watch-delivery",
    about="POST of a ConfigMap sent until a watcher has the event, with 1, 100 and 1,000 watchers of its namespace",
    run=run,
)
