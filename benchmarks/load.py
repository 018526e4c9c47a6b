"""Many requests at once over a few connections, timed."""

import asyncio
import time
from collections.abc import Iterable, Sequence

import msgspec

from benchmarks.wire import Connection


async def post_all(connections: Sequence[Connection], path: str, bodies: Iterable[object]) -> list[float]:
    """POST them all, each connection the next one as soon as it is free. The milliseconds that each took."""
    return await _ask_all(connections, "POST", [(path, msgspec.json.encode(each)) for each in bodies])


async def patch_all(connections: Sequence[Connection], paths: Iterable[str], body: object) -> list[float]:
    """Merge the same into all of these."""
    merged = msgspec.json.encode(body)
    return await _ask_all(connections, "PATCH", [(path, merged) for path in paths])


async def delete_all(connections: Sequence[Connection], paths: Iterable[str]) -> list[float]:
    """DELETE them all."""
    return await _ask_all(connections, "DELETE", [(path, b"") for path in paths])


async def get_all(connections: Sequence[Connection], path: str, count: int) -> list[float]:
    """GET the same thing so often."""
    return await _ask_all(connections, "GET", [(path, b"")] * count)


async def _ask_all(connections: Sequence[Connection], method: str, asked: list[tuple[str, bytes]]) -> list[float]:
    waiting = iter(asked)
    took: list[float] = []

    async def asker(connection: Connection) -> None:
        for path, body in waiting:
            began = time.perf_counter()
            await connection.request(method, path, body)
            took.append((time.perf_counter() - began) * 1000)

    async with asyncio.TaskGroup() as group:
        for each in connections:
            group.create_task(asker(each))
    return took


def scaled(count: int, scale: float) -> int:
    return max(1, round(count * scale))
