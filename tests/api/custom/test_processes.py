"""Two API processes on one database; and what custom kinds have in common with all others: rights, quotas, watches."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest

from app.registry.verbs.objects import Registry
from app.store import open_store
from tests.api.conftest import administering, serving
from tests.api.custom.definitions import DEFINITIONS, GROUP, define, definition, path, version, widget
from tests.api.people import RBAC, meeting
from tests.conftest import Clock

DEFINITION = f"{DEFINITIONS}/widgets.{GROUP}"


@pytest.fixture
async def other(dsn: str, clock: Clock, registry: Registry) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a second process, which has served before any definition was there."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(dsn))
        second = Registry(store, clock)
        url = await stack.enter_async_context(serving(second))
        client = await stack.enter_async_context(administering(second, url))
        assert (await client.get("/apis")).status_code == 200
        yield client


async def test_each_process_serves_what_the_other_defined(admin: httpx.AsyncClient, other: httpx.AsyncClient) -> None:
    await define(admin, definition())
    async with other.stream("GET", path(), params={"watch": "true", "labelSelector": "a=b"}) as watch:
        lines = watch.aiter_lines()
        made = await admin.post(path(), json=widget("other"))
        labelled = widget()
        labelled["metadata"]["labels"] = {"a": "b"}
        made = await other.post(path(), json=labelled)
        assert made.status_code == 201, made.text
        event = json.loads(await anext(lines))
        assert (event["type"], event["object"]) == ("ADDED", made.json())

        changed = definition(
            "widgets", "Widget", version(schema={"openAPIV3Schema": {"type": "object"}}, selectableFields=[])
        )
        current = (await admin.get(DEFINITION)).json()
        changed["metadata"] = current["metadata"]
        assert (await admin.put(DEFINITION, json=changed)).status_code == 200
        assert [line async for line in lines] == []  # the other process has seen that the kind is another one
    pruned = await other.post(path(), json=widget("pruned"))
    assert "spec" not in pruned.json()
    described = (await other.get(f"/openapi/v3/apis/{GROUP}/v1")).json()["components"]["schemas"]
    assert described["com.example.lab.v1.Widget"]["properties"].keys() == {"apiVersion", "kind", "metadata"}
    names = [each["name"] for each in (await other.get(f"/apis/{GROUP}/v1")).json()["resources"]]
    assert names == ["widgets", "widgets/scale", "widgets/status"]


async def test_one_of_two_definitions_gets_a_name_that_both_want_at_once(
    admin: httpx.AsyncClient, other: httpx.AsyncClient
) -> None:
    for number in range(5):
        sent = [definition(f"{each}{number}", f"Widget{number}") for each in ("widgets", "gadgets", "gizmos")]
        made = await asyncio.gather(*(define(to, each) for to, each in zip((admin, other, admin), sent, strict=True)))
        conditions = [{each["type"]: each for each in one["status"]["conditions"]} for one in made]

        accepted = sorted((each["NamesAccepted"]["status"], each["NamesAccepted"]["reason"]) for each in conditions)
        assert accepted == [("False", "ListKindConflict"), ("False", "ListKindConflict"), ("True", "NoConflicts")]
        for each in conditions:
            assert each["Established"]["status"] == each["NamesAccepted"]["status"]


async def test_rights_and_quotas_hold_for_custom_kinds(registry: Registry, admin: httpx.AsyncClient, url: str) -> None:
    await define(admin, definition())
    role = {
        "metadata": {"name": "widgets", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get", "list", "create"]}],
    }
    assert (await admin.post(f"{RBAC}/clusterroles", json=role)).status_code == 201
    binding = {
        "metadata": {"name": "ada"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "widgets"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ada"}],
    }
    assert (await admin.post(f"{RBAC}/namespaces/default/rolebindings", json=binding)).status_code == 201
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {f"count/widgets.{GROUP}": "1"}}}
    assert (await admin.post("/api/v1/namespaces/default/resourcequotas", json=quota)).status_code == 201
    current = (await admin.get("/api/v1/namespaces/default/resourcequotas/q")).json()
    current["status"] = {"hard": quota["spec"]["hard"], "used": {f"count/widgets.{GROUP}": "0"}}
    await admin.put("/api/v1/namespaces/default/resourcequotas/q/status", json=current)

    async with meeting(registry, url) as people:
        ada = await people.user("ada")
        assert (await ada.post(path(), json=widget())).status_code == 201
        assert (await ada.delete(path(name="w"))).status_code == 403
        assert (await ada.get(path(namespace="kube-system"))).status_code == 403
        refused = (await ada.post(path(), json=widget("more"))).json()
    assert refused["message"] == (
        f'widgets.{GROUP} "more" is forbidden: exceeded quota: q, requested: count/widgets.{GROUP}=1, '
        f"used: count/widgets.{GROUP}=1, limited: count/widgets.{GROUP}=1"
    )
