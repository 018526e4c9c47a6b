"""The garbage collector on a real database: whatever the kinds, objects go with their owners and nothing else does."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.garbage_collection import garbage_collector
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.kinds import by_name
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.secret import KIND as SECRETS
from app.machinery.base import Kind, OwnerReference
from app.registry.codec import key_of
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, create, example, get, named

NODES = by_name("", "Node")


def reference(owner: Any, *, blocks: bool = False, **changed: Any) -> OwnerReference:
    meta = owner.metadata
    usual = {"api_version": owner.api_version, "kind": owner.kind, "name": meta.name, "uid": meta.uid}
    return OwnerReference(**usual | {"block_owner_deletion": blocks or None} | changed)


async def make(registry: Registry, name: str, *owners: OwnerReference, kind: Kind = CONFIGMAPS, **metadata: Any) -> Any:
    place = {"namespace": "default" if kind.namespaced else ""} | metadata
    return await create(registry, kind, named(example(kind), name=name, owner_references=owners, **place))


async def own(registry: Registry, name: str, *owners: OwnerReference, kind: Kind = CONFIGMAPS) -> None:
    await objects.edit(registry, kind, "default", name, lambda old: named(old, owner_references=owners))


async def delete(registry: Registry, name: str, propagation: Any = "Background", kind: Kind = CONFIGMAPS) -> None:
    await objects.delete(registry, kind, "default", name, Demand(propagation=propagation))


async def is_gone(registry: Registry, name: str, kind: Kind = CONFIGMAPS) -> None:
    async def so() -> bool:
        return await get(registry, kind, name) is None

    await until(registry, so)


async def names(registry: Registry, kind: Kind = CONFIGMAPS) -> set[str]:
    return {each.metadata.name for each in await every(registry, kind)}


async def remain(registry: Registry, *expected: str) -> None:
    async def so() -> bool:
        return await names(registry) == set(expected)

    await until(registry, so)
    await settled(registry, 0.1)
    assert await names(registry) == set(expected)


class TestWithoutAnOwner:
    async def test_a_chain_goes_link_by_link(self, registry: Registry) -> None:
        first = await make(registry, "first")
        second = await make(registry, "second", reference(first))
        secret = await make(registry, "third", reference(second), kind=SECRETS)
        await make(registry, "fourth", reference(secret), kind=LEASES)
        await make(registry, "other")
        async with running(registry, GarbageCollector):
            await delete(registry, "first")
            await is_gone(registry, "fourth", LEASES)

        assert await names(registry) == {"other"}
        assert await names(registry, SECRETS) == set()

    async def test_a_started_controller_finds_what_was_left(self, registry: Registry) -> None:
        first = await make(registry, "first")
        await make(registry, "second", reference(first))
        await delete(registry, "first")

        async with running(registry, GarbageCollector):
            await remain(registry)

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param({"uid": "never-was"}, id="a UID that never was"),
            pytest.param({"name": "another"}, id="another name"),
            pytest.param({"kind": "Secret"}, id="another kind"),
        ],
    )
    async def test_an_owner_that_is_not_there_counts_as_gone(self, registry: Registry, wrong: dict[str, str]) -> None:
        first = await make(registry, "first")
        async with running(registry, GarbageCollector):
            await make(registry, "second", reference(first, **wrong))

            await remain(registry, "first")

    @pytest.mark.parametrize(
        "foreign",
        [
            pytest.param({"api_version": "example.com/v1", "kind": "Thing"}, id="a kind that is not served"),
            pytest.param({"api_version": "v2"}, id="a version that is not served"),
            pytest.param({"api_version": "events.k8s.io/v1", "kind": "Event"}, id="events, which own nothing"),
        ],
    )
    async def test_what_cannot_be_looked_up_is_left_alone(self, registry: Registry, foreign: dict[str, str]) -> None:
        first = await make(registry, "first")
        async with running(registry, GarbageCollector):
            gone = reference(first, uid="never-was")
            await make(registry, "second", gone, reference(first, **foreign, uid="unknown"))

            await remain(registry, "first", "second")

    async def test_while_one_owner_lives_the_others_are_dropped(self, registry: Registry) -> None:
        owners = [await make(registry, name) for name in ("a", "b", "c")]
        await make(registry, "it", *map(reference, owners))
        async with running(registry, GarbageCollector):
            await delete(registry, "a")
            await delete(registry, "c")

            async def so() -> bool:
                return [each.name for each in (await get(registry, CONFIGMAPS, "it")).metadata.owner_references] == [
                    "b"
                ]

            await until(registry, so)
            it = await get(registry, CONFIGMAPS, "it")
            assert it.data == example(CONFIGMAPS).data  # it was not mirrored whole, but written whole

            await delete(registry, "b")
            await remain(registry)

    async def test_what_the_server_never_deletes_stays(self, registry: Registry) -> None:
        first = await make(registry, "first", kind=NODES)
        async with running(registry, GarbageCollector) as controllers:
            await objects.edit(
                registry,
                NAMESPACES,
                "",
                "default",
                lambda old: named(old, owner_references=(reference(first, uid="never-was"),)),
            )
            await settled(registry, 0.1)
            assert controllers.runners[0]._failures == {}

        assert (await get(registry, NAMESPACES, "default")).metadata.deletion_timestamp is None

    async def test_an_adopted_object_is_looked_at(self, registry: Registry) -> None:
        first = await make(registry, "first")
        await make(registry, "second")
        async with running(registry, GarbageCollector):
            await delete(registry, "first")
            await own(registry, "second", reference(first))

            await remain(registry)

    async def test_pods_and_jobs_are_objects_like_others(self, registry: Registry) -> None:
        owner = await make(registry, "owner")
        job = named(a_job(), owner_references=(reference(owner),))
        await create(registry, JOBS, job)
        await create(registry, PODS, named(a_pod(), owner_references=(reference(owner),)))
        async with running(registry):
            await delete(registry, "owner")
            await is_gone(registry, "pi", JOBS)
            await is_gone(registry, "p", PODS)

    async def test_thousands_go_in_parts(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(garbage_collector, "TOGETHER", 7)
        monkeypatch.setattr(garbage_collector, "MOST", 20)
        first = await make(registry, "first")
        await asyncio.gather(*(make(registry, f"n{n}", reference(first)) for n in range(90)))
        async with running(registry, GarbageCollector):
            await delete(registry, "first")

            await remain(registry)


class TestInAnotherNamespace:
    @pytest.fixture(autouse=True)
    async def spaces(self, registry: Registry) -> None:
        await create(registry, NAMESPACES, named(example(NAMESPACES), name="far"))

    async def told(self, registry: Registry) -> list[str]:
        return [f"{each.involved_object.name}: {each.reason}" for each in await every(registry, EVENTS)]

    async def test_an_owner_is_none(self, registry: Registry) -> None:
        first = await make(registry, "first")
        async with running(registry, GarbageCollector):
            await make(registry, "second", reference(first), namespace="far")

            await remain(registry, "first")
            assert await self.told(registry) == ["second: OwnerRefInvalidNamespace"]

    async def test_a_namespaced_owner_of_what_lives_outside_is_told_and_nothing_else(self, registry: Registry) -> None:
        first = await make(registry, "first")
        async with running(registry, GarbageCollector):
            await make(registry, "n", reference(first), kind=NODES)
            await until(registry, lambda: every(registry, EVENTS))
            await objects.edit(registry, NODES, "", "n", lambda old: named(old, labels={"a": "b"}))
            await delete(registry, "first")
            await settled(registry, 0.1)

            assert await get(registry, NODES, "n", "") is not None
            assert await self.told(registry) == ["n: OwnerRefInvalidNamespace"]

    async def test_an_owner_outside_of_namespaces_is_one(self, registry: Registry) -> None:
        node = await make(registry, "n", kind=NODES)
        async with running(registry, GarbageCollector):
            await make(registry, "first", reference(node))
            await make(registry, "second", reference(node), namespace="far")
            await settled(registry, 0.1)
            assert await names(registry) == {"first", "second"}

            await objects.delete(registry, NODES, "", "n", Demand())
            await remain(registry)


class TestInTheForeground:
    async def test_an_owner_waits_for_what_blocks_it(self, registry: Registry) -> None:
        first = await make(registry, "first")
        await make(registry, "second", reference(first, blocks=True), finalizers=("example.com/hold",))
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Foreground")
            await settled(registry, 0.1)
            assert (await get(registry, CONFIGMAPS, "first")).metadata.finalizers == ("foregroundDeletion",)
            assert (await get(registry, CONFIGMAPS, "second")).metadata.deletion_timestamp is not None

            await objects.edit(registry, CONFIGMAPS, "default", "second", lambda old: named(old, finalizers=()))
            await remain(registry)

    async def test_it_does_not_wait_for_others(self, registry: Registry) -> None:
        first = await make(registry, "first")
        await make(registry, "second", reference(first), finalizers=("example.com/hold",))
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Foreground")
            await remain(registry, "second")

        assert (await get(registry, CONFIGMAPS, "second")).metadata.deletion_timestamp is not None

    async def test_what_owns_nothing_goes(self, registry: Registry) -> None:
        await make(registry, "first")
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Foreground")
            await remain(registry)

    async def test_dependents_with_dependents_are_waited_for_in_turn(self, registry: Registry) -> None:
        first = await make(registry, "first")
        second = await make(registry, "second", reference(first, blocks=True))
        await make(registry, "third", reference(second, blocks=True), finalizers=("example.com/hold",))
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Foreground")
            await settled(registry, 0.1)
            assert await names(registry) == {"first", "second", "third"}
            assert (await get(registry, CONFIGMAPS, "second")).metadata.finalizers == ("foregroundDeletion",)

            await objects.edit(registry, CONFIGMAPS, "default", "third", lambda old: named(old, finalizers=()))
            await remain(registry)

    async def test_a_dependent_with_another_owner_stays_and_blocks_no_more(self, registry: Registry) -> None:
        first, other = await make(registry, "first"), await make(registry, "other")
        await make(registry, "second", reference(first, blocks=True), reference(other))
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Foreground")
            await remain(registry, "other", "second")

        second = await get(registry, CONFIGMAPS, "second")
        assert [each.name for each in second.metadata.owner_references] == ["other"]

    async def test_one_that_stops_blocking_is_not_waited_for(self, registry: Registry) -> None:
        first = await make(registry, "first")
        await make(registry, "second", reference(first, blocks=True), finalizers=("example.com/hold",))
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Foreground")
            await settled(registry, 0.1)
            await own(registry, "second", reference(first))
            await remain(registry, "second")

    @pytest.mark.parametrize("length", [1, 2, 3])
    @pytest.mark.parametrize("propagation", ["Foreground", "Background"])
    async def test_a_circle_goes(self, registry: Registry, length: int, propagation: str) -> None:
        made = [await make(registry, f"n{n}") for n in range(length)]
        for n, each in enumerate(made):
            await own(registry, f"n{(n + 1) % length}", reference(each, blocks=True))
        async with running(registry, GarbageCollector):
            await settled(registry, 0.1)
            assert len(await names(registry)) == length

            await delete(registry, "n0", propagation)
            await remain(registry)

    async def test_a_circle_that_is_deleted_everywhere_at_once_goes(self, registry: Registry) -> None:
        made = [await make(registry, f"n{n}") for n in range(3)]
        for n, each in enumerate(made):
            await own(registry, f"n{(n + 1) % 3}", reference(each, blocks=True))
            await delete(registry, f"n{n}", "Foreground")
        async with running(registry, GarbageCollector):
            await remain(registry)


class TestOrphaning:
    async def test_dependents_stay_without_their_owner(self, registry: Registry) -> None:
        first, other = await make(registry, "first"), await make(registry, "other")
        await make(registry, "second", reference(first), reference(other))
        await make(registry, "third", reference(first, blocks=True), kind=SECRETS)
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Orphan")
            await remain(registry, "other", "second")

        second, third = await get(registry, CONFIGMAPS, "second"), await get(registry, SECRETS, "third")
        assert [each.name for each in second.metadata.owner_references] == ["other"]
        assert third.metadata.owner_references == ()
        assert third.data["username"] == example(SECRETS).data["username"]

    async def test_what_owns_nothing_goes(self, registry: Registry) -> None:
        await make(registry, "first")
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Orphan")
            await remain(registry)

    async def test_many_are_let_go_before_their_owner_goes(
        self, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(garbage_collector, "TOGETHER", 7)
        monkeypatch.setattr(garbage_collector, "MOST", 20)
        first = await make(registry, "first")
        await asyncio.gather(*(make(registry, f"n{n}", reference(first)) for n in range(50)))
        async with running(registry, GarbageCollector):
            await delete(registry, "first", "Orphan")
            await is_gone(registry, "first")
            await settled(registry, 0.1)

        left = await every(registry, CONFIGMAPS)
        assert [each.metadata.owner_references for each in left] == [()] * 50


async def test_an_owner_that_the_copy_lacks_is_looked_for_first(registry: Registry) -> None:
    """A mirror is filled kind by kind: for a moment it may have a dependent and not yet its owner."""
    first = await make(registry, "first")
    await make(registry, "second", reference(first))
    async with running(registry, GarbageCollector) as controllers:
        mirror, controller = controllers.mirror, controllers.runners[0]._controller
        mirror._put(key_of(CONFIGMAPS, "default", "first"), None)
        (work,) = await controller.reconcile(garbage_collector._owner(first.metadata.uid), registry.now())

        assert work.plan.actions == ()
        assert work.plan.again_at is not None
        await settled(registry, 0.1)
        assert await names(registry) == {"first", "second"}


async def test_a_dependent_that_changed_meanwhile_is_judged_anew(registry: Registry) -> None:
    first, other = await make(registry, "first"), await make(registry, "other")
    await make(registry, "second", reference(first))
    async with running(registry, GarbageCollector) as controllers:
        await settled(registry, 0.1)
        controllers.mirror.is_paused = True
        await own(registry, "second", reference(other))
        await delete(registry, "first")
        controllers.mirror.is_paused = False

        await remain(registry, "other", "second")


async def test_the_job_of_a_pod_may_come_back_under_its_name(registry: Registry) -> None:
    """It is another Job, by its UID."""
    old = await create(registry, JOBS, a_job())
    await create(registry, PODS, named(a_pod(), owner_references=(reference(old, controller=True),)))
    await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))
    await create(registry, JOBS, replace(a_job(), metadata=a_job().metadata))

    async with running(registry, GarbageCollector):
        await is_gone(registry, "p", PODS)
