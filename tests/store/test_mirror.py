"""A process's copy of the objects: as new as the feed, whole from the start, and asleep when a test wants it so."""

import asyncio

import msgspec
import pytest

from app.kinds.core.configmap import ConfigMap
from app.machinery.base import Object, ObjectMeta, OwnerReference
from app.store import DormantKinds, Key, Mirror, Store, Write, open_store
from tests.log_lines import lines
from tests.store.writes import create

KIND = "configmaps"


def mirror() -> Mirror:
    return Mirror({KIND: ConfigMap})


def a_map(name: str, value: str = "", *, owner: str = "", expected: int = 0, change: str = "") -> Write:
    owners = (OwnerReference(kind="Job", name=owner, uid=f"uid-of-{owner}", controller=True),) if owner else ()
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-of-{name}", owner_references=owners)
    body = msgspec.json.encode(ConfigMap(metadata=meta, data={"value": value}))
    return Write(
        key=Key(KIND, "default", name),
        change=change or ("M" if expected else "A"),
        expected=expected,
        uid=meta.uid,
        body=body,
    )


def shown(copy: Mirror) -> dict[str, str]:
    return {each.metadata.name: each.data.get("value", "") for each in copy.all(KIND)}


async def test_it_holds_what_there_was_and_follows(store: Store) -> None:
    (revision,) = await store.commit([a_map("a", "1")])
    copy = mirror()
    await store.fill(copy)
    assert shown(copy) == {"a": "1"}

    await store.commit([a_map("a", "2", expected=revision), a_map("b", "1"), create("of no interest")])

    assert shown(copy) == {"a": "2", "b": "1"}
    assert copy.revision == store.feed.cursor
    assert copy.get(Key(KIND, "default", "b")).metadata.resource_version == str(revision + 2)


async def test_what_changes_while_dormant_objects_are_read_is_newer(store: Store) -> None:
    maps = [a_map(name, "read") for name in "abc"]
    revisions = await store.commit(maps)
    copy = Mirror({KIND: ConfigMap}, dormant=DormantKinds("owners", KIND, lambda _: True))
    copy.start_at(revisions[-1], ())
    await store.feed.listen(copy.apply, since=revisions[-1])

    with copy.waking() as wake:
        heads = await store.get_many([each.key for each in maps])
        await store.commit(
            [a_map("a", "changed", expected=revisions[0]), a_map("b", expected=revisions[1], change="D")]
        )
        assert shown(copy) == {}
        wake(heads.values())

    assert shown(copy) == {"a": "changed", "c": "read"}


async def test_it_follows_other_processes(store: Store, dsn: str) -> None:
    copy = mirror()
    await store.fill(copy)
    async with open_store(dsn) as other:
        (revision,) = await other.commit([a_map("a", "1")])
    await store.feed.reach(revision)

    assert shown(copy) == {"a": "1"}


async def test_filled_while_others_write_it_misses_nothing(store: Store, dsn: str) -> None:
    async with open_store(dsn) as other:

        async def busy(writer: Store, name: str) -> None:
            revision = 0
            for number in range(60):
                (revision,) = await writer.commit([a_map(name, str(number), expected=revision)])

        writers = [asyncio.ensure_future(busy(each, name)) for each, name in ((store, "own"), (other, "other"))]
        copies = []
        while not all(each.done() for each in writers):
            copies.append(mirror())
            await store.fill(copies[-1])
        await asyncio.gather(*writers)
        await store.feed.reach(await store.revision())

    assert copies
    assert [shown(copy) for copy in copies] == [{"own": "59", "other": "59"}] * len(copies)


async def test_it_knows_who_controls_what(store: Store) -> None:
    copy = mirror()
    await store.fill(copy)
    first, second = await store.commit([a_map("a", owner="job"), a_map("b", owner="job")])
    assert len(copy.owned("uid-of-job")) == 2

    await store.commit([a_map("a", expected=first, owner="another"), a_map("b", expected=second, change="D")])

    assert copy.owned("uid-of-job") == []
    assert [each.metadata.name for each in copy.owned("uid-of-another")] == ["a"]


async def test_listeners_are_told_of_every_change_with_both_versions(store: Store) -> None:
    copy = mirror()
    await store.fill(copy)
    told: list[tuple[str, str | None, str | None]] = []

    def value(obj: Object | None) -> str | None:
        return obj.data["value"] if isinstance(obj, ConfigMap) else None

    copy.listen(lambda key, before, now: told.append((key.name, value(before), value(now))))
    (revision,) = await store.commit([a_map("a", "1")])
    (revision,) = await store.commit([a_map("a", "2", expected=revision)])
    await store.commit([a_map("a", "2", expected=revision, change="D")])

    assert told == [("a", None, "1"), ("a", "1", "2"), ("a", "2", None)]


async def test_filled_again_it_drops_what_is_gone(store: Store) -> None:
    copy = mirror()
    await store.fill(copy)
    (revision,) = await store.commit([a_map("a"), a_map("b")][:1])
    store.feed.leave(copy.apply)
    await store.commit([a_map("a", expected=revision, change="D"), a_map("c")])

    await store.fill(copy)

    assert list(shown(copy)) == ["c"]


async def test_held_back_it_stays_as_it_is_and_then_catches_up(store: Store) -> None:
    copy = mirror()
    await store.fill(copy)
    copy.is_paused = True
    (revision,) = await store.commit([a_map("a", "1")])
    await store.commit([a_map("a", "2", expected=revision)])
    assert shown(copy) == {}

    copy.is_paused = False

    assert shown(copy) == {"a": "2"}


async def test_an_object_that_cannot_be_read_does_not_hide_the_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    copy, later = mirror(), mirror()
    await store.fill(copy)

    await store.commit([create("broken", kind=KIND), a_map("a", "1")])
    await store.commit([Write(**{**_fields(a_map("b")), "body": b'{"metadata":{"name":7}}'}), a_map("c", "1")])
    await store.fill(later)

    assert shown(copy) == shown(later) == {"broken": "", "a": "1", "c": "1"}
    assert any("object=configmaps/default/b revision=" in line for line in lines(caplog))


async def test_an_object_of_a_version_that_took_null_for_a_field_can_be_read(store: Store) -> None:
    copy = mirror()
    old = b'{"metadata":{"name":"a","labels":null,"creationTimestamp":"2026-01-31T12:00:00Z"},"data":{"value":"1"}}'
    await store.commit([Write(**{**_fields(a_map("a")), "body": old})])
    await store.fill(copy)

    assert shown(copy) == {"a": "1"}


def _fields(write: Write) -> dict[str, object]:
    return {name: getattr(write, name) for name in Write.__struct_fields__}
