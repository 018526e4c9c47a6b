"""From a DELETE to the end: grace, finalizers, and what a propagation policy leaves behind."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from app.kinds.core.namespace import NamespaceSpec
from app.machinery.base import Kind
from app.machinery.errors import ApiError
from app.machinery.meta.metadata_validation import FOREGROUND, ORPHAN
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.conftest import Clock, Lasting
from tests.registry.examples import JOBS, NAMESPACES, ORDINARY, PODS, a_job, a_pod, create, example, get, named

STORED = [kind for kind in ORDINARY if not kind.storage]
every_kind = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.resource) for kind in STORED])
every_other = pytest.mark.parametrize("kind", [pytest.param(k, id=k.resource) for k in STORED if k is not NAMESPACES])
HOLD = "example.com/hold"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    return restored


@pytest.fixture
def clock(lasting: Lasting) -> Clock:
    return lasting.clock


async def delete(registry: Registry, kind: Kind, name: str, namespace: str = "default", **demand: Any) -> bool:
    """Whether something is left."""
    deleted = await objects.delete(registry, kind, namespace, name, Demand(**demand))
    return not deleted.is_over


async def edit(registry: Registry, kind: Kind, name: str, namespace: str = "default", **metadata: Any) -> None:
    await objects.edit(registry, kind, namespace, name, lambda old: named(old, **metadata))


async def changes(registry: Registry, name: str) -> str:
    rows = await registry.store.pool.fetch("select change from history where name = $1 order by revision", name)
    return "".join(row["change"] for row in rows)


@every_other
async def test_a_finalizer_holds_what_is_deleted(registry: Registry, clock: Clock, kind: Kind) -> None:
    there = await create(registry, kind, named(example(kind), finalizers=(HOLD,)))
    name, namespace = there.metadata.name, there.metadata.namespace

    assert await delete(registry, kind, name, namespace, propagation="Background")
    going = await get(registry, kind, name, namespace)
    assert going.metadata.deletion_timestamp == clock.now
    assert going.metadata.finalizers == (HOLD,)

    clock.move(seconds=5)
    assert await delete(registry, kind, name, namespace, propagation="Background")
    assert await get(registry, kind, name, namespace) == going  # asking again changes nothing

    await edit(registry, kind, name, namespace, finalizers=())
    assert await get(registry, kind, name, namespace) is None
    assert (await changes(registry, name))[-1] == "D"


async def test_the_last_version_of_a_pod_that_goes_at_once_tells_when_its_deletion_was_asked_for(
    registry: Registry, clock: Clock
) -> None:
    await create(registry, PODS, a_pod(node_name="n1"))

    deleted = await objects.delete(registry, PODS, "default", "p", Demand(grace_seconds=0))

    last = msgspec.json.decode(deleted.body, type=PODS.type).metadata
    assert (last.deletion_timestamp, last.deletion_grace_period_seconds) == (clock.now, 0)


@every_other
async def test_without_finalizers_it_goes_at_once(registry: Registry, kind: Kind) -> None:
    there = await create(registry, kind, example(kind))
    name, namespace = there.metadata.name, there.metadata.namespace

    assert not await delete(registry, kind, name, namespace, propagation="Background")

    assert await get(registry, kind, name, namespace) is None
    await create(registry, kind, example(kind))  # the name is free again


@every_kind
async def test_what_is_going_takes_no_new_finalizers(registry: Registry, kind: Kind) -> None:
    there = await create(registry, kind, named(example(kind), finalizers=(HOLD,)))
    name, namespace = there.metadata.name, there.metadata.namespace
    await delete(registry, kind, name, namespace, propagation="Background")

    with pytest.raises(ApiError) as caught:
        await edit(registry, kind, name, namespace, finalizers=(HOLD, "example.com/more"))

    assert caught.value.code == 422
    assert "no new finalizers can be added if the object is being deleted" in caught.value.message


async def test_a_pod_on_a_node_has_its_grace(registry: Registry, clock: Clock) -> None:
    await create(registry, PODS, a_pod(node_name="n1"))

    assert await delete(registry, PODS, "p")

    meta = (await get(registry, PODS, "p")).metadata
    assert meta.deletion_grace_period_seconds == 30
    assert meta.deletion_timestamp == clock.now + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("first", "second", "grace"),
    [
        pytest.param(20, 40, 20, id="longer is not heard"),
        pytest.param(20, 20, 20, id="the same changes nothing"),
        pytest.param(None, None, 30, id="the default changes nothing"),
        pytest.param(40, 10, 10, id="shorter is"),
        pytest.param(25, 22, 22, id="a little shorter is, and never ends later"),
    ],
)
async def test_a_second_deletion_may_only_shorten_the_grace(
    registry: Registry, clock: Clock, first: int | None, second: int | None, grace: int
) -> None:
    await create(registry, PODS, a_pod(node_name="n1"))
    asked_at = clock.now
    await delete(registry, PODS, "p", grace_seconds=first)
    clock.move(seconds=5)

    await delete(registry, PODS, "p", grace_seconds=second)

    meta = (await get(registry, PODS, "p")).metadata
    assert meta.deletion_grace_period_seconds == grace
    assert meta.deletion_timestamp == asked_at + timedelta(seconds=grace)


@pytest.mark.parametrize("asked", [None, 2**63 - 1], ids=["by the pod", "by the request"])
async def test_grace_without_measure_is_three_hundred_years(
    registry: Registry, clock: Clock, asked: int | None
) -> None:
    await create(registry, PODS, a_pod(node_name="n1", termination_grace_period_seconds=2**63 - 1))

    assert await delete(registry, PODS, "p", grace_seconds=asked)
    clock.move(seconds=5)
    assert await delete(registry, PODS, "p", grace_seconds=20)

    assert (await get(registry, PODS, "p")).metadata.deletion_grace_period_seconds == 20


async def test_without_grace_a_pod_goes_at_once(registry: Registry) -> None:
    await create(registry, PODS, a_pod(node_name="n1"))
    await delete(registry, PODS, "p")

    assert not await delete(registry, PODS, "p", grace_seconds=0)

    assert await get(registry, PODS, "p") is None


@pytest.mark.parametrize(
    ("spec", "phase"),
    [
        pytest.param({}, "Pending", id="never placed"),
        pytest.param({"node_name": "n1"}, "Succeeded", id="succeeded"),
        pytest.param({"node_name": "n1"}, "Failed", id="failed"),
    ],
)
async def test_a_pod_with_nothing_to_stop_needs_no_grace(registry: Registry, spec: dict[str, Any], phase: str) -> None:
    pod = await create(registry, PODS, a_pod(**spec))
    ended = replace(pod, status=replace(pod.status, phase=phase))
    await objects.update(registry, PODS, "default", "p", ended, status=True)

    assert not await delete(registry, PODS, "p", grace_seconds=30)

    assert await get(registry, PODS, "p") is None


async def test_grace_that_is_over_still_waits_for_finalizers(registry: Registry) -> None:
    await create(registry, PODS, named(a_pod(node_name="n1"), finalizers=(HOLD,)))

    assert await delete(registry, PODS, "p", grace_seconds=0)
    assert (await get(registry, PODS, "p")).metadata.deletion_grace_period_seconds == 0

    await edit(registry, PODS, "p", finalizers=())
    assert await get(registry, PODS, "p") is None


async def test_a_pod_without_finalizers_still_waits_for_its_grace(registry: Registry) -> None:
    await create(registry, PODS, named(a_pod(node_name="n1"), finalizers=(HOLD,)))
    await delete(registry, PODS, "p")

    await edit(registry, PODS, "p", finalizers=())

    assert (await get(registry, PODS, "p")).metadata.finalizers == ()


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [
        pytest.param("Orphan", (HOLD, ORPHAN), id="orphan"),
        pytest.param("Foreground", (HOLD, FOREGROUND), id="foreground"),
        pytest.param("Background", (HOLD,), id="background"),
        pytest.param(None, (HOLD, ORPHAN), id="a Job's own default, orphan"),
    ],
)
async def test_the_policy_is_kept_as_a_finalizer(
    registry: Registry, propagation: Any, finalizers: tuple[str, ...]
) -> None:
    await create(registry, JOBS, named(a_job(), finalizers=(HOLD,)))

    await delete(registry, JOBS, "pi", propagation=propagation)

    assert (await get(registry, JOBS, "pi")).metadata.finalizers == finalizers


@every_kind
@pytest.mark.parametrize(("policy", "finalizer"), [("Orphan", ORPHAN), ("Foreground", FOREGROUND)])
async def test_a_policy_means_something_for_every_kind_but_events(
    registry: Registry, kind: Kind, policy: Any, finalizer: str
) -> None:
    """Events own nothing: nobody would ever remove the finalizer."""
    there = await create(registry, kind, example(kind))
    name, namespace = there.metadata.name, there.metadata.namespace

    left = await delete(registry, kind, name, namespace, propagation=policy)

    assert left == (kind.resource != "events")
    if left:
        assert (await get(registry, kind, name, namespace)).metadata.finalizers == (finalizer,)


async def test_a_second_policy_replaces_the_first(registry: Registry) -> None:
    await create(registry, JOBS, named(a_job(), finalizers=(HOLD,)))
    await delete(registry, JOBS, "pi", propagation="Foreground")

    await delete(registry, JOBS, "pi", propagation="Orphan")
    assert (await get(registry, JOBS, "pi")).metadata.finalizers == (HOLD, ORPHAN)

    await delete(registry, JOBS, "pi")  # names none: the one there stays
    assert (await get(registry, JOBS, "pi")).metadata.finalizers == (HOLD, ORPHAN)


class TestNamespaces:
    """Held by finalizers of their own, in the spec."""

    @pytest_asyncio.fixture(autouse=True, loop_scope="module")
    async def research(self, registry: Registry) -> None:
        await create(registry, NAMESPACES, example(NAMESPACES))

    async def test_one_is_marked_and_stays(self, registry: Registry, clock: Clock) -> None:
        assert await delete(registry, NAMESPACES, "research", propagation="Background")

        going = await get(registry, NAMESPACES, "research")
        assert going.metadata.deletion_timestamp == clock.now
        assert going.metadata.deletion_grace_period_seconds is None
        assert (going.status.phase, going.spec.finalizers) == ("Terminating", ("kubernetes",))

        clock.move(seconds=5)
        assert await delete(registry, NAMESPACES, "research", grace_seconds=0)
        assert await get(registry, NAMESPACES, "research") == going  # asking again changes nothing

    async def test_it_goes_with_the_last_finalizer_of_both_sorts(self, registry: Registry) -> None:
        await edit(registry, NAMESPACES, "research", finalizers=(HOLD,))
        await delete(registry, NAMESPACES, "research")

        await objects.rewrite(registry, NAMESPACES, "", "research", lambda old: replace(old, spec=NamespaceSpec()))
        assert (await get(registry, NAMESPACES, "research")).metadata.finalizers == (HOLD,)

        await edit(registry, NAMESPACES, "research", finalizers=())
        assert await get(registry, NAMESPACES, "research") is None
        assert (await changes(registry, "research"))[-1] == "D"

    @pytest.mark.parametrize(
        ("going", "phase", "message"),
        [
            pytest.param(
                False, "Terminating", "may only be 'Active' if `deletionTimestamp` is empty", id="stays active"
            ),
            pytest.param(
                True, "Active", "may only be 'Terminating' if `deletionTimestamp` is not empty", id="then goes"
            ),
        ],
    )
    async def test_nobody_may_say_otherwise(self, registry: Registry, going: bool, phase: str, message: str) -> None:
        if going:
            await delete(registry, NAMESPACES, "research")
        there = await get(registry, NAMESPACES, "research")
        lie = replace(there, status=replace(there.status, phase=phase))

        with pytest.raises(ApiError, match="is invalid: status") as caught:
            await objects.update(registry, NAMESPACES, "", "research", lie, status=True)

        assert caught.value.code == 422
        assert caught.value.message.endswith(message)

    @pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
    async def test_some_cannot_be_deleted(self, registry: Registry, name: str) -> None:
        with pytest.raises(ApiError) as caught:
            await delete(registry, NAMESPACES, name)

        assert caught.value.code == 403
        assert caught.value.message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        assert (await get(registry, NAMESPACES, name)).metadata.deletion_timestamp is None
