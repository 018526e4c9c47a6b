"""A real Postgres for every test that wants one: one server a session (and xdist worker), one fresh database a test.

With JOBPLANE_TEST_DATABASE_URL set, the databases are made on that server instead.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex

import asyncpg
import hypothesis
import pytest
from sqlalchemy.engine import make_url

from app.registry.bootstrap import bootstrap
from app.registry.objects import Registry
from app.store import Store, open_store
from app.store.embedded import Postgres
from app.store.migrate import migrate
from tests.build import NOW

# How long an example takes depends on who else is busy: there are no deadlines.
hypothesis.settings.register_profile("quick", max_examples=50, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("JOBPLANE_PROPERTIES", "quick"))

# For clients of plain HTTP: to read every authority that this machine trusts takes longer than most tests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# What a crash would lose is lost with the test anyhow, and no test waits for a disk.
FORGETFUL = {"max_connections": "100", "synchronous_commit": "off", "full_page_writes": "off"}


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
    "update counter set revision = 1, floor = 0",
))  # fmt: skip


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


@pytest.fixture
async def dsn(server: str, template: str, spare: list[str]) -> AsyncIterator[str]:
    """A migrated database of the test's own, as if fresh."""
    if not spare:
        spare.append(f"test_{token_hex(4)}")
        await execute(server, f"create database {spare[-1]} template {template}")
    name = spare.pop()
    yield database(server, name)
    await give_back(database(server, name))
    spare.append(name)


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
