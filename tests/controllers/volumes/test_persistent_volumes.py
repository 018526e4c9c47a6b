"""Persistent volumes on a real database: claims are bound with their pods, kept while they are used, and given back."""

import asyncio
import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from app.client.protocol import RemovedVolume
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.namespaces.resource_quotas import ResourceQuotaController
from app.controllers.scheduling.scheduler import Scheduler
from app.controllers.volumes.persistent_volumes import PersistentVolumeController
from app.kinds.core.node import KIND as NODES
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota, ResourceQuotaSpec
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import EphemeralVolumeSource, Volume
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolume import PersistentVolume, reclaim_node
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, PersistentVolumeClaimTemplate
from app.kinds.storage.storageclass import KIND as CLASSES
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.machinery.feature_gates import GENERIC_WORKLOAD
from app.registry.agents import removed_volumes
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.machines import a_node
from tests.controllers.running import events, every, running, settled, until
from tests.controllers.scheduling.test_gang_scheduling import a_group, member
from tests.controllers.scheduling.test_scheduler import finish_pod, nodes_of_pods, wait_for_message, wait_until_placed
from tests.plans.volumes.storage import HAND_MADE, SHARED, a_claim, a_volume, with_claims
from tests.registry.examples import PODS, a_pod, create, get

ALL = (PersistentVolumeController, Scheduler, GarbageCollector)


def plain(obj: Any) -> Any:
    """As a client sends it."""
    meta = obj.metadata
    return replace(obj, metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, annotations=meta.annotations))


async def offered(registry: Registry, *given: Any) -> None:
    """Classes, volumes, claims and nodes are there."""
    kinds = {PersistentVolume: VOLUMES, PersistentVolumeClaim: CLAIMS}
    for each in given:
        await create(registry, kinds.get(type(each), CLASSES), plain(each))


def a_pod_with(name: str, *claims: str) -> Pod:
    pod = a_pod(name)
    return replace(pod, spec=replace(pod.spec, volumes=with_claims(pod, *claims)))


async def claim(registry: Registry, name: str = "data") -> Any:
    return await get(registry, CLAIMS, name)


async def volumes(registry: Registry) -> list[PersistentVolume]:
    return await every(registry, VOLUMES)


async def wait_for_phase(registry: Registry, phase: str, name: str = "data") -> Any:
    async def so() -> Any:
        found = await claim(registry, name)
        return found if found is not None and found.status.phase == phase else None

    return await until(registry, so)


async def wait_for_volumes(registry: Registry, *phases: str) -> list[PersistentVolume]:
    async def so() -> Any:
        found = await volumes(registry)
        return (sorted(each.status.phase for each in found) == sorted(phases), found)

    async def holds() -> Any:
        same, found = await so()
        return [found] if same else None

    return (await until(registry, holds))[0]


async def test_a_claim_of_a_shared_class_is_bound_at_once(registry: Registry) -> None:
    async with running(registry, PersistentVolumeController):
        await offered(registry, SHARED, a_claim(of="shared"))
        bound = await wait_for_phase(registry, "Bound")
        (volume,) = await wait_for_volumes(registry, "Bound")

    assert bound.spec.volume_name == volume.metadata.name == f"pvc-{bound.metadata.uid}"
    assert volume.spec.claim_ref.uid == bound.metadata.uid
    assert [reason for reason, _ in await events(registry)] == ["ProvisioningSucceeded"]


async def test_a_local_claim_is_bound_with_its_pod_which_then_stays_with_it(registry: Registry) -> None:
    for name in ("n1", "n2", "n3"):
        await create(registry, NODES, a_node(name, labels={"kubernetes.io/hostname": name}))
    async with running(registry, *ALL):
        await offered(registry, a_claim(of=None))
        await settled(registry, 0.1)
        assert (await claim(registry)).status.phase == "Pending"
        assert (await claim(registry)).spec.storage_class_name == "local"
        for number in range(6):
            await create(registry, PODS, a_pod_with(f"p{number}", "data"))

        async def all_placed() -> bool:
            return all((await nodes_of_pods(registry)).values())

        await until(registry, all_placed)
        nodes = set((await nodes_of_pods(registry)).values())
        assert len(nodes) == 1, "all on the node that the first one was placed on"
        (volume,) = await wait_for_volumes(registry, "Bound")

    terms = volume.spec.node_affinity.required.node_selector_terms
    assert [each.values for term in terms for each in term.match_expressions] == [tuple(nodes)]


