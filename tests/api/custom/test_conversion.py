"""Conversion webhooks over HTTP: objects of two versions with different schemas, converted by a real HTTPS server.

What v1 calls `color`, v2 calls `paint`. v2 is stored.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import DEFINITIONS, GROUP, define, definition, path, version, widget
from tests.webhook_server import WebhookServer, a_webhook, patching, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
V1, V2 = f"{GROUP}/v1", f"{GROUP}/v2"
MERGE = {"Content-Type": "application/merge-patch+json"}
STATUS = {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}}


def a_version(name: str, field: str, *, storage: bool) -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": [field],
        "properties": {field: {"type": "string"}, "replicas": {"type": "integer", "default": 1}},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": STATUS}}}
    columns = [{"name": "Color", "type": "string", "jsonPath": f".spec.{field}"}]
    return version(name, schema=schema, storage=storage, selectableFields=[], additionalPrinterColumns=columns)


def a_definition(config: dict[str, Any], storage: str = "v2") -> dict[str, Any]:
    webhook = {"clientConfig": config, "conversionReviewVersions": ["v1"]}
    versions = [a_version("v1", "color", storage=storage == "v1"), a_version("v2", "paint", storage=storage == "v2")]
    return definition("widgets", "Widget", *versions, conversion={"strategy": "Webhook", "webhook": webhook})


def convert(request: dict[str, Any]) -> dict[str, Any]:
    """A webhook's answer."""
    wanted = request["desiredAPIVersion"]
    return {
        "result": {"status": "Success"},
        "convertedObjects": [_converted(each, wanted) for each in request["objects"]],
    }


def _converted(obj: dict[str, Any], wanted: str) -> dict[str, Any]:
    before, after = ("color", "paint") if wanted == V2 else ("paint", "color")
    spec = {name: value for name, value in obj.get("spec", {}).items() if name != before}
    spec |= {after: obj["spec"][before]} if before in obj.get("spec", {}) else {}
    return {**obj, "apiVersion": wanted, "spec": {**spec, "unknown": 1}}


@pytest.fixture
def admin(lasting_admin: httpx.AsyncClient, restored: Registry) -> httpx.AsyncClient:
    return lasting_admin


@pytest_asyncio.fixture(loop_scope="module")
async def webhook(admin: httpx.AsyncClient, restored: Registry) -> AsyncIterator[WebhookServer]:
    async with serving() as made:
        made.answer = convert
        await define(admin, a_definition(made.client_config("/convert")))
        yield made
        restored.admission.webhooks.client.close()


def v1(name: str = "w", **spec: Any) -> dict[str, Any]:
    return widget(name, **spec)


def v2(name: str = "w", **spec: Any) -> dict[str, Any]:
    document = widget(name, api_version=V2, **{"paint": "red", **spec})
    del document["spec"]["color"]
    return document


