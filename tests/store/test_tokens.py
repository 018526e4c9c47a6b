"""Tokens: whose they are, until when, and what must live for them."""

from datetime import timedelta

import pytest

from app.store import Holder, Key, Limits, Need, Store
from tests.build import NOW
from tests.store.writes import create

HOLDER = Holder("ada", ["dev"], ["n-*"], "7", {"team": ["lab"]}, ["vault"])


async def test_a_token_is_given_back_as_it_was_kept(store: Store) -> None:
    await store.tokens.keep(b"1", HOLDER)
    await store.tokens.keep(b"1", HOLDER)

    assert await store.tokens.holder(b"1", NOW) == HOLDER
    assert await store.tokens.holder(b"2", NOW) is None


async def test_a_token_ends_at_its_time_and_is_then_forgotten(store: Store) -> None:
    for number, hours in ((b"1", 1), (b"2", 2)):
        await store.tokens.keep(number, HOLDER, Limits(NOW + timedelta(hours=hours)))
    await store.tokens.keep(b"3", HOLDER)

    at = NOW + timedelta(hours=1, seconds=1)
    assert [await store.tokens.holder(each, at) is not None for each in (b"1", b"2", b"3")] == [False, True, True]
    await store.tokens.forget_expired(at)
    assert await store.pool.fetchval("select count(*) from tokens") == 2


@pytest.mark.parametrize(
    ("uids", "good"),
    [
        pytest.param([""], True, id="while what it needs lives"),
        pytest.param(["other"], False, id="not once that is another of the same name"),
        pytest.param(["", "other"], False, id="not if only some of what it needs lives"),
    ],
)
async def test_a_token_is_good(store: Store, uids: list[str], good: bool) -> None:
    write = create("a")
    await store.commit([write])
    needs = [Need(write.key, uid or write.uid) for uid in uids]
    await store.tokens.keep(b"1", HOLDER, Limits(needs=needs))

    assert (await store.tokens.holder(b"1", NOW) is not None) is good


async def test_a_token_that_needs_what_is_not_there_is_not_good(store: Store) -> None:
    await store.tokens.keep(b"1", HOLDER, Limits(needs=[Need(Key("serviceaccounts", "default", "gone"), "1")]))

    assert await store.tokens.holder(b"1", NOW) is None