async def test_a_pod_follows_its_volume_even_to_a_full_node(registry: Registry) -> None:
    await create(registry, NODES, a_node("n1", labels={"kubernetes.io/hostname": "n1"}, pods="1"))
    async with running(registry, *ALL):
        await offered(registry, a_claim(of="local"))
        await create(registry, PODS, a_pod_with("first", "data"))
        await wait_until_placed(registry, {"first": "n1"})
        await create(registry, NODES, a_node("n2", labels={"kubernetes.io/hostname": "n2"}))
        await create(registry, PODS, a_pod_with("second", "data"))
        message = "0/2 nodes are available: 1 Too many pods, 1 node(s) had volume node affinity conflict."
        await wait_for_message(registry, "second", message)
        await finish_pod(registry, "first")
        await wait_until_placed(registry, {"first": "n1", "second": "n1"})


async def test_a_pod_waits_for_its_claim_in_kubernetes_words(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, *ALL) as here:
        await create(registry, PODS, a_pod_with("p", "data"))
        await wait_for_message(registry, "p", '0/1 nodes are available: persistentvolumeclaim "data" not found.')
        await offered(registry, a_claim(of="shared"))
        unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        await settled(registry, 0.1)
        here.move(seconds=60)  # a message that has changed is written after a while
        await wait_for_message(registry, "p", unbound)
        await offered(registry, SHARED)
        await wait_until_placed(registry, {"p": "n1"})


async def test_hand_made_disks_are_given_out_one_by_one(registry: Registry) -> None:
    """Three pods at once, each with a claim of its own, and a disk on each of two nodes."""
    for name in ("n1", "n2"):
        await create(registry, NODES, a_node(name, labels={"kubernetes.io/hostname": name}))
    async with running(registry, *ALL):
        disks = [a_volume(f"disk-{name}", of="disks", node=name) for name in ("n1", "n2")]
        await offered(registry, HAND_MADE, *disks, *(a_claim(each, of="disks") for each in "abc"))
        await asyncio.gather(*(create(registry, PODS, a_pod_with(each, each)) for each in "abc"))

        async def two_placed() -> bool:
            return sum(bool(node) for node in (await nodes_of_pods(registry)).values()) == 2

        await until(registry, two_placed)
        (waits,) = [name for name, node in (await nodes_of_pods(registry)).items() if not node]
        none = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
        await wait_for_message(registry, waits, none)
        await offered(registry, a_volume("third", of="disks", node="n1"))

        async def all_placed() -> bool:
            return all((await nodes_of_pods(registry)).values())

        await until(registry, all_placed)

    assert len({each.spec.volume_name for each in await every(registry, CLAIMS)}) == 3


async def test_one_pod_at_a_time_has_a_claim_of_one_pod(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, *ALL):
        await offered(registry, SHARED, a_claim(of="shared", modes=("ReadWriteOncePod",)))
        await wait_for_phase(registry, "Bound")
        await asyncio.gather(*(create(registry, PODS, a_pod_with(each, "data")) for each in ("a", "b")))

        async def one_placed() -> list[str]:
            return [name for name, node in (await nodes_of_pods(registry)).items() if node]

        (first,) = await until(registry, one_placed)
        other = "b" if first == "a" else "a"
        in_use = (
            "0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            "already in-use by another pod."
        )
        await wait_for_message(registry, other, in_use)
        await finish_pod(registry, first)

        async def other_placed() -> bool:
            return bool((await nodes_of_pods(registry))[other])

        await until(registry, other_placed)


async def test_one_node_at_a_time_has_a_claim_of_one_node(registry: Registry) -> None:
    """Pods that come at once would be spread; one that must go elsewhere waits until the others have ended."""
    for name in ("n1", "n2"):
        await create(registry, NODES, a_node(name, labels={"kubernetes.io/hostname": name}))
    async with running(registry, *ALL):
        await offered(registry, SHARED, a_claim(of="shared"))
        await wait_for_phase(registry, "Bound")
        await asyncio.gather(*(create(registry, PODS, a_pod_with(each, "data")) for each in "abcd"))

        async def all_placed() -> list[str]:
            placed = list((await nodes_of_pods(registry)).values())
            return placed if all(placed) else []

        (node,) = set(await until(registry, all_placed))
        other = "n1" if node == "n2" else "n2"
        late = a_pod_with("late", "data")
        there = {"kubernetes.io/hostname": other}
        await create(registry, PODS, replace(late, spec=replace(late.spec, node_selector=there)))
        in_use = (
            "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) unavailable due to "
            "PersistentVolumeClaim with ReadWriteOnce access mode already in-use on another node."
        )
        await wait_for_message(registry, "late", in_use)
        for each in "abcd":
            await finish_pod(registry, each)

        async def late_is_placed() -> bool:
            return (await nodes_of_pods(registry))["late"] == other

        await until(registry, late_is_placed)


