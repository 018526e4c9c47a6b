"""Table shrinking: the file gets smaller, and nobody who reads or writes meanwhile notices."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg

from app.store import Query, Store
from app.store.compaction import compact
from app.store.table_shrinking import TABLES, TableShrinking, shrink
from tests.store.writes import KIND, create, delete, key, modify, value_of

SMALLEST = 4  # pages
COUNT = 2_000
LIVING = range(0, COUNT, 100)


async def fill(store: Store, value: Any = "x" * 200) -> None:
    """Very much, of which little lives: some of it at the very end of the tables."""
    revisions = await store.commit([create(f"n-{number}", value, app="a" * 50) for number in range(COUNT)])
    dead = [number for number in range(COUNT) if number not in LIVING]
    await store.commit([delete(f"n-{number}", revisions[number]) for number in dead])
    await store.commit([create("last", value)])
    await compact(store.pool, timedelta(0))


async def rows(store: Store, table: str) -> Sequence[asyncpg.Record]:
    found: Sequence[asyncpg.Record] = await store.pool.fetch(f"select * from {table} order by revision")
    return found


async def pages(store: Store, table: str) -> int:
    found: int = await store.pool.fetchval("select pg_relation_size($1::text::regclass) / 8192", table)
    return found


@asynccontextmanager
async def held(store: Store, table: str) -> AsyncIterator[None]:
    """Somebody writes to the table, in a transaction that does not end."""
    async with store.pool.acquire() as connection, connection.transaction():
        await connection.execute(f"lock table {table} in row exclusive mode")
        yield


async def test_a_table_that_is_mostly_empty_becomes_small_and_keeps_its_rows(store: Store) -> None:
    await fill(store)
    for table in TABLES:
        before, size = await rows(store, table), await pages(store, table)

        gone = await shrink(store.pool, table, SMALLEST)

        assert gone == size - await pages(store, table)
        assert await pages(store, table) <= max(size // 4, SMALLEST)
        assert await rows(store, table) == before
    page = await store.list(Query(kind=KIND))
    assert len(page.heads) == len(LIVING) + 1


async def test_bodies_that_are_stored_apart_come_along(store: Store) -> None:
    incompressible = [hash((number, "body")) for number in range(1_000)]
    await fill(store)
    (made,) = await store.commit([create("large", incompressible)])

    assert await shrink(store.pool, "versions", SMALLEST) > 0

    found = await store.get(key("large"))
    assert found is not None
    assert (found.revision, value_of(found.body)) == (made, incompressible)


async def test_a_table_that_is_used_stays_as_it_is(store: Store) -> None:
    for table in TABLES:  # what the tests before have left there counts as empty
        await store.pool.execute(f"vacuum {table}")
    await store.commit([create(f"n-{number}", "x" * 200) for number in range(COUNT)])
    for table in TABLES:
        before = await store.pool.fetch(f"select ctid, revision from {table}")
        assert await shrink(store.pool, table, SMALLEST) == 0
        assert await store.pool.fetch(f"select ctid, revision from {table}") == before


async def test_small_tables_are_left_alone(store: Store) -> None:
    await fill(store)
    assert set((await TableShrinking(store.pool).run_once(None)).values()) == {0}  # type: ignore[arg-type]


async def test_who_writes_meanwhile_loses_nothing(store: Store) -> None:
    await fill(store)
    ended = asyncio.Event()

    async def write(name: str) -> int:
        (revision,) = await store.commit([create(name, 0)])
        value = 0
        while not ended.is_set():
            value += 1
            (revision,) = await store.commit([modify(name, revision, value)])
        return value

    writers = [asyncio.create_task(write(f"writer-{number}")) for number in range(8)]
    assert await shrink(store.pool, "versions", SMALLEST) > 0
    assert await shrink(store.pool, "heads", SMALLEST) > 0
    ended.set()

    for number, written in enumerate(await asyncio.gather(*writers)):
        found = await store.get(key(f"writer-{number}"))
        assert found is not None
        assert value_of(found.body) == written
        versions = await store.pool.fetchval("select count(*) from history where name = $1", f"writer-{number}")
        assert versions == written + 1


async def test_a_transaction_that_does_not_end_is_not_waited_for(store: Store) -> None:
    await fill(store)
    before = await rows(store, "versions")
    async with held(store, "versions"):
        assert await shrink(store.pool, "versions", SMALLEST) == 0
        (revision,) = await store.commit([create("meanwhile")])
    assert (await rows(store, "versions"))[:-1] == before
    assert (await store.get(key("meanwhile"))).revision == revision  # type: ignore[union-attr]


async def test_a_role_that_does_not_own_the_tables_moves_nothing(store: Store, dsn: str) -> None:
    await fill(store)
    role = f"guest_{uuid4().hex}"
    await store.pool.execute(f"create role {role}; grant select, insert, update, delete on versions, counter to {role}")
    try:
        before = await store.pool.fetch("select ctid, revision from versions")
        async with asyncpg.create_pool(dsn, server_settings={"role": role}, min_size=1) as pool:
            assert await shrink(pool, "versions", SMALLEST) == 0
        assert await store.pool.fetch("select ctid, revision from versions") == before
    finally:
        await store.pool.execute(f"drop owned by {role}; drop role {role}")


async def test_an_index_that_a_killed_run_left_behind_goes(store: Store) -> None:
    await store.pool.execute("create index heads_by_node_ccnew on heads (node)")
    await store.pool.execute(
        "update pg_index set indisvalid = false where indexrelid = 'heads_by_node_ccnew'::regclass"
    )
    await shrink(store.pool, "heads", SMALLEST)
    assert await store.pool.fetchval("select to_regclass('heads_by_node_ccnew')") is None
