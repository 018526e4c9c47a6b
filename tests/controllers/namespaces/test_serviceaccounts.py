"""Every namespace has its default service account."""

from typing import Any

from app.controllers.namespaces.serviceaccounts import ServiceAccountController
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.running import running, settled, until
from tests.registry.examples import NAMESPACES, create, example, get, named

SPACE = "research"


async def account(registry: Registry) -> Any:
    return await get(registry, ACCOUNTS, "default", SPACE)


async def a_space(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name=SPACE))


async def test_a_new_namespace_gets_one(registry: Registry) -> None:
    async with running(registry, ServiceAccountController):
        await a_space(registry)
        await until(registry, lambda: account(registry))


async def test_a_namespace_that_was_there_before_gets_one(registry: Registry) -> None:
    await a_space(registry)
    async with running(registry, ServiceAccountController):
        await until(registry, lambda: account(registry))


async def test_one_that_is_deleted_is_made_again(registry: Registry) -> None:
    await a_space(registry)
    async with running(registry, ServiceAccountController):
        first = await until(registry, lambda: account(registry))
        await objects.delete(registry, ACCOUNTS, SPACE, "default", Demand())
        second = await until(registry, lambda: account(registry))

    assert first.metadata.uid != second.metadata.uid


async def test_a_namespace_that_is_going_gets_none(registry: Registry) -> None:
    await a_space(registry)
    await objects.delete(registry, NAMESPACES, "", SPACE, Demand())
    async with running(registry, ServiceAccountController) as controllers:
        await settled(registry, 0.2)
        assert controllers.runners[0]._failures == {}

    assert await account(registry) is None


async def test_one_that_somebody_else_made_is_enough(registry: Registry) -> None:
    await a_space(registry)
    made = await create(registry, ACCOUNTS, named(example(ACCOUNTS), name="default", namespace=SPACE))
    async with running(registry, ServiceAccountController):
        await settled(registry, 0.2)

    assert await account(registry) == made
