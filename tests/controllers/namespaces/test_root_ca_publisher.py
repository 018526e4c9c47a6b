"""Every namespace has the certificate of the API's authority, where one is known."""

from typing import Any

from msgspec.structs import replace

from app.controllers.manager import NodeSettings, controllers, new_mirror
from app.controllers.namespaces.root_ca_publisher import NAME, RootCAPublisher
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.running import CERTIFICATE, GRACE, running, settled, until
from tests.registry.examples import NAMESPACES, create, example, get, named

SPACE = "research"


async def published(registry: Registry) -> Any:
    """The ConfigMap, if it says what it should."""
    found = await get(registry, CONFIGMAPS, NAME, SPACE)
    return found if found is not None and found.data == {"ca.crt": CERTIFICATE} else None


async def a_space(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name=SPACE))


async def test_a_new_namespace_gets_it(registry: Registry) -> None:
    async with running(registry, RootCAPublisher):
        await a_space(registry)
        found = await until(registry, lambda: published(registry))

    assert "kubernetes.io/description" in found.metadata.annotations


async def test_a_namespace_that_was_there_before_gets_it(registry: Registry) -> None:
    await a_space(registry)
    async with running(registry, RootCAPublisher):
        await until(registry, lambda: published(registry))


async def test_it_is_written_again_when_it_was_deleted(registry: Registry) -> None:
    await a_space(registry)
    async with running(registry, RootCAPublisher):
        first = await until(registry, lambda: published(registry))
        await objects.delete(registry, CONFIGMAPS, SPACE, NAME, Demand())
        second = await until(registry, lambda: published(registry))

    assert first.metadata.uid != second.metadata.uid


async def test_it_is_written_again_when_it_was_changed(registry: Registry) -> None:
    def forge(old: Any) -> Any:
        return replace(old, data={"ca.crt": "forged", "more": "yes"})

    await a_space(registry)
    async with running(registry, RootCAPublisher):
        first = await until(registry, lambda: published(registry))
        await objects.edit(registry, CONFIGMAPS, SPACE, NAME, forge)
        second = await until(registry, lambda: published(registry))

    assert first.metadata.uid == second.metadata.uid


async def test_another_authority_replaces_what_was_published_before(registry: Registry) -> None:
    await a_space(registry)
    old = ConfigMap(metadata=named(example(CONFIGMAPS), name=NAME, namespace=SPACE).metadata, data={"ca.crt": "old"})
    await create(registry, CONFIGMAPS, old)
    async with running(registry, RootCAPublisher):
        await until(registry, lambda: published(registry))


async def test_a_namespace_that_is_going_gets_none(registry: Registry) -> None:
    await a_space(registry)
    await objects.delete(registry, NAMESPACES, "", SPACE, Demand())
    async with running(registry, RootCAPublisher) as acting:
        await settled(registry, 0.2)
        assert acting.runners[0]._failures == {}

    assert await get(registry, CONFIGMAPS, NAME, SPACE) is None


def test_nothing_is_published_where_no_authority_is_known(registry: Registry) -> None:
    acting = controllers(registry, new_mirror(), NodeSettings(grace=GRACE))

    assert RootCAPublisher not in {type(each) for each in acting}
