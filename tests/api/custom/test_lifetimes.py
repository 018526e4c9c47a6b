"""Custom kinds under the controllers: what a definition's deletion takes with it, owners of every kind, namespaces."""

from typing import Any

import httpx

from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.namespaces.custom_resource_definitions import CustomResourceDefinitionController
from app.controllers.namespaces.namespaces import NamespaceController
from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import DEFINITIONS, define, definition, path, widget
from tests.api.custom.test_conversion import a_definition, convert
from tests.controllers.running import running, until
from tests.webhook_server import serving

ALL = (GarbageCollector, NamespaceController, CustomResourceDefinitionController)
DEFINITION = f"{DEFINITIONS}/widgets.lab.example.com"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


async def post(admin: httpx.AsyncClient, url: str, document: dict[str, Any]) -> dict[str, Any]:
    answer = await admin.post(url, json=document)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def is_gone(registry: Registry, admin: httpx.AsyncClient, url: str) -> None:
    async def gone() -> bool:
        return (await admin.get(url)).status_code == 404

    await until(registry, gone)


def owned_by(owner: dict[str, Any]) -> list[dict[str, Any]]:
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    return [reference | {name: owner["metadata"][name] for name in ("name", "uid")}]


async def test_objects_go_with_their_definition_and_their_owners(registry: Registry, admin: httpx.AsyncClient) -> None:
    async with running(registry, *ALL):
        await define(admin, definition())
        held = widget("held")
        held["metadata"]["finalizers"] = ["lab.example.com/hold"]
        await post(admin, path(), held)
        owner = await post(admin, path(), widget("owner"))
        for url, dependent in (
            (CONFIG_MAPS, {"metadata": {"name": "c", "ownerReferences": owned_by(owner)}}),
            (path(), widget("w") | {"metadata": {"name": "w", "ownerReferences": owned_by(owner)}}),
        ):
            await post(admin, url, dependent)
        await admin.delete(path(name="owner"))
        await is_gone(registry, admin, f"{CONFIG_MAPS}/c")
        await is_gone(registry, admin, path(name="w"))

        assert (await admin.delete(DEFINITION)).status_code == 200
        refused = (await admin.post(path(), json=widget("late"))).json()
        assert (refused["code"], refused["message"]) == (
            403,
            'widgets.lab.example.com "late" is forbidden: '
            "create not allowed while custom resource definition is terminating",
        )

        async def waits() -> bool:
            conditions = (await admin.get(DEFINITION)).json()["status"]["conditions"]
            return conditions[-1]["reason"] == "InstanceDeletionInProgress"

        await until(registry, waits)
        assert len((await admin.get(path())).json()["items"]) == 1
        await admin.patch(
            path(name="held"),
            json={"metadata": {"finalizers": None}},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        await is_gone(registry, admin, DEFINITION)
        assert (await admin.get(path())).status_code == 404


async def test_a_custom_object_goes_with_its_namespace_and_built_in_owner(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    await define(admin, definition())
    await post(admin, "/api/v1/namespaces", {"metadata": {"name": "lab"}})
    await post(admin, path(namespace="lab"), widget())
    owner = await post(admin, CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    dependent = widget("d")
    dependent["metadata"]["ownerReferences"] = owned_by(owner)
    await post(admin, path(), dependent)
    async with running(registry, *ALL):
        await admin.delete("/api/v1/namespaces/lab")
        await admin.delete(f"{CONFIG_MAPS}/c")
        await is_gone(registry, admin, "/api/v1/namespaces/lab")
        await is_gone(registry, admin, path(name="d"))


async def test_names_that_become_free_are_accepted(registry: Registry, admin: httpx.AsyncClient) -> None:
    await define(admin, definition())
    await define(admin, definition("gadgets", "Widget"))
    async with running(registry, *ALL):
        await admin.delete(DEFINITION)

        async def served() -> bool:
            return (await admin.get(path("gadgets"))).status_code == 200

        await until(registry, served)


async def test_what_is_stored_in_an_old_version_is_collected_without_its_webhook(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    async with serving() as webhook, running(registry, *ALL):
        await define(admin, a_definition(webhook.client_config(), "v2"))
        owner = await post(admin, CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
        made = {"apiVersion": "lab.example.com/v2", "kind": "Widget", "spec": {"paint": "red"}}
        await post(admin, path(version="v2"), made | {"metadata": {"name": "w", "ownerReferences": owned_by(owner)}})
        current = (await admin.get(DEFINITION)).json()
        current["spec"]["versions"] = a_definition({}, "v1")["spec"]["versions"]
        assert (await admin.put(DEFINITION, json=current)).status_code == 200
        webhook.status = 503

        await admin.delete(f"{CONFIG_MAPS}/c", params={"propagationPolicy": "Orphan"})
        await is_gone(registry, admin, f"{CONFIG_MAPS}/c")

        assert (await admin.get(path(name="w"))).status_code == 500
        webhook.status, webhook.answer = 200, convert
        kept = (await admin.get(path(name="w"))).json()
        assert kept["spec"]["color"] == "red"
        assert "ownerReferences" not in kept["metadata"]
        assert webhook.requests[-1]["objects"][0]["spec"] == {"paint": "red", "replicas": 1}, "stored as it was"

        webhook.status = 503
        gone = await admin.delete(path(name="w"), params={"propagationPolicy": "Foreground"})
        assert (gone.status_code, gone.json()["status"]) == (200, "Success")
        webhook.status = 200
        await is_gone(registry, admin, path(name="w"))
        registry.admission.webhooks.client.close()
