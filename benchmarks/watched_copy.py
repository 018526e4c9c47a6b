"""Watched copy: what a client that lists once and then watches believes to be there, through restarts of the API.

Used by cases that kill the API: in the end the copy has to be what a LIST says, or the watch has lost something.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from benchmarks.wire import Client, Connection, RefusedError

AGAIN_SECONDS = 0.1
PAGE = 5_000


class _Meta(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""  # noqa: N815 - Kubernetes' name


class _Object(msgspec.Struct):
    metadata: _Meta


class _Line(msgspec.Struct):
    type: str
    object: _Object


_decode = msgspec.json.Decoder(_Line).decode


class WatchedCopy:
    """The resource versions of all objects of a collection, by name, and how often it has begun what."""

    def __init__(self, client: Client, path: str) -> None:
        self.versions: dict[str, str] = {}
        self.lists = self.watches = self.events = 0
        self._client, self._path = client, path
        self._revision = ""
        self._rest = b""
        self._ended = asyncio.Event()

    async def follow(self) -> None:
        """List, then watch until cancelled; a watch that ends goes on from where it was."""
        while True:
            with contextlib.suppress(OSError, RefusedError):
                await self._follow_once()
            await asyncio.sleep(AGAIN_SECONDS)

    async def _follow_once(self) -> None:
        async with self._client.connection() as connection:
            if not self._revision:
                self.versions, self._revision = await list_versions(connection, self._path)
                self.lists += 1
            self._rest = b""
            self._ended.clear()
            query = f"watch=true&allowWatchBookmarks=true&resourceVersion={self._revision}"
            await connection.stream(f"{self._path}?{query}", self._hear)
            self.watches += 1
            await self._ended.wait()

    def _hear(self, piece: bytes) -> None:
        if not piece:
            self._ended.set()
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._see(_decode(line))

    def _see(self, event: _Line) -> None:
        meta = event.object.metadata
        self.events += 1
        if event.type == "ERROR":  # the revision is too old: list anew
            self._revision = ""
            self._ended.set()
            return
        self._revision = meta.resourceVersion
        if event.type == "DELETED":
            self.versions.pop(meta.name, None)
        elif event.type != "BOOKMARK":
            self.versions[meta.name] = meta.resourceVersion


@asynccontextmanager
async def followed(copy: WatchedCopy) -> AsyncIterator[WatchedCopy]:
    """Follow from before the block on until its end."""
    following = asyncio.create_task(copy.follow())
    try:
        while not copy.watches:  # noqa: ASYNC110 - the server may be starting
            await asyncio.sleep(AGAIN_SECONDS)
        yield copy
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def list_versions(connection: Connection, path: str) -> tuple[dict[str, str], str]:
    """The resource versions of a collection by name, and its own, read in pages."""
    found: dict[str, str] = {}
    token, revision = "", ""
    while True:
        page = await connection.read(f"{path}?limit={PAGE}&continue={token}")
        found |= {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in page["items"]}
        token, revision = page["metadata"].get("continue", ""), page["metadata"]["resourceVersion"]
        if not token:
            return found, revision


async def find_differences(copy: WatchedCopy, client: Client, path: str, patience: float) -> int:
    """How many objects the copy has otherwise than a LIST, once it has had so many seconds to follow."""
    async with asyncio.timeout(patience), client.connection() as connection:
        listed, _ = await list_versions(connection, path)
    for _ in range(int(patience / AGAIN_SECONDS)):
        if copy.versions == listed:
            return 0
        await asyncio.sleep(AGAIN_SECONDS)
    return len(set(copy.versions.items()) ^ set(listed.items()))
