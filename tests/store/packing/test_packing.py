"""Packed versions are what they were, in Python and in Postgres."""

import hashlib
import json
from collections.abc import Callable
from random import Random

import asyncpg

from app.registry.verbs.objects import Registry
from app.store import Query, SelectorIndex, Store
from app.store.packing.packing import DICTIONARY, LARGEST, PACKED, Contents, pack, unpack, unpack_body
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create
from tests.store.writes import create as a_thing

INDEX = '{"labels":{"a":"b"}}'
TEXT = DICTIONARY.decode()
KINDS = ("jobs.batch", "pods", "events", "configmaps")


def of_pieces(random: Random) -> str:
    """Text of the dictionary, of its own beginning, and of neither."""
    made = ""
    for _ in range(random.randrange(40)):
        length = random.choice((1, 5, 14, 15, 19, 20, 300, 600))
        begin = random.randrange(len(TEXT))
        made += random.choice((TEXT[begin:][:length], made[-length:], "é" * length, random.randbytes(length).hex()))
    return made


EXAMPLES: dict[str, Callable[[Random], str]] = {
    "nothing": lambda _: "",
    "one letter": lambda _: "x",
    "one letter many times": lambda _: "x" * 3_000,
    "the end of the dictionary, again and again": lambda _: TEXT[-9:] * 200,
    "the dictionary, beyond its end": lambda _: TEXT[-3_000:] + "y" + TEXT[-3_000:],
    "lines": lambda _: "\n\n{}\n",
    **{f"pieces {number}": of_pieces for number in range(60)},
}


def test_dictionaries_never_change() -> None:
    """What was packed with one can be read only with it."""
    assert hashlib.sha256(DICTIONARY).hexdigest() == "3634443e680035269da2a01613772b0999ece550ef8564773be84bfc1a783457"


async def test_contents_are_the_same_when_python_or_postgres_unpacks_them(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for number, (name, example) in enumerate(EXAMPLES.items()):
            contents = Contents(INDEX, None if number % 2 else '{"labels":{}}', example(Random(number)).encode())
            packed = pack(contents, KINDS[number % len(KINDS)])
            assert packed
            assert unpack(packed) == contents, name
            sql = "select version_part($1, 1), version_part($1, 2), version_part($1, 3)"
            index, old_index, body = await connection.fetchrow(sql, packed)
            assert (index.decode(), old_index.decode() or None, body) == contents, name
    finally:
        await connection.close()


def test_a_large_version_is_not_packed() -> None:
    assert pack(Contents(INDEX, None, b"x" * LARGEST), "pods") is None


def test_what_is_not_packed_is_read_as_it_is() -> None:
    assert unpack_body(b'{"metadata":{}}') == b'{"metadata":{}}'


async def test_the_versions_of_a_job_and_its_pod_are_a_third_of_their_json_at_most(
    registry: Registry, dsn: str
) -> None:
    await create(registry, JOBS, a_job("pi"))
    await create(registry, PODS, a_pod("hello"))

    sql = """select v.kind, octet_length(v.body), octet_length(h.body) + octet_length(h.marks), v.marks is null
        from versions v join history h using (revision) where v.kind in ('jobs.batch', 'pods') order by v.kind"""
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(sql)
    await connection.close()
    assert [row[0] for row in rows] == ["jobs.batch", "pods"]
    for kind, stored, plain, is_packed in rows:
        assert is_packed
        assert stored * 3 < plain, kind


async def test_packed_and_plain_versions_are_read_alike(store: Store) -> None:
    """Such as those that an earlier version has written, and large ones."""
    small, large = a_thing("small"), a_thing("large", "x" * LARGEST)
    await store.commit([small, large])
    rows = await store.pool.fetch("select name, body, marks from versions order by name")
    assert [(row["name"], row["body"].startswith(PACKED), row["marks"] is None) for row in rows] == [
        ("large", False, False),
        ("small", True, True),
    ]

    revision = await store.revision()
    for at in (None, revision):
        for size in (None, 1_000_000, 10):
            page = await store.list(Query(kind=small.key.kind, at=at, limit=2, size=size))
            found = {head.key.name: (head.body, head.selector_index) for head in page.heads}
            expected = {each.key.name: (each.body, each.selector_index) for each in (large, small)}
            assert found == {name: expected[name] for name in found}
            assert len(found) == (2 if size != 10 else 1)
    changes = await store.history_of(small.key.kind, 0, revision)
    assert [(each.body, each.selector_index) for each in changes] == [
        (each.body, each.selector_index) for each in (small, large)
    ]


async def test_people_see_all_versions_in_the_view_history(store: Store) -> None:
    made = a_thing("a")
    await store.commit([made])

    (row,) = await store.pool.fetch("select marks, old_marks, body from history where name = 'a'")
    assert row["body"] == made.body
    assert SelectorIndex(**json.loads(row["marks"])) == made.selector_index
    assert row["old_marks"] is None
