"""Connections that remember what the built-in types are, on a real Postgres."""

import asyncpg

from app.store.postgres_connection import Connection

ARRAYS = "select $1::int[] as numbers, $2::bytea[] as bodies, $3::boolean[] as flags"
GIVEN = ([1, 2], [b"a"], [True, False])


async def test_what_arrays_are_is_asked_once_and_not_by_every_connection(dsn: str) -> None:
    asked: list[str] = []
    for _ in range(2):
        connection = await asyncpg.connect(dsn, connection_class=Connection)
        asked.clear()
        connection.add_query_logger(lambda record: asked.append(record.query))
        assert tuple(await connection.fetchrow(ARRAYS, *GIVEN)) == GIVEN
        await connection.close()

    assert asked == [ARRAYS]


async def test_types_of_a_database_are_its_own(empty: str) -> None:
    """Two types of the same number in two databases would be taken for each other."""
    connection = await asyncpg.connect(empty, connection_class=Connection)
    await connection.execute("create type color as enum ('red')")
    assert await connection.fetchval("select array['red']::color[]") == ["red"]
    assert all(max(each) < 16384 for each in Connection._remembered)
    await connection.close()
