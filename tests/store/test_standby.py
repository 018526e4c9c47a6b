"""A standby is promoted that was behind: a failover as it happens on two machines, with streaming replication."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest

from app.postgres.embedded_postgres import Postgres
from app.postgres.postgres_binaries import find
from app.store import Change, Query, Store, Unavailable, open_store
from app.store.schema.migrate import migrate
from tests.conftest import FORGETFUL, execute
from tests.store.writes import KIND, create

SECONDS = 60


class Pair:
    """A primary and its standby, and one URL for both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.primary = Postgres(folder / "a", settings=FORGETFUL | {"synchronous_commit": "on"})
        self.standby = Postgres(folder / "b", settings=FORGETFUL | {"hot_standby": "on"})

    @property
    def dsn(self) -> str:
        hosts = f"{self.folder}/a/cluster,{self.folder}/b/cluster"
        passfile = f"{self.folder}/a/pgpass"
        return f"postgresql://postgres@/postgres?host={hosts}&port=5432,5432&target_session_attrs=primary&passfile={passfile}"

    async def follow(self) -> None:
        """Start the standby from a base backup."""
        data = self.folder / "b" / "cluster"
        program = (await find()).folder / "pg_basebackup"
        await _run(program, "-D", data, "-d", self.primary.dsn, "-R", "-c", "fast", "-X", "stream", "--no-sync")
        shutil.copy(self.folder / "a" / "pgpass", self.folder / "b" / "pgpass")
        owner = (self.folder / "a" / "cluster").stat()
        await _run("chown", "-R", f"{owner.st_uid}:{owner.st_gid}", self.folder / "b")
        await self.standby.start()

    async def fall_behind(self, revision: int) -> None:
        """The standby has what came up to a revision, and gets no more."""
        await _until(self.standby.dsn, f"select revision >= {revision} from counter")
        await execute(self.standby.dsn, "alter system set primary_conninfo = ''", "select pg_reload_conf()")
        await _until(self.standby.dsn, "select not exists (select from pg_stat_wal_receiver)")

    async def fail_over(self) -> None:
        assert self.primary.pid
        os.kill(self.primary.pid, signal.SIGKILL)
        await self.primary.wait()
        await execute(self.standby.dsn, "select pg_promote()")


async def _run(*command: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0


async def _until(dsn: str, question: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(SECONDS):
            while not await connection.fetchval(question):  # noqa: ASYNC110 - Postgres tells nobody
                await asyncio.sleep(0.01)
    finally:
        await connection.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="jobplane-test-"))
    folder.chmod(0o711)
    made = Pair(folder)
    try:
        await made.primary.start()
        await migrate(made.dsn)
        await made.follow()
        yield made
    finally:
        await made.standby.stop()
        await made.primary.stop()
        shutil.rmtree(folder)


async def commit(store: Store, *names: str) -> list[int]:
    """As a careful client: again, for as long as the database is away."""
    while True:
        try:
            return [(await store.commit([create(name)]))[0] for name in names]
        except Unavailable:
            await asyncio.sleep(0.01)


async def test_what_a_promoted_standby_does_not_have_is_told_to_everybody(pair: Pair) -> None:
    seen: list[Change] = []
    async with asyncio.timeout(SECONDS), AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(open_store(pair.dsn)) for _ in "ab"]
        (kept,) = await commit(one, "kept")
        await pair.fall_behind(kept)
        given = await commit(one, *(f"lost-{number}" for number in range(10)))
        await other.feed.reach(given[-1])
        await other.feed.listen(seen.extend, given[-1])
        await pair.fail_over()
        again = await commit(other, "after", "later")
        for store in (one, other):
            await store.feed.lost_touch.wait()
            await store.feed.reach(again[-1])

        assert min(again) > max(given)
        assert [each.key.name for each in seen] == ["after", "later"]
        for store in (one, other):
            assert [await store.is_lost(revision) for revision in (kept, *given, *again)] == [
                False,
                *[True] * 10,
                *[False] * 2,
            ]
            listed = await store.list(Query(kind=KIND))
            assert [head.key.name for head in listed.heads] == ["after", "kept", "later"]
            assert store.feed.losses.get_nowait().after == kept
