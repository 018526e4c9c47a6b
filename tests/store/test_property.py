"""The store under everything at once: several processes, conflicting writers, and connections that are killed at random.

Whatever happens: what was acknowledged is there, what was refused is not, a set is there whole or not at all, and who
follows the feed of any process sees the history, each version once and in order.
"""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import Random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from app.store import (
    MUST_LIVE,
    MUST_NOT_EXIST,
    Change,
    Conflict,
    Key,
    OutcomeUnknown,
    Query,
    Store,
    Unavailable,
    Write,
    open_store,
    precondition,
)
from tests.store.writes import KIND, create, delete, key, modify, value_of

PROCESSES = 3
WRITERS = 4  # in each
ROUNDS = 30  # write sets of each
KEYS = [f"k{number}" for number in range(20)]


class Account:
    """What the writers were told about each of their sets, by its token."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[tuple[int, str]]] = {}
        self.refused: set[int] = set()
        self.unknown: dict[int, int] = {}  # token -> how many writes the set had
        self.tokens = itertools.count()


def random_set(chance: Random, known: dict[str, int], token: int) -> list[Write]:
    """From what the writer believes, which may be old: that is where conflicts come from."""
    writes: list[Write] = []
    for name in chance.sample(KEYS, chance.randint(1, 3)):
        seen = known.get(name, 0)
        value = {"token": token, "expected": seen}
        if not seen:
            writes.append(create(name, value))
        elif chance.random() < 0.15:
            writes.append(precondition(key(name), chance.choice([MUST_LIVE, seen])))
        elif chance.random() < 0.3:
            writes.append(delete(name, seen, value))
        else:
            writes.append(modify(name, seen, value))
    return writes


async def write(store: Store, chance: Random, account: Account) -> None:
    known: dict[str, int] = {}
    for _ in range(ROUNDS):
        token = next(account.tokens)
        writes = random_set(chance, known, token)
        try:
            revisions = await store.commit(writes)
            account.acknowledged[token] = [
                (revision, each.key.name)
                for revision, each in zip(revisions, writes, strict=True)
                if each.change != "G"
            ]
        except Conflict as conflict:
            account.refused.add(token)
            await look(store, known, conflict.keys)
        except Unavailable:
            account.refused.add(token)
        except OutcomeUnknown:
            account.unknown[token] = sum(each.change != "G" for each in writes)
        else:
            for revision, each in zip(revisions, writes, strict=True):
                if each.change != "G":
                    known[each.key.name] = 0 if each.change == "D" else revision


async def look(store: Store, known: dict[str, int], keys: Sequence[Key]) -> None:
    try:
        heads = await store.get_many(keys)
    except Unavailable:
        return
    for each in keys:
        known[each.name] = heads[each].revision if each in heads else 0


async def kill(server: Store, victim: Store, chance: Random) -> None:
    """Ends some of the connections of all processes, at moments that only the load decides."""
    sql = """select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and random() < $1"""
    while True:
        for _ in range(chance.randint(1, 8)):
            await victim.feed.changed_within(0.1)
        try:
            await server.pool.execute(sql, chance.choice([0.1, 0.3, 0.8]))
        except Exception:
            continue


@pytest.mark.parametrize("seed", [pytest.param(n, id=f"chaos {n}") for n in range(3)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections that died in mid-air
async def test_nothing_is_lost_doubled_or_torn(dsn: str, seed: int) -> None:
    chance, account = Random(seed), Account()
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(dsn)) for _ in range(PROCESSES)]
        killer = await stack.enter_async_context(open_store(dsn))
        followed: list[list[Change]] = [[] for _ in stores]
        for store, changes in zip(stores, followed, strict=True):
            await store.feed.listen(changes.extend, store.feed.cursor)
        killing = asyncio.ensure_future(kill(killer, stores[0], chance))
        writers = [write(store, Random(chance.random()), account) for store in stores for _ in range(WRITERS)]
        async with asyncio.timeout(60):
            await asyncio.gather(*writers)
        killing.cancel()
        await asyncio.wait([killing])
        await judge(stores, followed, account)


async def judge(stores: list[Store], followed: list[list[Change]], account: Account) -> None:
    last = await steadily(stores[0])
    for store in stores:
        async with asyncio.timeout(10):
            await store.feed.reach(last)
    history, _, more = await stores[0].reader.history(stores[0].pool, 0, None)
    heads = (await stores[0].list(Query(kind=KIND))).heads
    assert not more
    assert account.acknowledged
    assert account.refused
    the_feeds_are_the_history(followed, history)
    replayed = replay(history)
    assert replayed == {head.key: head.revision for head in heads}
    the_account_is_the_history(account, history)


async def steadily(store: Store) -> int:
    """The last revision, once a connection is found that was not killed."""
    while True:
        try:
            await store.commit([])
            return await store.revision()
        except (Unavailable, OutcomeUnknown):
            await store.feed.changed_within(0.05)


def the_feeds_are_the_history(followed: list[list[Change]], history: Sequence[Change]) -> None:
    stored = [(each.revision, each.key, each.change, each.body) for each in history]
    for changes in followed:
        assert [(each.revision, each.key, each.change, each.body) for each in changes] == stored


def replay(history: Sequence[Change]) -> dict[Key, int]:
    """The state that the history leads to; each version must have been made from the one before it."""
    state: dict[Key, int] = {}
    for change in history:
        assert value_of(change.body)["expected"] == state.get(change.key, 0)
        if change.change == "D":
            del state[change.key]
        else:
            state[change.key] = change.revision
    return state


def the_account_is_the_history(account: Account, history: Sequence[Change]) -> None:
    stored: dict[int, list[tuple[int, str]]] = {}
    for change in history:
        stored.setdefault(value_of(change.body)["token"], []).append((change.revision, change.key.name))
    for token, writes in account.acknowledged.items():
        assert stored.get(token, []) == writes
    for token in account.refused:
        assert token not in stored
    for token, writes in account.unknown.items():
        assert len(stored.get(token, [])) in {0, writes}


# One batch against a model: what it does is what its sets would do one after another.

_NAMES = some.sampled_from(["a", "b", "c"])
_ITEM = some.tuples(_NAMES, some.sampled_from("AMDGL"), some.booleans())
_SET = some.lists(_ITEM, min_size=1, max_size=3, unique_by=lambda item: item[0])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sets=some.lists(_SET, min_size=1, max_size=6))
async def test_a_batch_does_what_its_sets_would_do_one_after_another(
    store: Store, sets: list[list[tuple[str, str, bool]]]
) -> None:
    kind = f"things-{await store.revision()}"
    (revision,) = await store.commit([create("a", kind=kind)])
    known = {"a": revision}
    written = [[_write(item, known, kind) for item in each] for each in sets]

    results = await asyncio.gather(*map(store.commit, written), return_exceptions=True)

    state = dict(known)
    for writes, result in zip(written, results, strict=True):
        accepted = all(_holds(each, state) for each in writes)
        assert isinstance(result, list if accepted else Conflict)
        if isinstance(result, list):
            _apply(writes, result, state)
    heads = (await store.list(Query(kind=kind))).heads
    assert {head.key.name: head.revision for head in heads} == state
    assert all(msgspec.json.decode(head.wire)["metadata"]["resourceVersion"] for head in heads)


def _write(item: tuple[str, str, bool], known: dict[str, int], kind: str) -> Write:
    name, change, fresh = item
    expected = known.get(name, 1) if fresh else 1
    match change:
        case "A":
            return create(name, kind=kind)
        case "M":
            return modify(name, expected, kind=kind)
        case "D":
            return delete(name, expected, kind=kind)
        case "L":
            return precondition(key(name, kind))
        case _:
            return precondition(key(name, kind), expected)


def _holds(write: Write, state: dict[str, int]) -> bool:
    there = state.get(write.key.name)
    if write.expected == MUST_NOT_EXIST:
        return there is None
    return there is not None if write.expected == MUST_LIVE else there == write.expected


def _apply(writes: list[Write], revisions: list[int], state: dict[str, int]) -> None:
    for each, revision in zip(writes, revisions, strict=True):
        if each.change == "D":
            del state[each.key.name]
        elif each.change != "G":
            state[each.key.name] = revision
