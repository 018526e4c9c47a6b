"""Custom objects to which nothing belongs are not in the controllers' memory; all else is as with any other owner."""

from typing import Any

import msgspec
import pytest

from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.machinery.base import Kind, OwnerReference
from app.machinery.custom.object_body import decode_body
from app.registry.codec import key_of
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import definition, widget
from tests.controllers.running import Running, held_copy, running, settled, until
from tests.registry.examples import create, example, get, named


@pytest.fixture
async def widgets(registry: Registry) -> Kind:
    sent = decode_body(DEFINITIONS, msgspec.json.encode(definition()), "json", "Strict").object
    await objects.create(registry, DEFINITIONS, "", sent)
    found = (await registry.kinds.newest_table()).stored("widgets.lab.example.com")
    assert found is not None
    return found


async def make(registry: Registry, kind: Kind, name: str, **metadata: Any) -> Any:
    sent = decode_body(kind, msgspec.json.encode(widget(name)), "json", "Strict").object
    return await create(registry, kind, named(sent, name=name, namespace="default", **metadata))


async def belong(registry: Registry, name: str, owner: Any, *, blocks: bool = False) -> None:
    meta = owner.metadata
    reference = OwnerReference(
        api_version=owner.api_version,
        kind=owner.kind,
        name=meta.name,
        uid=meta.uid,
        block_owner_deletion=blocks or None,
    )
    await create(
        registry, CONFIGMAPS, named(example(CONFIGMAPS), name=name, namespace="default", owner_references=(reference,))
    )


async def delete(registry: Registry, kind: Kind, name: str, propagation: Any = "Background") -> None:
    await objects.delete(registry, kind, "default", name, Demand(propagation=propagation))


async def is_gone(registry: Registry, kind: Kind, name: str) -> None:
    async def so() -> bool:
        return await get(registry, kind, name) is None

    await until(registry, so)


def is_held(acting: Running, kind: Kind, name: str) -> bool:
    return acting.mirror.get(key_of(kind, "default", name)) is not None


async def becomes_held(registry: Registry, acting: Running, kind: Kind, name: str, *, held: bool = True) -> None:
    async def so() -> bool:
        return is_held(acting, kind, name) is held

    await until(registry, so)


async def test_one_that_stands_alone_is_not_held_after_a_start_nor_when_it_is_made(
    registry: Registry, widgets: Kind
) -> None:
    await make(registry, widgets, "old")
    await make(registry, widgets, "bound", finalizers=("example.com/held",))
    async with running(registry, GarbageCollector) as acting:
        await make(registry, widgets, "new")
        await settled(registry)

        assert not is_held(acting, widgets, "old")
        assert not is_held(acting, widgets, "new")
        assert is_held(acting, widgets, "bound")


async def test_those_that_stand_alone_are_not_even_read(registry: Registry, widgets: Kind) -> None:
    await make(registry, widgets, "alone")
    await make(registry, widgets, "bound", finalizers=("example.com/held",))

    mirror = await held_copy(registry)

    assert [each.metadata.name for each in mirror.all(widgets.resource)] == ["bound"]


async def test_an_owner_is_held_while_something_belongs_to_it(registry: Registry, widgets: Kind) -> None:
    owner = await make(registry, widgets, "owner")
    async with running(registry, GarbageCollector) as acting:
        await belong(registry, "one", owner)
        await belong(registry, "two", owner)
        await becomes_held(registry, acting, widgets, "owner")

        await delete(registry, CONFIGMAPS, "one")
        await settled(registry)
        assert is_held(acting, widgets, "owner")

        await delete(registry, CONFIGMAPS, "two")
        await becomes_held(registry, acting, widgets, "owner", held=False)
        assert await get(registry, widgets, "owner") is not None


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_belongs_to_it_goes_with_it(registry: Registry, widgets: Kind, restarts: bool) -> None:
    owner, other = [await make(registry, widgets, name) for name in ("owner", "other")]
    if restarts:
        await belong(registry, "one", owner)
        await belong(registry, "kept", other)
    async with running(registry, GarbageCollector) as acting:
        if not restarts:
            await belong(registry, "one", owner)
            await belong(registry, "kept", other)
        await becomes_held(registry, acting, widgets, "other")

        await delete(registry, widgets, "owner")

        await is_gone(registry, CONFIGMAPS, "one")
        await settled(registry)
        assert await get(registry, CONFIGMAPS, "kept") is not None


async def test_what_belongs_to_it_goes_though_the_owner_was_not_yet_looked_for(
    registry: Registry, widgets: Kind
) -> None:
    owner = await make(registry, widgets, "owner")
    async with running(registry, GarbageCollector) as acting:
        acting.mirror.is_paused = True
        await belong(registry, "one", owner)
        await delete(registry, widgets, "owner")
        acting.mirror.is_paused = False

        await is_gone(registry, CONFIGMAPS, "one")


async def test_an_owner_that_is_deleted_in_the_foreground_waits(registry: Registry, widgets: Kind) -> None:
    owner = await make(registry, widgets, "owner")
    async with running(registry, GarbageCollector):
        await belong(registry, "one", owner, blocks=True)
        await delete(registry, widgets, "owner", "Foreground")

        await is_gone(registry, widgets, "owner")
        assert await get(registry, CONFIGMAPS, "one") is None


async def test_what_is_orphaned_stays(registry: Registry, widgets: Kind) -> None:
    owner = await make(registry, widgets, "owner")
    async with running(registry, GarbageCollector):
        await belong(registry, "one", owner)
        await delete(registry, widgets, "owner", "Orphan")
        await is_gone(registry, widgets, "owner")
        await settled(registry)

        assert (await get(registry, CONFIGMAPS, "one")).metadata.owner_references == ()


async def test_many_owners_are_looked_for_together_after_a_start(registry: Registry, widgets: Kind) -> None:
    for number in range(12):
        await belong(registry, f"part-{number}", await make(registry, widgets, f"owner-{number}"))
    asked: list[int] = []
    read = registry.store.reader.get_many

    class Counting:
        """The reader, which counts what it is asked for."""

        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

        async def get_many(self, keys: Any) -> Any:
            asked.append(len(keys))
            return await read(keys)

    reader = registry.store.reader
    registry.store.reader = Counting()  # type: ignore[assignment]
    async with running(registry, GarbageCollector) as acting:
        for number in range(12):
            await becomes_held(registry, acting, widgets, f"owner-{number}")

    assert max(asked) == 12