async def test_a_gang_that_must_be_spread_waits_for_its_claim_of_one_node(registry: Registry) -> None:
    registry = dataclasses.replace(registry, features=frozenset({GENERIC_WORKLOAD}))
    for name in ("n1", "n2"):
        await create(registry, NODES, a_node(name, labels={"kubernetes.io/hostname": name}, pods="1"))
    async with running(registry, *ALL):
        await offered(registry, SHARED, a_claim(of="shared"))
        await wait_for_phase(registry, "Bound")
        await create(registry, POD_GROUPS, a_group())
        for name in ("g-0", "g-1"):
            pod = member(name)
            await create(registry, PODS, replace(pod, spec=replace(pod.spec, volumes=with_claims(pod, "data"))))
        in_use = (
            "1/2 pods of the group can be placed: 0/2 nodes are available: 1 Too many pods, 1 node(s) unavailable due to "
            "PersistentVolumeClaim with ReadWriteOnce access mode already in-use on another node."
        )
        await wait_for_message(registry, "g-0", in_use)
        assert not any((await nodes_of_pods(registry)).values())


async def removed(registry: Registry, volume: PersistentVolume, error: str = "", node: str = "n1") -> int:
    """An agent reports."""
    item = RemovedVolume(name=volume.metadata.name, uid=volume.metadata.uid, error=error)
    return await removed_volumes.accept(registry, [item], lambda name: name == node)


async def test_a_claim_that_is_deleted_goes_with_its_last_pod_and_then_its_data(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, *ALL):
        await offered(registry, SHARED, a_claim(of="shared"))
        await create(registry, PODS, a_pod_with("p", "data"))
        await wait_until_placed(registry, {"p": "n1"})
        await objects.delete(registry, CLAIMS, "default", "data", Demand())
        await settled(registry, 0.1)
        assert (await claim(registry)).metadata.deletion_timestamp is not None
        await create(registry, PODS, a_pod_with("late", "data"))
        going = '0/1 nodes are available: persistentvolumeclaim "data" is being deleted.'
        await wait_for_message(registry, "late", going)
        (volume,) = await wait_for_volumes(registry, "Bound")
        assert await removed(registry, volume) == 0, "nobody may say so of a volume that is bound"

        await finish_pod(registry, "p")
        (volume,) = await wait_for_volumes(registry, "Released")
        assert (await claim(registry), reclaim_node(volume)) == (None, "n1")
        assert await removed(registry, volume, node="n2") == 0, "another node was chosen"
        assert await removed(registry, volume, "not mounted") == 1
        (volume,) = await wait_for_volumes(registry, "Failed")
        assert volume.status.message == "n1: not mounted"

        async def chosen_again() -> Any:
            (found,) = await volumes(registry)
            return reclaim_node(found) == "n1"

        await until(registry, chosen_again)
        assert await removed(registry, volume) == 1
        await wait_for_volumes(registry)


async def test_what_is_retained_stays(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, *ALL):
        await offered(registry, replace(SHARED, reclaim_policy="Retain"), a_claim(of="shared"))
        await wait_for_volumes(registry, "Bound")
        await objects.delete(registry, CLAIMS, "default", "data", Demand())
        (volume,) = await wait_for_volumes(registry, "Released")
        await settled(registry, 0.1)

    assert reclaim_node(volume) == ""


async def test_nothing_changes_once_all_is_done(registry: Registry) -> None:
    """Every key is looked at again, as after a restart."""
    await create(registry, NODES, a_node())
    async with running(registry, *ALL) as here:
        await offered(registry, SHARED, a_claim(of="shared"), a_claim("own", of="local"), a_volume())
        await create(registry, PODS, a_pod_with("p", "data", "own"))
        await wait_until_placed(registry, {"p": "n1"})
        revision = await settled(registry)
        here.look_again()
        assert await settled(registry) == revision


async def test_an_ephemeral_volume_s_claim_lives_as_long_as_its_pod(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    template = PersistentVolumeClaimTemplate(spec=a_claim(of="local").spec)
    pod = a_pod("p")
    scratch = Volume(name="scratch", ephemeral=EphemeralVolumeSource(volume_claim_template=template))
    async with running(registry, *ALL):
        await create(registry, PODS, replace(pod, spec=replace(pod.spec, volumes=(scratch,))))
        await wait_until_placed(registry, {"p": "n1"})
        assert (await claim(registry, "p-scratch")).status.phase == "Bound"
        await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=0))
        await wait_for_volumes(registry, "Released")


