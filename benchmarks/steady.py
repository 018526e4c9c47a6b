"""Steady load: Jobs at an even pace, watchers that come back, and what the service holds meanwhile. `sizes` and `soak` use it.

The pace yields to the service: no Job is posted while too many have not completed, so a busy machine makes a run slower,
not wrong. Figures divide by what was done, not by what was meant.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from benchmarks import processes
from benchmarks.cluster import Cluster
from benchmarks.jobs import JOBS
from benchmarks.wire import Client, Connection

MIB = 1 << 20
PATIENCE = 120.0  # seconds in which some Job has to complete while Jobs are under way
WATCH_SECONDS = 30  # after which a watch ends, and its client comes back
TABLES = """select relname, pg_total_relation_size(oid) as size from pg_class
    where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace"""
WAL = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


class _Condition(msgspec.Struct):
    type: str
    status: str = ""


class _Status(msgspec.Struct):
    conditions: tuple[_Condition, ...] = ()


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class Object(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: Object


_decode = msgspec.json.Decoder(_Line).decode


class Watcher:
    """One client that watches a collection for ever: it goes on where its last watch ended.

    events, received, returns: what was delivered, its bytes, and how often it has come back.
    """

    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path
        self.revision = ""
        self._rest = b""
        self._ended = asyncio.Event()
        self._trouble = ""
        self.events = self.received = self.returns = 0

    async def start(self) -> None:
        """Take the revision to begin at."""
        async with self._client.connection() as connection:
            self.revision = (await connection.read(f"{self._path}?limit=1"))["metadata"]["resourceVersion"]

    async def follow(self) -> None:
        """Watch until cancelled."""
        while True:
            async with self._client.connection() as connection:
                self._ended.clear()
                self._rest = b""
                query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
                await connection.stream(f"{self._path}?{query}&resourceVersion={self.revision}", self.hear)
                await self._ended.wait()
            if self._trouble:
                raise RuntimeError(self._trouble)
            self.returns += 1

    def hear(self, piece: bytes) -> None:
        self.received += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self.events += 1
            self._see(line)
        if not piece:
            self._ended.set()

    def _see(self, line: bytes) -> None:
        event = _decode(line)
        if event.type == "ERROR":
            self._trouble = f"a watch of {self._path} says {line[:500].decode(errors='replace')}"
            self._ended.set()
            return
        self.revision = event.object.metadata.resource_version
        self.see(event.object)

    def see(self, found: Object) -> None:
        """Look at one change; plain watchers do not."""


class Progress(Watcher):
    """Watches Jobs: when which was seen to have completed, in seconds of the wall clock; and how many are under way."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, JOBS)
        self.posted: dict[str, float] = {}
        self.completed: dict[str, float] = {}
        self.failed: list[str] = []
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        return len(self.posted) - len(self.completed)

    def see(self, found: Object) -> None:
        true = {each.type for each in found.status.conditions if each.status == "True"}
        name = found.metadata.name
        if name in self.posted and "Complete" in true:
            self.completed.setdefault(name, time.time())
            self._news.set()
        elif "Failed" in true:
            self.failed.append(name)
            self._news.set()

    async def at_most(self, waiting: int) -> None:
        """Wait until no more Jobs than these are under way."""
        while self.waiting > waiting and not self.failed:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), PATIENCE)
            except TimeoutError:
                raise RuntimeError(f"{self.waiting} Jobs are under way, and none ended for {PATIENCE:.0f} s") from None
        if self.failed:
            raise RuntimeError(f"Jobs failed: {self.failed[:5]}")

    def latencies(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Milliseconds from POST to Complete of the Jobs posted in this time."""
        return [
            (ended - self.posted[name]) * 1000
            for name, ended in self.completed.items()
            if since <= self.posted[name] < until
        ]


@asynccontextmanager
async def following(watchers: Iterable[Watcher]) -> AsyncIterator[None]:
    """Let them watch for the length of the block; if one breaks, so does the block."""
    opened = list(watchers)
    await asyncio.gather(*(each.start() for each in opened))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.follow()) for each in opened]
        yield
        for task in tasks:
            task.cancel()


async def post_evenly(
    connection: Connection, progress: Progress, rate: float, bodies: Iterable[Mapping[str, Any]], most: int = 0
) -> None:
    """POST so many a second, and never let more than `most` be under way: 0 stands for two seconds' worth."""
    most = most or max(2, round(2 * rate))
    due = time.monotonic()
    for body in bodies:
        await progress.at_most(most - 1)
        due = max(due, time.monotonic() - 1.0) + 1 / rate  # what was missed is not made up for, but for a second
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        progress.posted[body["metadata"]["name"]] = time.time()
        await connection.post(JOBS, body)


@dataclass(frozen=True)
class Held:
    """What the service holds at a moment. memory: MiB by role, as if each had a machine of its own. files: open ones by role.
    tables: bytes by name. wal: bytes of Postgres' log since the database was made.
    """

    memory: Mapping[str, float]
    files: Mapping[str, int]
    tables: Mapping[str, int]
    wal: int
    at: float = field(default_factory=time.monotonic)


async def look(cluster: Cluster, database: asyncpg.Connection) -> Held:
    tables = {each["relname"]: int(each["size"]) for each in await database.fetch(TABLES)}
    wal = int(await database.fetchval(WAL))
    memory: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, int] = defaultdict(int)
    for each in processes.tree(cluster.pid):
        held = processes.memory(each.pid)
        memory[each.role] += (held.shared if each.role == processes.POSTGRES else held.resident) / MIB
        files[each.role] += processes.open_files(each.pid)
    return Held(dict(memory), dict(files), tables, wal)


def loopback() -> int:
    """Bytes that have gone over this machine's loopback, those of other programs, too."""
    line = next(each for each in Path("/proc/net/dev").read_text().splitlines() if each.strip().startswith("lo:"))
    return int(line.partition(":")[2].split()[0])