async def test_each_version_is_read_as_it_was_asked_for(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    made = await admin.post(path(), json=v1())

    assert made.status_code == 201, made.text
    assert made.json()["apiVersion"] == V1
    assert made.json()["spec"] == {"color": "red", "replicas": 1}
    (request,) = webhook.requests
    assert request["desiredAPIVersion"] == V2
    assert webhook.paths == ["/convert?timeout=30s"]

    stored = (await admin.get(path(name="w", version="v2"))).json()
    assert (stored["apiVersion"], stored["spec"]) == (V2, {"paint": "red", "replicas": 1})
    assert len(webhook.requests) == 1, "what is stored in the wanted version is not converted"
    assert stored["metadata"] == made.json()["metadata"]

    read = (await admin.get(path(name="w"))).json()
    assert read == made.json()


async def test_writes_convert_both_ways(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    await admin.post(path(version="v2"), json=v2())
    assert webhook.requests == []

    patched = await admin.patch(path(name="w"), json={"spec": {"color": "blue"}}, headers=MERGE)
    assert patched.status_code == 200, patched.text
    assert patched.json()["spec"] == {"color": "blue", "replicas": 1}
    assert patched.json()["metadata"]["generation"] == 2

    replaced = patched.json()
    replaced["spec"]["color"] = "green"
    replaced = (await admin.put(path(name="w"), json=replaced)).json()
    assert (await admin.get(path(name="w", version="v2"))).json()["spec"]["paint"] == "green"

    calls = len(webhook.requests)
    same = (await admin.put(path(name="w"), json=replaced)).json()
    assert same["metadata"] == replaced["metadata"], "nothing has changed, so nothing is written"
    assert len(webhook.requests) == calls + 1

    refused = await admin.patch(path(name="w"), json={"spec": {"color": None}}, headers=MERGE)
    assert "spec.color: Required value" in refused.json()["message"]


async def test_subresources_are_those_of_the_version(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    await admin.post(path(version="v2"), json=v2())

    status = await admin.patch(f"{path(name='w')}/status", json={"status": {"phase": "Done"}}, headers=MERGE)
    assert status.json()["status"] == {"phase": "Done"}
    assert status.json()["spec"]["color"] == "red"

    scaled = await admin.patch(f"{path(name='w')}/scale", json={"spec": {"replicas": 7}}, headers=MERGE)
    assert scaled.json()["spec"] == {"replicas": 7}
    assert (await admin.get(f"{path(name='w')}/scale")).json()["spec"] == {"replicas": 7}
    stored = (await admin.get(path(name="w", version="v2"))).json()
    assert stored["spec"] == {"paint": "red", "replicas": 7}
    assert stored["status"] == {"phase": "Done"}


async def test_apply_works_in_each_version(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    query = {"fieldManager": "one", "force": "true"}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    made = await admin.patch(path(name="w"), params=query, json=v1(replicas=3), headers=headers)
    assert made.status_code == 201, made.text

    applied = await admin.patch(path(name="w", version="v2"), params=query, json=v2(paint="blue"), headers=headers)
    assert applied.status_code == 200, applied.text
    assert applied.json()["spec"]["paint"] == "blue"
    assert (await admin.get(path(name="w"))).json()["spec"]["color"] == "blue"


async def test_a_manager_owns_a_field_in_every_version(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    await admin.patch(path(name="w"), params={"fieldManager": "one"}, json=v1(), headers=headers)
    query = {"fieldManager": "two"}

    taken = await admin.patch(path(name="w", version="v2"), params=query, json=v2(paint="blue"), headers=headers)
    assert (taken.status_code, taken.json()["message"]) == (
        409,
        'Apply failed with 1 conflict: conflict with "one": .spec.color',
    )
    same = await admin.patch(path(name="w", version="v2"), params=query, json=v2(), headers=headers)
    assert _owners(same.json()) == {("one", V1): ["color"], ("two", V2): ["paint"]}
    await admin.patch(
        path(name="w", version="v2"), params=query | {"force": "true"}, json=v2(paint="blue"), headers=headers
    )
    forced = (await admin.get(path(name="w"))).json()
    assert _owners(forced) == {("two", V2): ["paint"]}

    patched = await admin.patch(
        path(name="w"), params={"fieldManager": "three"}, json={"spec": {"color": "green"}}, headers=MERGE
    )
    assert _owners(patched.json()) == {("three", V1): ["color"]}


def _owners(obj: dict[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Which fields of the spec each manager owns, and in which version."""
    return {
        (each["manager"], each["apiVersion"]): [name.removeprefix("f:") for name in each["fieldsV1"].get("f:spec", {})]
        for each in obj["metadata"]["managedFields"]
    }


async def test_a_list_is_one_call(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    for index in range(5):
        await admin.post(path(version="v2"), json=v2(f"w{index}", paint=f"c{index}"))

    listed = (await admin.get(path())).json()
    assert [each["spec"]["color"] for each in listed["items"]] == [f"c{index}" for index in range(5)]
    assert {each["apiVersion"] for each in listed["items"]} == {V1}
    assert all(each["metadata"]["resourceVersion"] for each in listed["items"])
    (request,) = webhook.requests
    assert len(request["objects"]) == 5

    table = await admin.get(path(), headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [each["cells"][1] for each in table.json()["rows"]] == [f"c{index}" for index in range(5)]
    first = (await admin.get(path(), params={"limit": "2"})).json()
    assert [each["spec"]["color"] for each in first["items"]] == ["c0", "c1"]
    gone = await admin.delete(path())
    assert {each["apiVersion"] for each in gone.json()["items"]} == {V1}


async def test_watches_are_each_in_their_version(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    await admin.post(path(version="v2"), json=v2("before"))
    query = {"watch": "true"}
    async with (
        admin.stream("GET", path(), params=query) as one,
        admin.stream("GET", path(), params=query) as other,
        admin.stream("GET", path(version="v2"), params=query) as stored,
    ):
        old, new, third = one.aiter_lines(), stored.aiter_lines(), other.aiter_lines()
        for lines, field in ((old, "color"), (third, "color"), (new, "paint")):
            event = json.loads(await anext(lines))
            assert (event["type"], event["object"]["spec"][field]) == ("ADDED", "red")
        calls = len(webhook.requests)
        await admin.post(path(version="v2"), json=v2("w", paint="blue"))
        seen = [json.loads(await anext(lines))["object"] for lines in (old, third)]
        assert [(each["apiVersion"], each["spec"]["color"]) for each in seen] == [(V1, "blue")] * 2
        assert len(webhook.requests) == calls + 1, "watchers share a call"
        assert json.loads(await anext(new))["object"]["spec"]["paint"] == "blue"
        await admin.delete(path(name="w"))
        event = json.loads(await anext(old))
        assert (event["type"], event["object"]["spec"]["color"]) == ("DELETED", "blue")


async def test_a_slow_webhook_delays_no_watch_of_the_stored_version(
    admin: httpx.AsyncClient, webhook: WebhookServer
) -> None:
    go_on = asyncio.Event()

    async def wait(request: dict[str, Any]) -> dict[str, Any]:
        await go_on.wait()
        return convert(request)

    webhook.answer = wait
    query = {"watch": "true", "resourceVersion": "0"}
    async with (
        admin.stream("GET", path(), params=query) as slow,
        admin.stream("GET", path(version="v2"), params=query) as stored,
    ):
        for index in range(3):
            await admin.post(path(version="v2"), json=v2(f"w{index}"))
        fast = stored.aiter_lines()
        names = [json.loads(await anext(fast))["object"]["metadata"]["name"] for _ in range(3)]
        assert names == ["w0", "w1", "w2"]
        go_on.set()
        lines = slow.aiter_lines()
        names = [json.loads(await anext(lines))["object"]["metadata"]["name"] for _ in range(3)]
        assert names == ["w0", "w1", "w2"]


async def test_a_webhook_that_fails_is_a_500_in_kubernetes_words(
    admin: httpx.AsyncClient, webhook: WebhookServer
) -> None:
    await admin.post(path(version="v2"), json=v2())
    webhook.answer = lambda _: {"result": {"status": "Failure", "message": "no paint left"}}

    failed = (await admin.get(path(name="w"))).json()

    assert failed["code"] == 500
    assert "reason" not in failed
    assert failed["message"] == f"conversion webhook for {V2}, Kind=Widget failed: no paint left"
    assert (await admin.post(path(), json=v1("new"))).json()["message"] == (
        f"conversion webhook for {V1}, Kind=Widget failed: no paint left"
    )
    assert (await admin.get(path(name="new"))).status_code == 404
    async with admin.stream("GET", path(), params={"watch": "true"}) as watch:
        event = json.loads(await anext(watch.aiter_lines()))
    assert (event["type"], event["object"]["code"]) == ("ERROR", 500)

    webhook.status = 404
    message = (await admin.get(path())).json()["message"]
    assert message.endswith("failed: the server could not find the requested resource")
    assert (await admin.delete(path(name="w"))).status_code == 200, "a deletion converts nothing"


async def test_a_webhook_that_is_away_is_named(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    config = {**webhook.client_config("/convert"), "url": "https://127.0.0.1:1/convert"}
    current = (await admin.get(f"{DEFINITIONS}/widgets.{GROUP}")).json()
    current["spec"]["conversion"]["webhook"]["clientConfig"] = config
    assert (await admin.put(f"{DEFINITIONS}/widgets.{GROUP}", json=current)).status_code == 200

    refused = (await admin.post(path(), json=v1())).json()

    assert refused["message"] == (
        f'conversion webhook for {V1}, Kind=Widget failed: Post "https://127.0.0.1:1/convert?timeout=30s": '
        "dial tcp 127.0.0.1:1: connect: connection refused"
    )


async def test_what_is_stored_in_an_old_version_is_converted_and_migrated(
    admin: httpx.AsyncClient, webhook: WebhookServer
) -> None:
    await admin.post(path(version="v2"), json=v2("old"))
    where = f"{DEFINITIONS}/widgets.{GROUP}"
    current = (await admin.get(where)).json()
    current["spec"]["versions"] = a_definition({}, "v1")["spec"]["versions"]
    changed = await admin.put(where, json=current)
    assert changed.json()["status"]["storedVersions"] == ["v2", "v1"], changed.text

    await admin.post(path(), json=v1("new"))
    listed = (await admin.get(path())).json()["items"]
    assert [(each["apiVersion"], each["spec"]["color"]) for each in listed] == [(V1, "red")] * 2
    assert [len(each["objects"]) for each in webhook.requests] == [1]

    read = (await admin.get(path(name="old"))).json()
    migrated = await admin.put(path(name="old"), json=read)
    assert migrated.json()["metadata"]["resourceVersion"] != read["metadata"]["resourceVersion"]
    webhook.requests.clear()
    assert (await admin.get(path(name="old"))).json()["spec"]["color"] == "red"
    assert webhook.requests == []


async def test_admission_webhooks_are_called_with_the_version_that_they_know(
    admin: httpx.AsyncClient, webhook: WebhookServer
) -> None:
    rule = {"apiGroups": [GROUP], "apiVersions": ["v2"], "operations": ["*"], "resources": ["widgets"]}
    async with serving() as reviewer:
        reviewer.answer = lambda _: patching({"op": "replace", "path": "/spec/paint", "value": "blue"})
        document = {"metadata": {"name": "w"}, "webhooks": [a_webhook(reviewer.client_config(), rules=[rule])]}
        root = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        assert (await admin.post(root, json=document)).status_code == 201

        made = await admin.post(path(), json=v1())

        assert made.status_code == 201, made.text
        assert made.json()["spec"]["color"] == "blue"
        (request,) = reviewer.requests
        assert request["object"]["apiVersion"] == V2
        assert request["object"]["spec"]["paint"] == "red"


async def test_definitions_are_validated(admin: httpx.AsyncClient) -> None:
    conversion: dict[str, Any] = {"strategy": "Webhook"}
    refused = (await admin.post(DEFINITIONS, json=definition(conversion=conversion))).json()
    assert [f"{each['field']}: {each['message']}" for each in refused["details"]["causes"]] == [
        "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        "spec.conversion.conversionReviewVersions: Required value",
    ]
    conversion["webhook"] = {"clientConfig": {}, "conversionReviewVersions": ["v7", "v7"]}
    refused = (await admin.post(DEFINITIONS, json=definition(conversion=conversion))).json()
    assert [f"{each['field']}: {each['message']}" for each in refused["details"]["causes"]] == [
        "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required",
        'spec.conversion.conversionReviewVersions[1]: Invalid value: "v7": duplicate version',
        'spec.conversion.conversionReviewVersions: Invalid value: ["v7","v7"]: must include at least one of v1, v1beta1',
    ]
    conversion |= {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}
    refused = (await admin.post(DEFINITIONS, json=definition(conversion=conversion))).json()
    assert "Forbidden: should not be set when strategy is not set to Webhook" in refused["message"]
