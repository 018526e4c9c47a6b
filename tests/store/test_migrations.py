"""The schema: up, down and up again, as the tables say it, with views that people can query."""

import asyncio
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from msgspec.structs import replace
from sqlalchemy import Connection
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from app.registry import objects
from app.registry.objects import Registry
from app.store import Holder, open_store
from app.store.database_wait import reachable
from app.store.migrate import migrate
from app.store.tables import METADATA
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create, named
from tests.store.writes import create as a_thing

CATALOG = """
    select 'column', table_name, column_name, data_type || coalesce(' ' || collation_name, '') || ' ' || is_nullable
    from information_schema.columns where table_schema = 'public'
    union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
    union all select 'function', proname, prosrc, '' from pg_proc where pronamespace = 'public'::regnamespace
    union all select 'options', relname, array_to_string(reloptions, ','), '' from pg_class
        where relnamespace = 'public'::regnamespace and relkind = 'r'
    order by 1, 2, 3, 4"""


async def query(dsn: str, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql, *values)]
    finally:
        await connection.close()


async def schema(dsn: str) -> list[tuple[Any, ...]]:
    """All that migrations make; alembic's own table aside."""
    return [row for row in await query(dsn, CATALOG) if row[1] != "alembic_version"]


async def seed(dsn: str) -> None:
    async with open_store(dsn) as store:
        await store.commit([a_thing("a"), a_thing("b")])
        await store.tokens.keep(b"digest", Holder("ada", ["people"]))


@pytest.mark.parametrize("seeded", [pytest.param(False, id="empty"), pytest.param(True, id="seeded")])
async def test_up_down_and_up_again_leads_to_the_same_schema(empty: str, seeded: bool) -> None:
    await migrate(empty)
    first = await schema(empty)
    if seeded:
        await seed(empty)

    await migrate(empty, "base")
    assert await schema(empty) == []

    await migrate(empty)
    assert await schema(empty) == first
    await seed(empty)


async def test_tokens_of_before_have_ids_by_which_they_are_revoked(empty: str) -> None:
    await migrate(empty, "0006")
    keep = "insert into tokens (digest, username, groups, nodes) values ($1, $2, '{}', '{}')"
    await query(empty, keep, b"0123456789", "ada")
    await query(empty, keep, b"9876543210", "system:bootstrap:x7k2pq")

    await migrate(empty)

    assert await query(empty, "select id, uses from tokens order by digest") == [
        ("303132333435", None),
        ("x7k2pq", None),
    ]


async def test_migrating_what_is_migrated_changes_nothing(dsn: str) -> None:
    await seed(dsn)

    await migrate(dsn)

    assert await query(dsn, "select count(*) from heads") == [(2,)]


async def test_many_may_migrate_at_once(empty: str) -> None:
    await asyncio.gather(*(migrate(empty) for _ in range(4)))

    assert await query(empty, "select revision, floor from counter") == [(1, 0)]


async def test_the_tables_in_the_code_are_those_of_the_migrations(dsn: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), METADATA)

    engine = create_async_engine(make_url(dsn).set(drivername="postgresql+asyncpg"), poolclass=NullPool)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


async def test_tables_made_from_the_code_have_the_same_columns_and_indexes(dsn: str, empty: str) -> None:
    """Collations and storage options included, at which autogeneration does not look."""
    engine = create_async_engine(make_url(empty).set(drivername="postgresql+asyncpg"), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(METADATA.create_all)
    await engine.dispose()

    tables = set(METADATA.tables)
    assert await schema(empty) == [row for row in await schema(dsn) if row[1] in tables]


async def test_reachable_waits_for_the_tables(empty: str) -> None:
    waiting = asyncio.ensure_future(reachable(empty))
    await reachable(empty, migrated=False)
    assert not waiting.done()

    await migrate(empty, "0001")  # which has tables, but not all of them
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reachable(empty)
    assert not waiting.done()

    await migrate(empty)

    async with asyncio.timeout(10):
        await waiting


async def test_people_can_query_jobs_pods_and_their_history(registry: Registry, dsn: str) -> None:
    await create(registry, JOBS, a_job("pi", parallelism=3, completions=3))
    await create(registry, PODS, a_pod("hello"))
    await objects.edit(registry, JOBS, "default", "pi", lambda job: named(replace(job), labels={"team": "physics"}))

    wide = (
        "select name, object->'metadata'->'labels'->>'team' from jobs where (object->'spec'->>'parallelism')::int > 2"
    )
    assert await query(dsn, wide) == [("pi", "physics")]
    assert await query(dsn, "select object->'status'->>'phase' from pods") == [("Pending",)]
    changes = "select change from jobs_history where namespace = $1 and name = $2 order by revision"
    assert await query(dsn, changes, "default", "pi") == [("A",), ("M",)]
    joined = """select j.name, count(h.*) from jobs j join jobs_history h using (uid) group by j.name"""
    assert await query(dsn, joined) == [("pi", 2)]


@pytest.mark.parametrize("separate", [False, True], ids=["hosts in the query", "hosts as in libpq"])
async def test_a_url_may_name_several_hosts(empty: str, separate: bool) -> None:
    """The first refuses connections, as the one of two does that is down."""
    url = make_url(empty)
    folder, port = url.query["host"], url.query["port"]
    if separate:
        hosts = f"127.0.0.1:1,{quote(str(folder), safe='')}:{port}"
        dsn = f"postgresql://{url.username}@{hosts}/{url.database}?target_session_attrs=primary"
    else:
        dsn = f"postgresql://{url.username}@/{url.database}?host=127.0.0.1,{folder}&port=1,{port}"

    await migrate(dsn)

    assert await query(empty, "select revision from counter") == [(1,)]
