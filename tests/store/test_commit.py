"""The one door: atomic write sets, what refuses them, and what callers hear when the database goes away."""

import asyncio
from collections.abc import Sequence

import asyncpg
import pytest
from msgspec.structs import replace

from app.store import MUST_LIVE, Conflict, Key, OutcomeUnknown, Store, Unavailable, Write, open_store, precondition
from app.store.commit import MAX_SETS, MAX_URGENT
from tests.conftest import database
from tests.store.proxy import Proxy
from tests.store.writes import create, delete, key, modify, value_of


async def together(store: Store, *sets: Sequence[Write]) -> list[list[int] | BaseException]:
    """Commit them in one batch: they are queued before the writer has its turn."""
    return await asyncio.gather(*map(store.commit, sets), return_exceptions=True)


async def values(store: Store, *names: str) -> dict[str, object]:
    heads = await store.get_many([key(name) for name in names])
    return {found.name: value_of(head.body) for found, head in heads.items()}


async def rows(store: Store) -> int:
    return await store.pool.fetchval("select count(*) from history")


async def test_every_write_has_a_revision_in_order(store: Store) -> None:
    first = await store.commit([create("a"), create("b")])
    second = await store.commit([modify("a", first[0])])

    assert first == [first[0], first[0] + 1]
    assert second == [first[1] + 1]
    assert (await store.get(key("a"))).revision == second[0]
    assert await store.revision() == second[0]


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param([create("new"), create("there")], id="because a name is taken"),
        pytest.param([create("new"), modify("there", 1)], id="because a revision is old"),
        pytest.param([create("new"), modify("absent", 5)], id="because what it changes is gone"),
        pytest.param([create("new"), delete("there", 1)], id="because what it deletes has changed"),
        pytest.param([create("new"), precondition(key("absent"))], id="because what must live does not exist"),
        pytest.param([create("new"), precondition(key("leaving"))], id="because what must live is on its way out"),
        pytest.param([create("new"), precondition(key("there"), 1)], id="because a guarded revision is old"),
    ],
)
async def test_a_set_is_refused_whole(store: Store, refused: list[Write]) -> None:
    await store.commit([create("there", 1), create("leaving", deleting=True)])

    with pytest.raises(Conflict) as caught:
        await store.commit(refused)

    assert caught.value.keys == [refused[1].key]
    assert caught.value.revision == await store.revision()
    assert await rows(store) == 2
    assert await values(store, "new", "there") == {"there": 1}


async def test_a_set_with_guards_that_hold_is_carried_out(store: Store) -> None:
    (revision,) = await store.commit([create("there")])

    numbers = await store.commit(
        [create("new"), precondition(key("there")), modify("other", 0), precondition(key("x"), 0)][:2]
    )
    await store.commit([create("next"), precondition(key("there"), revision), precondition(key("x"), 0)])

    assert len(numbers) == 2
    assert await rows(store) == 3  # a guard is not a version


async def test_a_refused_set_does_not_harm_the_others_of_its_batch(store: Store) -> None:
    before = await store.revision()

    results = await together(store, [create("a", 1)], [create("b"), precondition(key("absent"))], [create("c", 3)])

    assert [type(each) for each in results] == [list, Conflict, list]
    assert await values(store, "a", "b", "c") == {"a": 1, "c": 3}
    assert await store.revision() == before + 4  # one transaction: the refused set left a gap
    assert results[2] == [before + 4]


async def test_a_key_that_is_written_twice_waits_for_the_next_batch(store: Store) -> None:
    results = await together(store, [create("a", 1)], [create("b")], [create("a", 2)], [create("c")])

    assert [type(each) for each in results] == [list, list, Conflict, list]
    assert await values(store, "a") == {"a": 1}


async def test_demands_on_what_a_batch_writes_are_checked_after_it(store: Store) -> None:
    """Else two sets, each guarding what the other writes, would both pass."""
    (there,) = await store.commit([create("there")])

    results = await together(
        store, [modify("there", there, deleting=True)], [create("in it"), precondition(key("there"))]
    )

    assert [type(each) for each in results] == [list, Conflict]


async def test_a_set_may_name_an_object_only_once(store: Store) -> None:
    with pytest.raises(ValueError, match="only once"):
        await store.commit([create("a"), precondition(key("a"), 0)])


async def test_an_empty_set_is_committed_after_those_before_it(store: Store) -> None:
    results = await together(store, [create("a")], [], [create("b")])

    assert results[1] == []
    assert await rows(store) == 2


async def test_more_sets_than_fit_into_a_batch_all_come_through(store: Store) -> None:
    count = 3 * MAX_SETS + 7

    results = await together(store, *([create(f"n{number}")] for number in range(count)))

    revisions = [revision for (revision,) in results]
    assert revisions == sorted(set(revisions))
    assert await rows(store) == count


