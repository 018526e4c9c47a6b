"""A real Postgres for every test that wants one: one server a session (and xdist worker), one fresh database a test.

With JOBPLANE_TEST_DATABASE_URL set, the databases are made on that server instead.
"""

import asyncio
import gc
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex

import asyncpg
import hypothesis
import pytest
import pytest_asyncio
from sqlalchemy.engine import make_url

from app.registry.bootstrap import bootstrap
from app.registry.verbs.objects import Registry
from app.store import Key, Store, Write, open_store
from app.store.embedded.embedded_postgres import Postgres
from app.store.schema.migrate import migrate
from tests.build import NOW

# How long an example takes depends on who else is busy: there are no deadlines.
hypothesis.settings.register_profile("quick", max_examples=50, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("JOBPLANE_PROPERTIES", "quick"))

# Eleven thousand tests are objects that stay: to look through them for cycles again and again is a quarter of the
# collection, and a tenth of the tests.
gc.disable()

# For clients of plain HTTP: to read every authority that this machine trusts takes longer than most tests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# What a crash would lose is lost with the test anyhow, and no test waits for a disk.
FORGETFUL = {"max_connections": "100", "synchronous_commit": "off", "full_page_writes": "off"}


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


class Clock:
    """Stands still until it is moved by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, **span: float) -> datetime:
        self.now += timedelta(**span)
        return self.now


def database(dsn: str, name: str) -> str:
    """The DSN of another database on the same server."""
    return make_url(dsn).set(database=name).render_as_string(hide_password=False)


# What is left of the test's connections. To wait for their end, Postgres itself looks ten times a second only.
END_OTHERS = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""
# Leaves what a migration leaves.
EMPTY = "; ".join((
    *(f"delete from {table}" for table in ("history", "heads", "tokens", "log_streams", "log_chunks", "node_usage")),
    "delete from job_records; delete from job_recorder; delete from data_keys",
    *(f"delete from job_record_{part}" for part in ("attempts", "events", "omissions", "restarts")),
    "delete from webhook_deliveries",
    "delete from webhook_cursor",
    "update counter set revision = 1, floor = 0, secrets_floor = 0, timeline = 0",
    "delete from timelines",
    "insert into timelines (began, after) values (0, 0)",  # which compaction may have deleted
))  # fmt: skip
# A copy of a database counts as restored, whose revisions jump: the template's is none.
SAME_RUN = "delete from server_runs; insert into server_runs values (server_run())"
FORGET = "delete from history where revision not in (select revision from heads)"


async def execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def give_back(dsn: str) -> None:
    """Make a database as if fresh."""
    connection = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(30):
            while await connection.fetchval(END_OTHERS):  # noqa: ASYNC110 - Postgres tells nobody
                await asyncio.sleep(0.002)
        await connection.execute(EMPTY)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The DSN of a server on which databases may be made."""
    if given := os.environ.get("JOBPLANE_TEST_DATABASE_URL"):
        yield given
        return
    # The loop stays open for as long as the server is its child.
    with tempfile.TemporaryDirectory(prefix="jobplane-test-") as folder, asyncio.Runner() as runner:
        Path(folder).chmod(0o711)  # as root, Postgres runs as somebody else
        postgres = Postgres(Path(folder) / "pg", settings=FORGETFUL)
        try:
            yield runner.run(postgres.start())
        finally:
            runner.run(postgres.stop())


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The name of a migrated database that nobody is connected to."""
    name = f"template_{token_hex(4)}"
    asyncio.run(execute(server, f"create database {name}"))
    try:
        asyncio.run(migrate(database(server, name)))
        yield name
    finally:
        asyncio.run(execute(server, f"drop database {name} with (force)"))


@pytest.fixture
async def empty(server: str) -> AsyncIterator[str]:
    """A database without tables."""
    name = f"empty_{token_hex(4)}"
    await execute(server, f"create database {name}")
    yield database(server, name)
    await execute(server, f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def spare(server: str) -> Iterator[list[str]]:
    """Names of databases that tests have given back, empty: making and dropping one takes longer than most tests."""
    names: list[str] = []
    yield names
    asyncio.run(execute(server, *(f"drop database {name} with (force)" for name in names)))


@asynccontextmanager
async def borrowed(server: str, template: str, spare: list[str]) -> AsyncIterator[str]:
    """A migrated database, as if fresh."""
    if not spare:
        spare.append(f"test_{token_hex(4)}")
        await execute(server, f"create database {spare[-1]} template {template}")
        await execute(database(server, spare[-1]), SAME_RUN)
    name = spare.pop()
    yield database(server, name)
    await give_back(database(server, name))
    spare.append(name)


@pytest.fixture
async def dsn(server: str, template: str, spare: list[str]) -> AsyncIterator[str]:
    """A migrated database of the test's own, as if fresh."""
    async with borrowed(server, template, spare) as borrowed_dsn:
        yield borrowed_dsn


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    async with open_store(dsn) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def registry(store: Store, clock: Clock) -> Registry:
    """With the namespaces that every cluster starts with, and a clock that is moved by hand."""
    made = Registry(store, clock)
    await bootstrap(made)
    return made


class Lasting:
    """One registry for all tests of a module that only put objects into it: most of what they cost is a database each.

    Such a module runs its tests on the module's loop, and takes `restored` for its `registry`.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self.registry, self.clock = registry, clock
        self._first: set[tuple[Key, int]] = set()

    async def begin(self) -> None:
        await bootstrap(self.registry)
        self._first = await self._heads()

    async def restore(self) -> None:
        """Whatever is new or was changed goes, through the store's own door, so that all who follow it hear of it."""
        self.clock.now = NOW
        heads = await self._heads()
        new = [Write(key=key, change="D", expected=revision) for key, revision in heads - self._first]
        if new:
            await self.registry.store.commit(new)
        if not self._first <= heads:
            await self.begin()
        await self.registry.store.pool.execute(FORGET)

    async def _heads(self) -> set[tuple[Key, int]]:
        rows = await self.registry.store.pool.fetch("select kind, namespace, name, revision from heads")
        return {(Key(*key), revision) for *key, revision in rows}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(server: str, template: str, spare: list[str]) -> AsyncIterator[Lasting]:
    """For a module whose tests run on the module's loop."""
    async with borrowed(server, template, spare) as dsn, open_store(dsn) as store:
        clock = Clock()
        made = Lasting(Registry(store, clock), clock)
        await made.begin()
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def restored(lasting: Lasting) -> AsyncIterator[Registry]:
    """What such a module takes for its `registry`: with nothing in it that a test before has left."""
    yield lasting.registry
    await lasting.restore()
