"""Admission webhooks over HTTP: what a client hears of them; custom objects in a version that they know."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import GROUP, define, definition, path, version, widget
from tests.webhook_server import WebhookServer, a_webhook, patching, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture
def admin(lasting_admin: httpx.AsyncClient, restored: Registry) -> httpx.AsyncClient:
    return lasting_admin


@pytest_asyncio.fixture(loop_scope="module")
async def webhook(admin: httpx.AsyncClient, restored: Registry) -> AsyncIterator[WebhookServer]:
    """For version v1beta1 of widgets, of which v1 is stored."""
    await define(admin, definition("widgets", "Widget", version(), version("v1beta1")))
    async with serving() as made:
        rule = {"apiGroups": [GROUP], "apiVersions": ["v1beta1"], "operations": ["*"], "resources": ["widgets"]}
        hook = a_webhook(made.client_config(), rules=[rule])
        document = {"metadata": {"name": "w"}, "webhooks": [hook]}
        answer = await admin.post(f"{ROOT}/mutatingwebhookconfigurations", json=document)
        assert answer.status_code == 201, answer.text
        yield made
        restored.admission.webhooks.client.close()


async def test_a_custom_object_is_changed_in_a_version_that_the_webhook_knows(
    admin: httpx.AsyncClient, webhook: WebhookServer
) -> None:
    webhook.answer = lambda _: {
        **patching({"op": "replace", "path": "/spec/color", "value": "blue"}),
        "warnings": ["painted"],
    }

    made = await admin.post(path(), json=widget())

    assert made.status_code == 201, made.text
    assert made.headers["Warning"] == '299 - "painted"'
    assert (made.json()["spec"]["color"], made.json()["apiVersion"]) == ("blue", f"{GROUP}/v1")
    (request,) = webhook.requests
    assert request["kind"]["version"] == "v1beta1"
    assert request["object"]["apiVersion"] == f"{GROUP}/v1beta1"
    assert request["requestKind"]["version"] == "v1"
    assert request["object"]["spec"]["replicas"] == 1, "with defaults"


async def test_what_breaks_the_schema_is_refused(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: patching({"op": "replace", "path": "/spec/color", "value": "green"})

    refused = (await admin.post(path(), json=widget())).json()

    assert refused["code"] == 422
    assert 'spec.color: Unsupported value: "green"' in refused["message"]


async def test_a_refusal_is_a_status_with_the_webhooks_code(admin: httpx.AsyncClient, webhook: WebhookServer) -> None:
    status = {"code": 403, "message": "no widgets", "reason": "Forbidden"}
    webhook.answer = lambda _: {"allowed": False, "status": status}

    refused = await admin.post(path(), json=widget())

    assert refused.status_code == 403
    assert refused.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Forbidden",
        "code": 403,
        "message": 'admission webhook "w.example.com" denied the request: no widgets',
    }
