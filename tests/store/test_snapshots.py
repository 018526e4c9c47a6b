"""Looking back: each version names the one before it, and a list at any revision shows what was there then."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from random import Random

import asyncpg
import pytest
from msgspec.structs import replace

from app.store import (
    MUST_LIVE,
    Change,
    Compacted,
    Conflict,
    Key,
    Query,
    SelectorIndex,
    Store,
    StoredObject,
    Write,
    open_store,
)
from app.store.reader import _AWAKE, _AWAKE_CUSTOM, LABELS
from app.store.schema.migrate import migrate
from tests.store.writes import KIND, body, create, delete, key, modify, value_of


async def previous(store: Store) -> dict[int, int | None]:
    rows = await store.pool.fetch("select revision, previous from history order by revision")
    return {row["revision"]: row["previous"] for row in rows}


def shown(heads: Iterable[StoredObject]) -> dict[str, object]:
    return {head.key.name: value_of(head.body) for head in heads}


async def at(store: Store, revision: int, **demands: object) -> dict[str, object]:
    return shown((await store.list(Query(kind=KIND, at=revision, **demands))).heads)  # type: ignore[arg-type] - any demand


async def test_each_version_names_the_one_before(store: Store) -> None:
    a, b = await store.commit([create("a"), create("b")])
    (second,) = await store.commit([modify("a", a)])
    (gone,) = await store.commit([delete("a", second)])
    (again,) = await store.commit([create("a")])

    assert await previous(store) == {a: 0, b: 0, second: a, gone: second, again: 0}


async def test_the_feed_knows_the_version_before_from_memory_and_from_history(dsn: str, store: Store) -> None:
    here: list[Change] = []
    there: list[Change] = []
    async with open_store(dsn) as other:
        await store.feed.listen(here.extend, store.feed.cursor)
        await other.feed.listen(there.extend, other.feed.cursor)
        (a,) = await store.commit([create("a")])
        (second,) = await store.commit([modify("a", a)])
        await other.feed.reach(second)

    for followed in (here, there):
        assert [(each.revision, each.previous) for each in followed] == [(a, 0), (second, a)]


async def test_a_version_that_demands_no_certain_one_names_none(store: Store) -> None:
    (a,) = await store.commit([create("a")])
    (blind,) = await store.commit([modify("a", MUST_LIVE)])

    assert (await previous(store)) == {a: 0, blind: None}


async def test_a_list_shows_what_was_there(store: Store) -> None:
    a, b, c = await store.commit([create(name, 1) for name in "abc"])
    (changed,) = await store.commit([modify("a", a, 2)])
    (gone,) = await store.commit([delete("b", b)])
    (new,) = await store.commit([create("d", 1)])
    (again,) = await store.commit([create("b", 2)])

    assert await at(store, a) == {"a": 1}
    assert await at(store, c) == {"a": 1, "b": 1, "c": 1}
    assert await at(store, changed) == {"a": 2, "b": 1, "c": 1}
    assert await at(store, gone) == {"a": 2, "c": 1}
    assert await at(store, new) == {"a": 2, "c": 1, "d": 1}
    assert await at(store, again) == {"a": 2, "b": 2, "c": 1, "d": 1}


async def test_it_shows_each_version_under_its_own_revision(store: Store) -> None:
    (a,) = await store.commit([create("a")])
    (second,) = await store.commit([modify("a", a)])

    page = await store.list(Query(kind=KIND, at=a))

    assert [(head.revision, head.uid) for head in page.heads] == [(a, "uid-of-a")]
    assert page.revision == a
    assert b'"resourceVersion":"%d"' % a in page.heads[0].wire
    assert (await store.list(Query(kind=KIND))).heads[0].revision == second


async def test_pages_of_one_revision_are_that_list(store: Store) -> None:
    names = [f"n{number:02}" for number in range(20)]
    revisions = await store.commit([create(name, 1) for name in names])
    for number, (name, revision) in enumerate(zip(names, revisions, strict=True)):
        match number % 4:
            case 0:
                await store.commit([modify(name, revision, 2)])
            case 1:
                await store.commit([delete(name, revision)])
            case 2:
                await store.commit([create(f"{name}-new")])
    found: list[str] = []
    after, left = None, []
    while True:
        page = await store.list(Query(kind=KIND, at=revisions[-1], after=after, limit=3))
        found += [head.key.name for head in page.heads]
        assert set(shown(page.heads).values()) == {1}
        if not page.more:
            break
        after = ("default", found[-1])
        left.append(await store.remaining(Query(kind=KIND, at=revisions[-1], after=after)))

    assert found == names
    assert left == [20 - 3 * number for number in range(1, 7)]


async def test_what_is_left_is_counted_up_to_a_bound(store: Store) -> None:
    await store.commit([create(name) for name in "abcde"])
    query = Query(kind=KIND, at=await store.revision(), after=("default", "b"))

    assert [await store.remaining(query, most) for most in (2, 3, None)] == [None, 3, 3]


def placed(name: str, node: str, expected: int = 0) -> Write:
    fields = {"spec.nodeName": node} if node else {}
    change = "M" if expected else "A"
    return Write(
        key=key(name),
        change=change,
        expected=expected,
        uid="u",
        body=body(name, node),
        selector_index=SelectorIndex({}, fields),
        node=node,
    )


async def test_what_was_on_a_node_then(store: Store) -> None:
    """Not what is on it now: the column of heads knows only that."""
    a, b, c = await store.commit([placed("a", "n1"), placed("b", ""), placed("c", "n2")])
    await store.commit([placed("a", "n2", a), placed("b", "n1", b), placed("c", "n1", c)])

    assert await at(store, c, node="n1") == {"a": "n1"}
    assert await at(store, c, node="n2") == {"c": "n2"}


async def test_demands_hold_for_what_was_there_then(store: Store) -> None:
    a, other = await store.commit([create("a", 1), create("a", 1, kind="others")])
    elsewhere = Write(key=Key(KIND, "elsewhere", "b"), change="A", expected=0, uid="u", body=body("b", 1))
    (b,) = await store.commit([elsewhere])
    await store.commit([delete("a", a)])
    await store.commit([delete("a", other, kind="others")])

    assert await at(store, b) == {"a": 1, "b": 1}
    assert await at(store, b, namespace="default") == {"a": 1}
    assert await at(store, b, namespace="elsewhere") == {"b": 1}
    assert await at(store, b, name="a") == {"a": 1}
    with pytest.raises(ValueError, match="deleted"):
        await at(store, b, deleting=True)


async def test_labels_that_are_wanted_leave_out_most_others_but_none_that_has_or_had_them(store: Store) -> None:
    strange = 'a"\\ü'
    a, _, _, d = await store.commit([
        create("a", app="x"), create("b", app="y"), create("c", app=strange), create("d", app="x", tier="1")
    ])  # fmt: skip
    then = await store.revision()
    await store.commit([replace(modify("a", a), selector_index=SelectorIndex({"app": "y"})), delete("d", d)])

    async def names(revision: int | None, **labels: str) -> set[str]:
        page = await store.list(Query(kind=KIND, at=revision, labels={name: [value] for name, value in labels.items()}))
        wanted = labels.items()
        return {head.key.name for head in page.heads if wanted <= head.selector_index.labels.items()}

    assert await names(None, app="y") == {"a", "b"}
    assert await names(None, app=strange) == {"c"}
    assert await names(None, app="x") == await names(None, app="") == set()
    assert await names(then, app="x") == {"a", "d"}
    assert await names(then, app="x", tier="1") == {"d"}
    assert [each.key.name for each in (await store.list(Query(kind=KIND, labels={"app": ["y"]}, limit=1))).heads] == [
        "a"
    ]


@pytest.mark.parametrize(
    ("kind", "awake", "held"),
    [("pods", _AWAKE, "heads_awake"), ("sweeps.bench.example.com", _AWAKE_CUSTOM, "heads_awake_custom")],
)
async def test_what_is_dormant_is_found_by_its_labels(store: Store, kind: str, awake: str, held: str) -> None:
    await store.commit([
        create("live", kind=kind, app="x"),
        replace(create("done", kind=kind, app="x", tier="1"), dormant="Succeeded,0,0"),
        replace(create("other", kind=kind, app="y", tier="1"), dormant="Succeeded,0,0"),
        replace(create("bare", kind=kind), dormant="Succeeded,0,0"),
    ])  # fmt: skip

    async def names(**labels: list[str]) -> list[str]:
        return [head.key.name for head in (await store.list(Query(kind=kind, labels=labels))).heads]

    assert await names(app=["x"]) == ["done", "live"]
    assert await names(app=["x", "y"]) == ["done", "live", "other"]
    assert await names(app=["y"], tier=["1"]) == ["other"]
    assert await names(app=["z"]) == await names(tier=["1"], app=["no"]) == []
    async with store.pool.acquire() as connection:
        await connection.execute("set enable_seqscan = off")  # which would read so few rows sooner than an index
        for condition, index in ((f"dormant is not null and {LABELS} && array['a']", "heads_by_label"), (awake, held)):
            rows = await connection.fetch(f"explain select from heads h where {condition}")
            assert any(index in row[0].split() for row in rows)


async def test_a_list_by_labels_is_planned_for_them(store: Store) -> None:
    """Whether the index helps depends on how common a label is: of a statement that is kept, the sixth plan is for any."""
    await store.commit([create("live", kind="pods", app="x")])
    for _ in range(8):
        page = await store.list(Query(kind="pods", labels={"app": ["x"]}))
        assert [head.key.name for head in page.heads] == ["live"]

    async with AsyncExitStack() as stack:
        for _ in range(store.pool.get_size()):
            connection = await stack.enter_async_context(store.pool.acquire())
            kept = await connection.fetch("select statement from pg_prepared_statements")
            assert not [each for (each,) in kept if LABELS in each]


async def test_a_version_that_nobody_remembers_is_not_left_out_of_a_list(store: Store) -> None:
    (a,) = await store.commit([create("a")])
    (second,) = await store.commit([modify("a", a)])

    await store.pool.execute("update history set previous = null where revision = $1", second)
    with pytest.raises(Compacted):
        await at(store, a)
    with pytest.raises(Compacted):
        await at(store, a, node="n1")
    await store.pool.execute("update history set previous = $1 where revision = $2", a, second)
    await store.pool.execute("delete from history where revision = $1", a)
    with pytest.raises(Compacted):
        await at(store, a)
    assert list(await at(store, second)) == ["a"]


@pytest.mark.parametrize("seed", range(3))
async def test_every_list_is_what_the_history_leads_to(store: Store, seed: int) -> None:
    """Under writers that go on meanwhile."""
    chance = Random(seed)
    known: dict[str, int] = {}
    states: dict[int, dict[str, object]] = {await store.revision(): {}}

    async def write() -> None:
        for number in range(60):
            name = f"k{chance.randrange(8)}"
            seen = known.get(name, 0)
            try:
                if not seen:
                    (revision,) = await store.commit([create(name, number)])
                elif chance.random() < 0.3:
                    (revision,) = await store.commit([delete(name, seen)])
                    known[name] = 0
                    continue
                else:
                    (revision,) = await store.commit([modify(name, seen, number)])
                known[name] = revision
            except Conflict:
                continue

    await asyncio.gather(*(write() for _ in range(3)))
    history, _, _ = await store.reader.history(store.pool, 0, None)
    state: dict[str, object] = {}
    for change in history:
        state = {name: value for name, value in state.items() if name != change.key.name}
        if change.change != "D":
            state[change.key.name] = value_of(change.body)
        states[change.revision] = dict(sorted(state.items()))
    for revision, expected in states.items():
        assert await at(store, revision) == expected
        page = await store.list(Query(kind=KIND, at=revision, after=("default", "k3"), limit=2))
        assert shown(page.heads) == dict([(name, value) for name, value in expected.items() if name > "k3"][:2])


async def test_migrating_finds_the_versions_before(empty: str) -> None:
    await migrate(empty, "0001")
    connection = await asyncpg.connect(empty)
    insert = """insert into history (revision, kind, namespace, name, uid, change, marks, body)
        values ($1, 'things', 'default', $2, 'u', $3, '{}', '')"""
    for revision, name, change in (
        (2, "a", "A"),
        (3, "b", "M"),
        (4, "a", "M"),
        (5, "a", "D"),
        (6, "a", "A"),
        (9, "b", "M"),
    ):
        await connection.execute(insert, revision, name, change)
    await migrate(empty)

    rows = await connection.fetch("select revision, previous from history order by revision")
    await connection.close()
    assert [tuple(row) for row in rows] == [(2, 0), (3, None), (4, 2), (5, 4), (6, 0), (9, 3)]
