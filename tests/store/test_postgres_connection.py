"""Connections to one of several hosts, and that remember what the built-in types are, on a real Postgres."""

import asyncio

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from app.store.postgres_connection import Connection, connect, hosts_of

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


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://u:p@db-1:5433,db-2/d?target_session_attrs=read-write", [("db-1", 5433), ("db-2", 5432)]),
        ("postgresql://u:a%2Cb@db-1/d", [("db-1", 5432)]),
        ("postgresql://u@[::1]:5433,[::2]/d", [("::1", 5433), ("::2", 5432)]),
        ("postgresql://u@/d?host=/a,/b&port=1,2", [("/a", 1), ("/b", 2)]),
        ("postgresql://u@/d?host=/a,/b&port=7", [("/a", 7), ("/b", 7)]),
        ("postgresql:///d", []),
    ],
)
def test_hosts_of_a_url(dsn: str, hosts: list[tuple[str, int]]) -> None:
    assert hosts_of(dsn) == hosts


async def test_a_host_that_never_answers_is_passed_by_and_then_asked_last(dsn: str) -> None:
    """As a machine that is switched off: asyncpg alone would spend all of its time on it."""
    asked = 0
    gone = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()
        gone.set()

    url = make_url(dsn)
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        query = {"host": f"127.0.0.1,{url.query['host']}", "port": f"{port},{url.query['port']}"}
        both = url.set(query={**url.query, **query}).render_as_string(hide_password=False)
        for _ in range(2):
            connection = await connect(both)
            assert await connection.fetchval("select 1") == 1
            await connection.close()
        await gone.wait()

    assert asked == 1
