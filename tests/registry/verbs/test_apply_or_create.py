"""Managed fields and applies through the registry: what is stored, and what is not written for nothing."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.node import KIND as NODES
from app.machinery.apply import server_side_apply as kinds_apply
from app.machinery.apply.managed_fields import FieldManager, with_entries
from app.machinery.base import Object, ObjectMeta
from app.machinery.decoding.decode import convert
from app.machinery.errors import ApiError
from app.registry.verbs import objects
from app.registry.verbs.apply_or_create import apply
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import UpdateOptions
from tests.conftest import Clock
from tests.registry.examples import JOBS, PODS, a_job, a_pod, example, get, named, read

Document = dict[str, Any]


async def applied(
    registry: Registry, manager: str = "a", *, force: bool = False, dry_run: bool = False, **data: Any
) -> Any:
    """Apply these data to the config map c."""
    configuration = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    writer = FieldManager(manager, registry.now(), applies=True)

    def change(old: Object | None) -> Object:
        result = kinds_apply.apply(CONFIGMAPS, old, configuration, writer, force=force)
        return with_entries(convert(result.document, ConfigMap).object, result.entries)

    async def may_create(_: Object) -> None:
        pass

    terms = UpdateOptions(by=writer, dry_run=dry_run)
    answer, _ = await apply(registry, CONFIGMAPS, ("default", "c"), change, terms, may_create)
    return read(CONFIGMAPS, answer.body)


def managers(obj: Any) -> list[str]:
    return [each.manager for each in obj.metadata.managed_fields or ()]


async def test_a_client_that_creates_owns_what_it_sent_and_not_what_the_server_added(registry: Registry) -> None:
    made = await objects.create(registry, JOBS, "default", a_job("pi"), by=FieldManager("me", registry.now()))

    (entry,) = read(JOBS, made.body).metadata.managed_fields
    spec = entry.fields_v1["f:spec"]
    assert entry.manager == "me"
    assert "f:backoffLimit" in spec
    assert "f:selector" not in spec
    assert "f:metadata" not in entry.fields_v1 or "f:uid" not in entry.fields_v1["f:metadata"]
    assert list(spec["f:template"]["f:metadata"]["f:labels"]) == [".", "f:app"]


async def test_what_admission_adds_to_a_pod_is_nobodys(registry: Registry) -> None:
    made = await objects.create(registry, PODS, "default", a_pod("p"), by=FieldManager("me", registry.now()))

    pod = read(PODS, made.body)
    (entry,) = pod.metadata.managed_fields
    assert pod.spec.tolerations
    assert "f:tolerations" not in entry.fields_v1["f:spec"]


async def test_writes_of_the_servers_own_leave_no_entry(registry: Registry) -> None:
    await objects.create(registry, CONFIGMAPS, "default", ConfigMap(metadata=ObjectMeta(name="c")))
    await objects.edit(registry, CONFIGMAPS, "default", "c", lambda old: replace(old, data={"a": "1"}))

    assert (await get(registry, CONFIGMAPS, "c")).metadata.managed_fields is None


async def test_an_update_by_a_client_moves_fields_and_one_by_the_server_keeps_entries(registry: Registry) -> None:
    await applied(registry, a="1")
    by = UpdateOptions(by=FieldManager("editor", registry.now()))
    await objects.edit(registry, CONFIGMAPS, "default", "c", lambda old: replace(old, data={"a": "2"}), by)
    await objects.rewrite(registry, CONFIGMAPS, "default", "c", lambda old: named(old, labels={"x": "y"}))

    stored = await get(registry, CONFIGMAPS, "c")
    assert managers(stored) == ["editor"]
    assert stored.metadata.labels == {"x": "y"}


async def test_a_status_write_is_recorded_with_its_subresource(registry: Registry) -> None:
    await objects.create(registry, NODES, "", example(NODES), by=FieldManager("agent", registry.now()))
    name = example(NODES).metadata.name
    terms = UpdateOptions(status=True, by=FieldManager("reporter", registry.now(), "status"))

    def ready(old: Any) -> Any:
        return replace(old, spec=replace(old.spec, unschedulable=True), status=replace(old.status, phase="Running"))

    await objects.edit(registry, NODES, "", name, ready, terms)

    stored = await get(registry, NODES, name, "")
    seen = {each.manager: (each.subresource, each.fields_v1) for each in stored.metadata.managed_fields}
    assert seen["reporter"] == ("status", {"f:status": {"f:phase": {}}})
    assert not stored.spec.unschedulable


async def test_applying_the_same_again_writes_no_new_version(registry: Registry, clock: Clock) -> None:
    first = await applied(registry, a="1")
    clock.move(minutes=5)
    again = await applied(registry, a="1")

    assert again == first


async def test_an_apply_that_only_spells_a_value_otherwise_writes_no_new_version(
    registry: Registry, clock: Clock
) -> None:
    first = await applied(registry, a="1", b=None)
    clock.move(minutes=5)

    assert await applied(registry, a="1", b=None) == first


async def test_a_dry_run_shows_and_stores_nothing(registry: Registry) -> None:
    shown = await applied(registry, a="1", dry_run=True)
    with pytest.raises(ApiError, match="not found"):
        await objects.find(registry, CONFIGMAPS, "default", "c")
    await applied(registry, a="1")
    changed = await applied(registry, a="2", dry_run=True)

    assert managers(shown) == ["a"]
    assert changed.data == {"a": "2"}
    assert (await get(registry, CONFIGMAPS, "c")).data == {"a": "1"}


async def test_many_appliers_at_once_each_get_their_part(registry: Registry) -> None:
    await asyncio.gather(*(applied(registry, f"m{number}", **{f"k{number}": "1"}) for number in range(6)))

    stored = await get(registry, CONFIGMAPS, "c")
    assert stored.data == {f"k{number}": "1" for number in range(6)}
    assert sorted(managers(stored)) == [f"m{number}" for number in range(6)]


async def test_a_manager_with_too_long_a_name_is_invalid_in_entries_that_a_client_sends(registry: Registry) -> None:
    live = await applied(registry, a="1")
    (entry,) = live.metadata.managed_fields
    sent = named(live, managed_fields=(replace(entry, manager="m" * 129),))

    with pytest.raises(ApiError) as caught:
        await objects.edit(
            registry, CONFIGMAPS, "default", "c", lambda _: sent, UpdateOptions(by=FieldManager("x", registry.now()))
        )

    assert caught.value.code == 422
    assert caught.value.details["causes"] == [
        {
            "reason": "FieldValueTooLong",
            "message": "Too long: may not be more than 128 bytes",
            "field": "metadata.managedFields[0].manager",
        }
    ]
