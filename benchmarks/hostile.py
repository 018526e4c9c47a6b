"""Two hundred hostile clients as a process of their own, for the case `hostile_clients`: floods, slow readers, storms.

`python -m benchmarks.hostile PORT CA_FILE SECONDS` reads a token from standard input, prints a line once all have begun, stops by
itself, and prints how often each sort of client was served, refused, or cut off. Only ever against 127.0.0.1.
"""

import asyncio
import ssl
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import uvloop

HOST = "127.0.0.1"
LISTS, SLOW, LARGE, STORM, WATCHERS = 60, 40, 40, 40, 20  # clients of each sort: 200
WATCHES_EACH = 500
LARGE_BODY = 4 << 20  # more than the API takes
PAUSE = 0.05  # of a client that is refused or cut off: it is hostile, and no busy loop
PATH = "/api/v1/namespaces/hostile/configmaps"
Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class Attack:
    """All clients: where they go, until when, and what became of their requests."""

    def __init__(self, port: int, ca_file: str, token: str, seconds: float) -> None:
        self._port, self._trust = port, ssl.create_default_context(cafile=ca_file)
        self._head = f"HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._ends = time.monotonic() + seconds
        self.outcomes: Counter[str] = Counter()

    async def run(self) -> None:
        sorts: list[tuple[int, str, Callable[[], Awaitable[str]]]] = [
            (LISTS, "list", self._list),
            (SLOW, "slow reader", self._read_slowly),
            (LARGE, "large body", self._send_much),
            (STORM, "reconnect", self._reconnect),
            (WATCHERS * WATCHES_EACH, "watch", self._watch),
        ]
        async with asyncio.TaskGroup() as group:
            for count, name, act in sorts:
                for _ in range(count):
                    group.create_task(self._repeat(name, act))

    async def _repeat(self, name: str, act: Callable[[], Awaitable[str]]) -> None:
        while (left := self._ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    outcome = await act()
            except TimeoutError:
                return
            except (OSError, asyncio.IncompleteReadError, ValueError):
                outcome = "cut off"
            self.outcomes[f"{name}: {outcome}"] += 1
            await asyncio.sleep(PAUSE)

    async def _ask(self, method: str, path: str, body_size: int = 0) -> tuple[Reader, Writer, str]:
        """Send a request on a connection of its own; its streams, and the code of the answer."""
        reader, writer = await asyncio.open_connection(
            HOST, self._port, ssl=self._trust, server_hostname="localhost", limit=4 << 20
        )
        try:
            writer.write(f"{method} {path} {self._head}Content-Length: {body_size}\r\n\r\n".encode())
            sent = 0
            while sent < body_size:  # as much as the API takes
                writer.write(b"x" * min(64 << 10, body_size - sent))
                sent += 64 << 10
                await writer.drain()
            line = await reader.readline()
            return reader, writer, line.split()[1].decode() if line else "cut off"
        except BaseException:
            writer.transport.abort()
            raise

    async def _list(self) -> str:
        reader, writer, code = await self._ask("GET", PATH)
        try:
            await reader.readuntil(b'"metadata":' if code == "200" else b"}")
            return code
        finally:
            writer.transport.abort()

    async def _read_slowly(self) -> str:
        reader, writer, code = await self._ask("GET", PATH)
        try:
            while await reader.read(1):  # noqa: ASYNC110 - being slow is what it is for
                await asyncio.sleep(0.5)
            return code
        finally:
            writer.transport.abort()

    async def _send_much(self) -> str:
        _, writer, code = await self._ask("POST", PATH, LARGE_BODY)
        writer.transport.abort()
        return code

    async def _reconnect(self) -> str:
        _, writer, code = await self._ask("GET", f"{PATH}/none")
        writer.transport.abort()
        return code

    async def _watch(self) -> str:
        reader, writer, code = await self._ask("GET", f"{PATH}?watch=1&resourceVersion=0")
        try:
            while code == "200" and await reader.read(64 << 10):
                pass
            await asyncio.sleep(1.0)
            return code
        finally:
            writer.transport.abort()


async def _main() -> None:
    port, ca_file, seconds = sys.argv[1:]
    attack = Attack(int(port), ca_file, sys.stdin.readline().strip(), float(seconds))
    print("begun", flush=True)
    with suppress(asyncio.CancelledError):
        await attack.run()
    print(", ".join(f"{name} {count}" for name, count in sorted(attack.outcomes.items())), flush=True)


if __name__ == "__main__":
    uvloop.run(_main())
