"""Many requests at once over a few connections, timed."""

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec

from benchmarks.wire import Connection


async def post_all(connections: Sequence[Connection], path: str, bodies: Iterable[object]) -> list[float]:
    """POST them all, each connection the next one as soon as it is free. The milliseconds that each took."""
    waiting = iter([msgspec.json.encode(each) for each in bodies])
    took: list[float] = []

    async def poster(connection: Connection) -> None:
        for body in waiting:
            began = time.perf_counter()
            await connection.request("POST", path, body)
            took.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for each in connections:
            group.create_task(poster(each))
    return took


def scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale))
