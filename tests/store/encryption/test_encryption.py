"""Encryption of Secrets at rest: what Postgres holds, who can read it, rotation, and the way back to plain text."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.store import Key, MasterKeyError, Query, Store, Unavailable, open_store
from app.store.encryption.encryption import MARK
from app.store.encryption.master_keys import KeyFile
from app.store.encryption.reencryption import SecretsReencryption, data_key_uses
from app.store.errors import Compacted
from tests.store.encryption.test_master_keys import key_file, new_line
from tests.store.writes import create, delete, key, modify, value_of

KIND = "secrets"
PLANTED = "planted-secret-value"
NOW = datetime(2026, 11, 25, tzinfo=UTC)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(key_file(tmp_path / "keys", new_line()))


@pytest.fixture
async def encrypting(dsn: str, keys: KeyFile) -> AsyncIterator[Store]:
    async with open_store(dsn, keys=keys) as opened:
        yield opened


async def stored(store: Store) -> list[bytes]:
    """The bodies of all versions, as Postgres has them."""
    return [row["body"] for row in await store.pool.fetch("select body from history order by revision")]


async def activate(store: Store) -> None:
    """As if the time had passed after which a new data key is active."""
    await store.pool.execute("update data_keys set active_at = active_at - interval '1 minute'")
    await store.keys.load(store.pool)


async def reencrypt(store: Store) -> int:
    return (await SecretsReencryption(store.pool, store.keys).run_once(NOW))["versions encrypted anew"]


async def test_no_version_of_a_secret_is_stored_as_it_is(encrypting: Store) -> None:
    (first,) = await encrypting.commit([create("a", PLANTED, kind=KIND)])
    (second,) = await encrypting.commit([modify("a", first, f"{PLANTED}-2", kind=KIND)])
    await encrypting.commit([delete("a", second, f"{PLANTED}-2", kind=KIND)])
    await encrypting.commit([create("a", "public")])

    *secrets, other = await stored(encrypting)
    assert [body.startswith(MARK) for body in secrets] == [True] * 3
    assert not any(PLANTED.encode() in body for body in secrets)
    assert len(set(secrets)) == 3  # the second and the third have one text, and yet differ
    assert value_of(other) == "public"


async def test_every_read_gets_the_text(encrypting: Store, dsn: str, keys: KeyFile) -> None:
    (first,) = await encrypting.commit([create("a", "one", kind=KIND)])
    (second,) = await encrypting.commit([modify("a", first, "two", kind=KIND)])

    async with open_store(dsn, keys=keys, ring_bytes=0) as other:
        got = await other.get(key("a", KIND))
        page = await other.list(Query(kind=KIND))
        before = await other.list(Query(kind=KIND, at=first))
        large = await other.list(Query(kind=KIND, limit=10, size=20))  # more than that: it is read in a second step
        changes = await other.history_of(KIND, 0, second)
        versions = await other.reader.versions([first, second])
        every = (await other.reader.history(other.pool, 0, None))[0]

    assert got is not None
    assert [value_of(each.body) for each in (got, *page.heads, *large.heads)] == ["two"] * 3
    assert [value_of(each.body) for each in before.heads] == ["one"]
    assert [value_of(each.body) for each in changes] == ["one", "two"]
    assert [value_of(each.body) for each in every] == ["one", "two"]
    assert {revision: value_of(body) for revision, body in versions.items()} == {first: "one", second: "two"}


async def test_all_who_start_at_once_have_one_data_key(dsn: str, keys: KeyFile) -> None:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(dsn, keys=keys)) for _ in range(4)]

        assert len({store.keys.header for store in stores}) == 1
        assert len(await data_key_uses(stores[0].pool)) == 1


async def test_without_the_master_key_secrets_are_refused_and_all_else_is_served(encrypting: Store, dsn: str) -> None:
    await encrypting.commit([create("a", PLANTED, kind=KIND), create("b", "public")])

    async with open_store(dsn) as other:
        with pytest.raises(
            MasterKeyError, match=r"are encrypted, and there is no master key .*JOBPLANE_SECRETS_KEY_FILE"
        ):
            other.keys.check()
        with pytest.raises(Unavailable, match="Secret default/a is encrypted under a key"):
            await other.get(key("a", KIND))
        assert await other.get(key("b")) is not None


async def test_another_master_key_is_refused_at_once(encrypting: Store, dsn: str, tmp_path: Path) -> None:
    other = KeyFile(key_file(tmp_path / "others", new_line()))

    with pytest.raises(MasterKeyError, match="lacks the key"):
        async with open_store(dsn, keys=other):
            pass


async def test_a_body_cannot_be_passed_off_as_another_objects(encrypting: Store) -> None:
    await encrypting.commit([create("a", "one", kind=KIND), create("b", "two", kind=KIND)])
    await encrypting.pool.execute(
        "update versions set body = (select body from history where name = 'a') where name = 'b'"
    )

    assert await encrypting.get(key("a", KIND)) is not None
    with pytest.raises(Unavailable, match="Secret default/b is damaged"):
        await encrypting.get(key("b", KIND))


async def test_secrets_of_before_are_encrypted_when_it_is_switched_on(store: Store, dsn: str, keys: KeyFile) -> None:
    for number in range(120):  # more than one slice
        await store.commit([create(f"s-{number}", PLANTED, kind=KIND)])
    await store.commit([create("a", PLANTED)])

    async with open_store(dsn, keys=keys) as encrypting:
        task = SecretsReencryption(encrypting.pool, encrypting.keys)
        assert await task.run_once(NOW) == {"versions encrypted anew": 120}
        assert await task.run_once(NOW) == {"versions encrypted anew": 0}
        *secrets, other = await stored(encrypting)
        found = await encrypting.get(key("s-7", KIND))

    assert all(body.startswith(MARK) for body in secrets)
    assert value_of(other) == PLANTED
    assert found is not None
    assert value_of(found.body) == PLANTED


async def test_rotation_reaches_every_version_and_every_process(encrypting: Store, dsn: str, keys: KeyFile) -> None:
    (first,) = await encrypting.commit([create("a", "one", kind=KIND)])
    await encrypting.commit([modify("a", first, "two", kind=KIND)])
    before = encrypting.keys.header
    async with open_store(dsn, keys=keys, ring_bytes=0) as other:
        await encrypting.keys.rotate(encrypting.pool)
        await encrypting.keys.load(encrypting.pool)
        assert encrypting.keys.header == before  # until every process has read the new key

        await activate(encrypting)
        assert await reencrypt(encrypting) == 2
        with pytest.raises(Unavailable):
            await other.get(key("a", KIND))
        await other.keys.load(other.pool)  # what a process that lacks a key does at once
        found = await other.get(key("a", KIND))

    old, new = await data_key_uses(encrypting.pool)
    assert (old.versions, new.versions) == (0, 2)
    assert found is not None
    assert value_of(found.body) == "two"


async def test_a_process_that_lacks_a_data_key_reads_it_by_itself(encrypting: Store, dsn: str, keys: KeyFile) -> None:
    async with open_store(dsn, keys=keys, ring_bytes=0) as other:
        await encrypting.keys.rotate(encrypting.pool)
        await activate(encrypting)
        await encrypting.commit([create("a", "one", kind=KIND)])
        found = None
        while found is None:
            try:
                found = await other.get(key("a", KIND))
            except Unavailable:
                await other.pool.fetchval("select pg_sleep(0.05)")

    assert value_of(found.body) == "one"


async def test_a_new_master_key_wraps_all_data_keys(encrypting: Store, dsn: str, keys: KeyFile, tmp_path: Path) -> None:
    await encrypting.commit([create("a", "one", kind=KIND)])
    (old_line,) = (tmp_path / "keys").read_text().splitlines()
    new = new_line()
    key_file(tmp_path / "keys", new, old_line)

    await encrypting.keys.rotate(encrypting.pool)
    key_file(tmp_path / "keys", new)  # the old one is needed no longer

    async with open_store(dsn, keys=keys) as other:
        found = await other.get(key("a", KIND))
    assert found is not None
    assert len({each.master for each in await data_key_uses(encrypting.pool)}) == 1


async def test_the_way_back_to_plain_text(encrypting: Store, dsn: str) -> None:
    (first,) = await encrypting.commit([create("a", "one", kind=KIND)])
    await encrypting.keys.switch_off(encrypting.pool)
    await activate(encrypting)
    await encrypting.commit([modify("a", first, "two", kind=KIND)])

    assert await reencrypt(encrypting) == 1
    async with open_store(dsn) as plain:
        plain.keys.check()
        page = await plain.list(Query(kind=KIND))
    assert [value_of(body) for body in await stored(encrypting)] == ["one", "two"]
    assert [value_of(each.body) for each in page.heads] == ["two"]


async def test_a_restored_database_gets_the_data_keys_back_that_it_lost(encrypting: Store) -> None:
    await encrypting.commit([create("a", "one", kind=KIND)])
    await encrypting.pool.execute("delete from data_keys")
    await encrypting.keys.rotate(encrypting.pool)

    assert len(await data_key_uses(encrypting.pool)) >= 2
    assert await encrypting.get(key("a", KIND)) is not None


async def test_one_damaged_version_holds_up_no_others(encrypting: Store) -> None:
    await encrypting.commit([create("a", "one", kind=KIND), create("b", "two", kind=KIND)])
    await encrypting.pool.execute("update versions set body = substring(body from 1 for 30) where name = 'a'")
    await encrypting.keys.rotate(encrypting.pool)
    await activate(encrypting)

    assert await reencrypt(encrypting) == 1


async def test_a_version_that_changes_meanwhile_is_not_overwritten(encrypting: Store) -> None:
    await encrypting.commit([create("a", "one", kind=KIND)])
    rows = await encrypting.pool.fetch("select revision, kind, namespace, name, body from history")
    await encrypting.pool.execute("update versions set body = $1", b"of somebody else")

    assert await SecretsReencryption(encrypting.pool, encrypting.keys)._replace(rows) == 1
    assert await stored(encrypting) == [b"of somebody else"]


async def test_compaction_goes_on_as_before(encrypting: Store) -> None:
    (first,) = await encrypting.commit([create("a", "one", kind=KIND)])
    await encrypting.commit([modify("a", first, "two", kind=KIND)])
    await encrypting.pool.execute("update counter set secrets_floor = revision")

    with pytest.raises(Compacted):
        await encrypting.history_of(KIND, 0, await encrypting.revision())
    assert await encrypting.get(Key(KIND, "default", "a")) is not None