async def test_what_the_database_cannot_hold_harms_nobody_else(store: Store) -> None:
    unspeakable = create("a\0b")

    results = await together(store, [create("a")], [unspeakable], [modify("big", 2**63)], [create("c")])

    assert [type(each) for each in results] == [list, Unavailable, Unavailable, list]
    assert await rows(store) == 2


async def test_a_caller_that_has_gone_is_left_out(store: Store) -> None:
    gone = asyncio.ensure_future(store.commit([create("gone")]))
    gone.cancel()

    await store.commit([create("here")])

    assert gone.cancelled()
    assert await rows(store) == 1


async def backend(dsn: str, application: str) -> int:
    connection = await asyncpg.connect(dsn)
    sql = "select pid from pg_stat_activity where datname = current_database() and application_name = $1"
    pid = await connection.fetchval(sql, application)
    await connection.close()
    return pid


async def terminate(dsn: str, pid: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("select pg_terminate_backend($1, 5000)", pid)
    await connection.close()


async def test_a_connection_that_dies_during_a_commit_leaves_the_outcome_unknown(store: Store, dsn: str) -> None:
    await store.commit([create("before")])
    blocker = await asyncpg.connect(dsn)
    async with blocker.transaction():
        await blocker.execute("select from counter for update")
        cut_off = asyncio.ensure_future(together(store, [create("a")], [create("b")]))
        await waits_for_the_counter(dsn)
        await terminate(dsn, await backend(dsn, "jobplane writer"))
        outcomes = await cut_off
    await blocker.close()

    assert [type(each) for each in outcomes] == [OutcomeUnknown, OutcomeUnknown]
    await store.commit([create("after")])
    assert await rows(store) == 2


async def test_a_session_that_the_server_has_ended_is_replaced_before_anything_is_sent(store: Store) -> None:
    """That it has ended is heard before the connection is seen to be closed."""
    await store.commit([create("before")])
    connection = store.writer._connection
    assert connection
    fields = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
    connection._protocol.data_received(b"E" + (len(fields) + 4).to_bytes(4) + fields)

    assert await store.commit([create("after")]) == [await store.revision()]
    assert store.writer._connection is not connection
    assert await rows(store) == 2


async def waits_for_the_counter(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    sql = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    async with asyncio.timeout(10):
        while not await connection.fetchval(sql):
            pass
    await connection.close()


async def test_a_commit_whose_answer_is_lost_is_told_by_the_feed(dsn: str) -> None:
    async with Proxy(dsn) as proxy, open_store(proxy.dsn) as store:
        await store.commit([create("before")])
        seen: list[str] = []
        await store.feed.listen(lambda changes: seen.extend(each.key.name for each in changes), await store.revision())

        proxy.lose_the_next_answer("jobplane writer")
        with pytest.raises(OutcomeUnknown):
            await store.commit([create("a")])

        await store.feed.reach(await store.revision())
        assert seen == ["a"]
        await store.commit([create("b")])
        assert seen == ["a", "b"]


async def test_a_wait_for_the_counter_that_takes_too_long_wrote_nothing(store: Store, dsn: str) -> None:
    await store.commit([create("before")])
    blocker = await asyncpg.connect(dsn)
    async with blocker.transaction():
        await blocker.execute("select from counter for update")
        refused = asyncio.ensure_future(store.commit([create("a")]))
        await waits_for_the_counter(dsn)
        writer = await backend(dsn, "jobplane writer")
        await blocker.execute("select pg_cancel_backend($1)", writer)  # as the lock timeout does, sooner
        with pytest.raises(Unavailable):
            await refused
    await blocker.close()

    await store.commit([create("a")])
    assert await rows(store) == 2


async def test_without_a_database_nothing_is_written_and_then_it_recovers(store: Store, dsn: str, server: str) -> None:
    await store.commit([create("before")])
    name = dsn_database(dsn)
    admin = await asyncpg.connect(server)
    await admin.execute(f"alter database {name} with allow_connections false")
    await admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = $1", name)

    outcomes = [(await together(store, [create("a")]))[0] for _ in range(2)]
    assert isinstance(outcomes[0], Unavailable | OutcomeUnknown)  # the death of an idle connection may not be known yet
    assert isinstance(outcomes[1], Unavailable)

    await admin.execute(f"alter database {name} with allow_connections true")
    await admin.close()
    await store.commit([create("a")])
    assert await rows(store) == 2


def dsn_database(dsn: str) -> str:
    return dsn.split("?", maxsplit=1)[0].rsplit("/", 1)[1]


async def test_an_unreachable_database_is_unavailable(dsn: str) -> None:
    async with open_store(dsn) as store:
        store.writer._connect = lambda: asyncpg.connect(database(dsn, "nowhere"))
        with pytest.raises(Unavailable):
            await store.commit([create("a")])


async def test_who_waits_when_the_process_stops_is_told(dsn: str) -> None:
    blocker = await asyncpg.connect(dsn)
    async with blocker.transaction():
        await blocker.execute("select from counter for update")
        async with open_store(dsn) as store:
            during = asyncio.ensure_future(store.commit([create("a")]))
            await waits_for_the_counter(dsn)
            queued = asyncio.ensure_future(store.commit([create("b")]))
            await asyncio.wait([queued], timeout=0)
        outcomes = await asyncio.gather(during, queued, return_exceptions=True)
    await blocker.close()

    assert [type(each) for each in outcomes] == [OutcomeUnknown, Unavailable]
    with pytest.raises(Unavailable):
        await store.commit([create("c")])


def lease(name: str, namespace: str = "kube-node-lease") -> Write:
    return replace(create(name), key=Key("leases.coordination.k8s.io", namespace, name))


@pytest.mark.parametrize("namespace", ["kube-node-lease", "kube-system"])
async def test_a_lease_of_a_node_or_an_election_goes_before_all_that_waits(store: Store, namespace: str) -> None:
    count = 3 * MAX_SETS

    *others, renewed = await together(
        store, *([create(f"n{number}")] for number in range(count)), [lease("worker-1", namespace)]
    )

    assert renewed < min(others)
    assert len(others) == count


async def test_any_other_lease_waits_its_turn(store: Store) -> None:
    count = 3 * MAX_SETS

    *others, made = await together(store, *([create(f"n{number}")] for number in range(count)), [lease("x", "default")])

    assert made > max(others)


async def test_leases_without_end_leave_room_for_others(store: Store) -> None:
    leases = [[lease(f"worker-{number}")] for number in range(3 * MAX_SETS)]

    *renewed, other = await together(store, *leases, [create("a")])

    assert other == [MAX_URGENT + renewed[0][0]]


async def test_a_demand_on_a_lease_is_checked_after_the_lease_is_written(store: Store) -> None:
    (begun,) = await store.commit([lease("controllers", "kube-system")])
    term = precondition(Key("leases.coordination.k8s.io", "kube-system", "controllers"), begun)
    raised = replace(lease("controllers", "kube-system"), change="M", expected=begun)

    refused, written = await together(store, [create("late"), term], [raised])

    assert isinstance(refused, Conflict)
    assert isinstance(written, list)


async def test_a_process_of_an_earlier_version_still_writes(store: Store) -> None:
    """It does not tell what is dormant: what it writes is awake."""
    columns = (
        [0],
        ["things"],
        ["default"],
        ["a"],
        ["uid"],
        ["A"],
        [0],
        [b"{}"],
        ["{}"],
        [None],
        [None],
        [None],
        [False],
    )
    places = ", ".join(f"${number}" for number in range(1, 15))
    await store.pool.fetchrow(f"select * from commit_write_sets({places})", *columns, "origin")

    assert await store.pool.fetchval("select dormant is null and expires_at is null from heads where name = 'a'")


async def test_a_guard_that_all_sets_of_a_batch_demand_is_checked_for_all(store: Store) -> None:
    await store.commit([create("there")])
    before = await store.revision()

    results = await together(
        store,
        [create("a", 1), precondition(key("there"))],
        [precondition(key("there")), create("b", 2), create("c", 3)],
        [create("there"), create("d")],
        [create("a"), precondition(key("there"))],
    )

    assert [type(each) for each in results] == [list, list, Conflict, Conflict]
    assert await values(store, "a", "b", "c", "d") == {"a": 1, "b": 2, "c": 3}
    heads = await store.get_many([key(name) for name in ("a", "b", "c")])
    assert isinstance(results[0], list)
    assert isinstance(results[1], list)
    assert [heads[key(name)].revision for name in ("a", "b", "c")] == [results[0][0], *results[1][1:]]
    assert await store.revision() > before


@pytest.mark.parametrize("expected", [MUST_LIVE, 0, 1_000_000])
async def test_a_guard_of_all_sets_that_is_refused_refuses_all(store: Store, expected: int) -> None:
    await store.commit([create("there"), create("taken")])
    guard = precondition(key("absent" if expected == MUST_LIVE else "there"), expected)

    results = await together(store, [create("a"), guard], [create("taken"), guard], [guard, create("c")], [guard])

    assert [each.keys for each in results if isinstance(each, Conflict)] == [
        [guard.key],
        [key("taken"), guard.key],
        [guard.key],
        [guard.key],
    ]
    assert await values(store, "a", "c") == {}
    assert len(await store.commit([create("a"), precondition(key("there"))])) == 2
