"""Priority and Fairness: seats, turns, bounds, and that whoever leaves the queue leaves nothing behind."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import httpx
import pytest

from app.api import priority_and_fairness
from app.api.auth.authenticator import NODES, User
from app.api.http.query import ListOptions
from app.api.priority_and_fairness import Fairness, Level, Seat, seats_of
from app.api.resources.selection import Selection, read_selection
from app.machinery.errors import ApiError
from app.metrics.registry import MetricsRegistry


def level(seats: int = 2, most_of_one_user: int = 2) -> Level:
    return Level("test", seats, most_of_one_user)


async def queue(tested: Level, user: str, width: int = 1) -> "asyncio.Task[Seat]":
    """A request that waits, or has its seat, when this returns."""
    task = asyncio.create_task(tested.take(user, width))
    await asyncio.sleep(0)
    return task


def is_empty(tested: Level) -> bool:
    return (tested.executing, tested.waiting, tested._flows, tested._turns) == (0, 0, {}, {})


async def test_seats_are_held_until_they_are_released() -> None:
    tested = level()
    first, second = await tested.take("ada"), await tested.take("ada")
    third = await queue(tested, "ada")
    assert (tested.executing, tested.waiting, third.done()) == (2, 1, False)

    first.release()
    (await third).release()
    second.release()
    assert is_empty(tested)


async def test_users_take_turns_however_many_requests_one_has() -> None:
    tested, order = level(seats=1), list[str]()
    first = await tested.take("flood")

    async def ask(user: str) -> None:
        seat = await tested.take(user)
        order.append(user)
        seat.release()

    tasks = [asyncio.create_task(ask(user)) for user in ("flood", "flood", "flood", "flood", "ada", "bob", "ada")]
    await asyncio.sleep(0)
    first.release()
    await asyncio.gather(*tasks)

    assert order == ["flood", "ada", "bob", "flood", "ada", "flood", "flood"]
    assert is_empty(tested)


async def test_one_user_cannot_hold_all_seats() -> None:
    tested = level(seats=4, most_of_one_user=2)
    flood = [await queue(tested, "flood") for _ in range(4)]
    assert [task.done() for task in flood] == [True, True, False, False]

    ada = await asyncio.wait_for(tested.take("ada"), 5)

    for seat in (ada, *[await task for task in flood[:2]]):
        seat.release()
    for task in flood[2:]:
        (await task).release()
    assert is_empty(tested)


async def test_a_wide_request_is_not_passed_by_narrow_ones_for_ever() -> None:
    tested = level(seats=2)
    first = await tested.take("ada")
    wide = await queue(tested, "bob", 2)
    narrow = await queue(tested, "eve")
    assert not narrow.done()

    first.release()
    assert wide.done() or not narrow.done()
    (await wide).release()
    (await narrow).release()
    assert is_empty(tested)


async def test_a_full_queue_is_refused_with_429_and_when_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority_and_fairness, "MOST_WAITING", 3)
    tested = level(seats=1)
    first = await tested.take("flood")
    waiting = [await queue(tested, "flood") for _ in range(3)]

    with pytest.raises(ApiError) as refused:
        await tested.take("flood")
    ada = await queue(tested, "ada")  # another user's queue is her own

    assert (refused.value.code, refused.value.reason, tested.rejected) == (429, "TooManyRequests", 1)
    for task in (waiting[0], ada, *waiting[1:]):
        first.release()
        first = await task
    first.release()
    assert is_empty(tested)


async def test_whoever_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority_and_fairness, "WAIT_SECONDS", 0.0)
    tested = level(seats=1)
    first = await tested.take("ada")

    with pytest.raises(ApiError, match="too many requests"):
        await tested.take("bob")

    first.release()
    assert is_empty(tested)


async def test_a_client_that_goes_away_leaves_its_place_to_the_next() -> None:
    tested = level(seats=1)
    first = await tested.take("ada")
    gone, next_ = await queue(tested, "bob"), await queue(tested, "eve")
    gone.cancel()
    await asyncio.wait([gone])

    first.release()
    (await next_).release()
    assert is_empty(tested)


async def test_a_seat_that_becomes_free_passes_over_a_client_that_is_just_going_away() -> None:
    tested = level(seats=1)
    first = await tested.take("ada")
    gone, next_ = await queue(tested, "bob"), await queue(tested, "eve")
    gone.cancel()  # bob's task has not run since, so he still stands in the queue
    first.release()

    (await next_).release()
    await asyncio.wait([gone])
    assert is_empty(tested)


async def test_a_client_that_goes_away_as_its_turn_comes_gives_the_seat_back() -> None:
    tested = level(seats=1)
    first = await tested.take("ada")
    gone, next_ = await queue(tested, "bob"), await queue(tested, "eve")
    first.release()  # bob's turn has come, and he does not know yet
    gone.cancel()
    await asyncio.wait([gone])

    (await next_).release()
    assert is_empty(tested)


@pytest.mark.parametrize(
    ("verb", "query", "seats"),
    [
        ("get", [], 1),
        ("create", [], 1),
        ("watch", [("watch", "1"), ("resourceVersion", "7")], 1),
        ("watch", [("watch", "1")], 10),
        ("watch", [("watch", "1"), ("resourceVersion", "0")], 10),
        ("watch", [("watch", "1"), ("resourceVersion", "7"), ("sendInitialEvents", "true")], 10),
        ("watch", [("watch", "1"), ("resourceVersion", "0"), ("sendInitialEvents", "false")], 1),
        ("watch", [("watch", "1"), ("fieldSelector", "metadata.name=a")], 1),
        ("list", [], 10),
        ("list", [("limit", "500")], 5),
        ("list", [("limit", "1")], 1),
        ("list", [("limit", "100000")], 10),
        ("list", [("fieldSelector", "metadata.name=a")], 1),
        ("deletecollection", [], 10),
    ],
)
def test_a_list_takes_seats_for_what_it_may_return(verb: str, query: list[tuple[str, str]], seats: int) -> None:
    assert seats_of(verb, read_selection(query)) == seats


def test_an_invalid_list_takes_no_more_than_any() -> None:
    assert seats_of("list", Selection(ListOptions(limit=-5))) == 10


@asynccontextmanager
async def watches(client: httpx.AsyncClient, count: int) -> AsyncIterator[None]:
    """So many watches that are open."""
    path = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    begun = asyncio.Semaphore(0)

    async def watch() -> None:
        async with client.stream("GET", f"{path}&allowWatchBookmarks=true") as stream:
            async for _ in stream.aiter_lines():
                begun.release()

    tasks = [asyncio.create_task(watch()) for _ in range(count)]
    for _ in range(count):
        await begun.acquire()
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_watches_hold_no_seats(url: str, admin: httpx.AsyncClient) -> None:
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=url, headers=admin.headers, limits=limits, timeout=30) as client,
        watches(client, priority_and_fairness.MOST_OF_ONE_USER + 5),
    ):
        assert (await admin.get("/api/v1/namespaces/default")).status_code == 200
        shown = (await admin.get("/metrics")).text
    assert 'apiserver_flowcontrol_current_executing_seats{priority_level="people"} ' in shown
    seats = next(
        line for line in shown.splitlines() if line.startswith("apiserver_flowcontrol_current_executing_seats")
    )
    assert float(seats.rpartition(" ")[2]) <= 1


async def test_a_user_with_too_many_streams_gets_429_and_others_do_not(
    url: str, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_and_fairness, "MOST_STREAMS", 3)
    path = "/api/v1/configmaps?watch=1"
    async with watches(admin, 3):
        refused = await admin.get(path)
        other = await admin.get(
            f"{path}&timeoutSeconds=1", headers={"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
        )
    again = await admin.get(f"{path}&timeoutSeconds=1")

    assert (refused.status_code, other.status_code, again.status_code) == (429, 200, 200)
    assert "you have 3 open watches and streams" in refused.json()["message"]
    assert refused.headers["Retry-After"] == "1"


def test_agents_that_share_a_token_may_have_a_watch_for_each_of_many_nodes() -> None:
    fairness = Fairness(MetricsRegistry())
    fleet = User(name="system:node:fleet", groups=(NODES,), nodes=("fleet-*",))
    single = User(name="system:node:one", groups=(NODES,), nodes=("one",))
    with ExitStack() as open_streams:
        for user in (fleet, single):
            for _ in range(priority_and_fairness.MOST_STREAMS):
                open_streams.enter_context(fairness.stream(user))

        fairness.check_streams(fleet)
        with pytest.raises(ApiError, match="4096 open watches"):
            fairness.check_streams(single)