async def test_an_ephemeral_volume_does_not_take_somebody_s_claim(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    template = PersistentVolumeClaimTemplate(spec=a_claim(of="local").spec)
    pod = a_pod("p")
    scratch = Volume(name="scratch", ephemeral=EphemeralVolumeSource(volume_claim_template=template))
    async with running(registry, *ALL):
        await offered(registry, a_claim("p-scratch", of="local"))
        await create(registry, PODS, replace(pod, spec=replace(pod.spec, volumes=(scratch,))))
        why = 'PVC "default/p-scratch" was not created for pod "default/p" (pod is not owner).'
        await wait_for_message(registry, "p", f"0/1 nodes are available: {why}")


HARD = {
    "requests.storage": "5Gi",
    "persistentvolumeclaims": "3",
    "shared.storageclass.storage.k8s.io/requests.storage": "3Gi",
    "shared.storageclass.storage.k8s.io/persistentvolumeclaims": "2",
}


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        pytest.param(a_claim("b", "4Gi", of="local"), "", id="of another class"),
        pytest.param(a_claim("b", "2Gi", of="shared"), "", id="what is left of its class"),
        pytest.param(
            a_claim("b", "3Gi", of="shared"),
            "shared.storageclass.storage.k8s.io/requests.storage=3Gi",
            id="more of its class than is left",
        ),
        pytest.param(a_claim("b", "5Gi", of="local"), "requested: requests.storage=5Gi", id="more than is left of all"),
    ],
)
async def test_a_quota_of_storage(registry: Registry, asked: PersistentVolumeClaim, refused: str) -> None:
    quota = ResourceQuota(metadata=ObjectMeta(name="team", namespace="default"), spec=ResourceQuotaSpec(hard=HARD))
    async with running(registry, ResourceQuotaController):
        await create(registry, QUOTAS, quota)

        async def used(name: str) -> str:
            return str((await get(registry, QUOTAS, "team")).status.used.get(name, ""))

        async def counted() -> bool:
            return await used("requests.storage") != ""

        await until(registry, counted)
        await offered(registry, a_claim("a", of="shared"))
        assert await used("requests.storage") == "1Gi"
        if refused:
            with pytest.raises(ApiError, match=refused.replace(".", r"\.")):
                await offered(registry, asked)
        else:
            await offered(registry, asked)
        await objects.delete(registry, CLAIMS, "default", "a", Demand())

        async def recounted() -> bool:
            left = "0" if refused else asked.spec.resources.requests["storage"]
            return await used("requests.storage") == left

        await until(registry, recounted)


async def test_a_claim_grows_within_class_and_quota(registry: Registry) -> None:
    async with running(registry, PersistentVolumeController, ResourceQuotaController):
        await offered(registry, replace(SHARED, allow_volume_expansion=True), a_claim(of="shared"))
        await wait_for_volumes(registry, "Bound")
        quota = ResourceQuota(
            metadata=ObjectMeta(name="team", namespace="default"),
            spec=ResourceQuotaSpec(hard={"requests.storage": "5Gi"}),
        )
        await create(registry, QUOTAS, quota)
        await settled(registry, 0.1)

        async def ask(storage: str) -> None:
            resources = a_claim(storage=storage).spec.resources
            await objects.edit(
                registry,
                CLAIMS,
                "default",
                "data",
                lambda old: replace(old, spec=replace(old.spec, resources=resources)),
            )

        with pytest.raises(ApiError, match=r"exceeded quota: team, requested: requests\.storage=5Gi"):
            await ask("6Gi")
        await ask("4Gi")

        async def grown() -> bool:
            return (await claim(registry)).status.capacity == {"storage": "4Gi"}

        await until(registry, grown)
        with pytest.raises(ApiError, match="field can not be less than previous value"):
            await ask("1Gi")


async def test_a_claim_does_not_grow_where_its_class_says_nothing(registry: Registry) -> None:
    async with running(registry, PersistentVolumeController):
        await offered(registry, SHARED, a_claim(of="shared"))
        await wait_for_volumes(registry, "Bound")
        resources = a_claim(storage="4Gi").spec.resources
        with pytest.raises(ApiError, match="must support resize"):
            await objects.edit(
                registry,
                CLAIMS,
                "default",
                "data",
                lambda old: replace(old, spec=replace(old.spec, resources=resources)),
            )
