"""Admission webhooks on a real registry, called over HTTPS: what they see, change, refuse and say, and how they fail."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from msgspec.structs import replace

from app.kinds.admission.mutating_webhook_configuration import KIND as MUTATING
from app.kinds.admission.validating_webhook_configuration import KIND as VALIDATING
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.service import KIND as SERVICES
from app.machinery.apply.managed_fields import FieldManager
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.registry.admission.requester import REQUESTER, ServiceAccountUser
from app.registry.codec import write_of
from app.registry.verbs import deletion, objects
from app.registry.verbs.objects import Answer, Registry
from app.registry.verbs.versions import UpdateOptions
from tests.e2e.cluster import free_port
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create, get, named, read
from tests.webhook_server import WebhookServer, a_webhook, patching, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    return restored


@pytest_asyncio.fixture(loop_scope="module")
async def webhook(registry: Registry) -> AsyncIterator[WebhookServer]:
    async with serving() as made:
        yield made
        registry.admission.webhooks.client.close()


async def configure(registry: Registry, kind: Kind, *webhooks: dict[str, Any], name: str = "c") -> None:
    await create(registry, kind, msgspec.convert({"metadata": {"name": name}, "webhooks": webhooks}, kind.type))


async def refusal(call: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        await call
    return error.value


async def made(registry: Registry, obj: Object, **options: Any) -> Answer:
    return await objects.create(registry, JOBS, "default", obj, **options)


def label(value: str) -> dict[str, Any]:
    return patching({"op": "add", "path": "/metadata/labels", "value": {"team": value}})


async def test_a_job_is_changed_before_it_is_stored(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: {**label("a"), "warnings": ["be warned"], "auditAnnotations": {"k": "v"}}
    await configure(registry, MUTATING, a_webhook(webhook.client_config("/mutate")))

    token = REQUESTER.set(ServiceAccountUser("ada"))
    answer = await made(registry, named(a_job(""), generate_name="pi-"))
    REQUESTER.reset(token)

    stored = read(JOBS, answer.body)
    assert stored.metadata.labels == {"team": "a"}
    assert answer.warnings[0] == "be warned"
    assert answer.audit_annotations == {
        "w.example.com/k": "v",
        "mutation.webhook.admission.k8s.io/round_0_index_0": (
            '{"configuration":"c","webhook":"w.example.com","mutated":true}'
        ),
    }
    (request,) = webhook.requests
    assert webhook.paths == ["/mutate?timeout=10s"]
    assert (request["operation"], request["namespace"], request["dryRun"]) == ("CREATE", "default", False)
    assert request["kind"] == {"group": "batch", "version": "v1", "kind": "Job"}
    assert request["userInfo"]["username"] == "ada"
    assert "name" not in request["object"]["metadata"], "the name is made later"
    assert request["object"]["spec"]["backoffLimit"] == 6, "with defaults"
    assert (request["object"]["apiVersion"], request["oldObject"]) == ("batch/v1", None)


async def test_who_is_on_record_for_what_a_webhook_added(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: label("a")
    await configure(registry, MUTATING, a_webhook(webhook.client_config()))

    answer = await made(registry, a_job(), by=FieldManager("kubectl", registry.now()))

    (entry,) = read(JOBS, answer.body).metadata.managed_fields
    assert entry.manager == "kubectl"
    assert entry.fields_v1["f:metadata"]["f:labels"] == {".": {}, "f:app": {}}, (
        "by the template's default, not the webhook"
    )


async def test_what_a_webhook_made_is_validated(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: patching({"op": "add", "path": "/spec/parallelism", "value": -1})
    await configure(registry, MUTATING, a_webhook(webhook.client_config()))

    error = await refusal(made(registry, a_job()))

    assert (error.code, error.message) == (
        422,
        'Job.batch "pi" is invalid: spec.parallelism: Invalid value: -1: must be greater than or equal to 0',
    )


async def test_mutating_webhooks_in_the_order_of_names_and_once_more_if_needed(
    registry: Registry, webhook: WebhookServer
) -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        labels = request["object"]["metadata"].get("labels", {})
        called = webhook.paths[-1].partition("?")[0][1:]
        mark = f"{called}{sum(each.startswith(f'/{called}?') for each in webhook.paths)}"
        return patching({"op": "add", "path": "/metadata/labels", "value": labels | {mark: "-".join(labels)}})

    webhook.answer = answer
    again = a_webhook(webhook.client_config("/a"), name="a.example.com", reinvocationPolicy="IfNeeded")
    await configure(registry, MUTATING, again, name="z")
    once = a_webhook(webhook.client_config("/b"), name="b.example.com")
    await configure(registry, MUTATING, a_webhook(webhook.client_config("/c"), name="c.example.com"), name="y")
    await configure(registry, MUTATING, a_webhook(webhook.client_config("/d"), name="d.example.com"), once, name="zz")

    stored = read(JOBS, (await made(registry, a_job())).body)

    assert [each[1] for each in webhook.paths] == ["c", "a", "d", "b", "a"]
    assert stored.metadata.labels.keys() == {"app", "a1", "a2", "b1", "c1", "d1"}
    assert set(stored.metadata.labels["a2"].split("-")) == {"app", "a1", "b1", "c1", "d1"}


@pytest.mark.parametrize(
    ("response", "code", "reason", "message"),
    [
        ({"allowed": False}, 400, "", " without explanation"),
        ({"allowed": False, "status": {"message": "no", "code": 403, "reason": "Forbidden"}}, 403, "Forbidden", ": no"),
        ({"allowed": False, "status": {"reason": "Because", "code": 200}}, 400, "Because", ": Because"),
    ],
)
async def test_refusals(
    registry: Registry, webhook: WebhookServer, response: dict[str, Any], code: int, reason: str, message: str
) -> None:
    webhook.answer = lambda _: response
    await configure(registry, VALIDATING, a_webhook(webhook.client_config()))

    error = await refusal(made(registry, a_job()))

    assert (error.code, error.reason) == (code, reason)
    assert error.message == f'admission webhook "w.example.com" denied the request{message}'
    assert await get(registry, JOBS, "pi") is None


async def test_validating_webhooks_see_the_object_as_it_is_stored_and_at_the_same_time(
    registry: Registry, webhook: WebhookServer
) -> None:
    together = asyncio.Barrier(2)

    async def answer(_: dict[str, Any]) -> dict[str, Any]:
        await together.wait()
        return {"allowed": True, "warnings": ["w"]}

    webhook.answer = answer
    pair = [a_webhook(webhook.client_config(f"/{each}"), name=f"{each}.example.com") for each in "ab"]
    await configure(registry, VALIDATING, *pair)

    answer_ = await made(registry, named(a_job(""), generate_name="pi-"))

    stored = read(JOBS, answer_.body)
    assert answer_.warnings[-2:] == ("w", "w")
    for request in webhook.requests:
        assert request["name"] == request["object"]["metadata"]["name"] == stored.metadata.name
        assert request["object"]["metadata"]["uid"] == stored.metadata.uid


async def test_updates_and_deletes_and_their_subresources(registry: Registry, webhook: WebhookServer) -> None:
    await create(registry, JOBS, a_job())
    webhook.answer = lambda request: label("b") if request["object"] else {"allowed": True}
    await configure(
        registry,
        MUTATING,
        a_webhook(webhook.client_config()),
        a_webhook(webhook.client_config("/s"), "jobs/status", name="s.example.com"),
    )

    def annotate(old: Object) -> Object:
        return named(old, annotations={"a": "b"})

    await objects.edit(registry, JOBS, "default", "pi", annotate)
    assert (await get(registry, JOBS, "pi")).metadata.labels == {"team": "b"}
    await objects.edit(registry, JOBS, "default", "pi", lambda old: old, UpdateOptions(status=True))
    await objects.delete(registry, JOBS, "default", "pi", deletion.Demand())

    update, status, delete = webhook.requests
    assert [each[:2] for each in webhook.paths] == ["/?", "/s", "/?"]
    assert update["oldObject"]["metadata"]["resourceVersion"], "a webhook may compare versions"
    assert update["oldObject"]["metadata"]["uid"] == update["object"]["metadata"]["uid"]
    assert (update["options"]["kind"], status["subResource"]) == ("UpdateOptions", "status")
    assert (delete["operation"], delete["object"], delete["oldObject"]["kind"]) == ("DELETE", None, "Job")


async def test_a_deletion_cannot_be_patched(registry: Registry, webhook: WebhookServer) -> None:
    await create(registry, JOBS, a_job())
    webhook.answer = lambda _: label("a")
    await configure(registry, MUTATING, a_webhook(webhook.client_config()))

    error = await refusal(objects.delete(registry, JOBS, "default", "pi", deletion.Demand()))

    assert (error.code, error.message) == (
        500,
        'Internal error occurred: admission webhook "w.example.com" attempted to modify the object, '
        "which is not supported for this operation",
    )


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("kind", [MUTATING, VALIDATING], ids=lambda kind: kind.name)
async def test_a_dead_webhook(registry: Registry, webhook: WebhookServer, kind: Kind, policy: str) -> None:
    url = f"https://127.0.0.1:{free_port()}/x"
    await configure(registry, kind, a_webhook(webhook.client_config() | {"url": url}, failurePolicy=policy))

    if policy == "Ignore":
        answer = await made(registry, a_job())
        assert list(answer.audit_annotations or {}) == [
            f"failed-open.{'mutation' if kind is MUTATING else 'validating'}.webhook.admission.k8s.io/round_0_index_0"
        ]
        return
    error = await refusal(made(registry, a_job()))
    assert (error.code, error.reason) == (500, "InternalError")
    assert error.message == (
        f'Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: Post "{url}?timeout=10s": '
        f"dial tcp {url[8:-2]}: connect: connection refused"
    )


@pytest.mark.parametrize(
    ("fields", "response", "status", "why"),
    [
        ({"timeoutSeconds": 1}, "slow", 200, '?timeout=1s": context deadline exceeded'),
        ({}, {"uid": "x"}, 200, 'received invalid webhook response: expected response.uid="'),
        ({}, {"patchType": "JSONPatch"}, 200, "webhook returned response.patchType but not response.patch"),
        ({}, {"patch": "e30="}, 200, "webhook returned response.patch but not response.patchType"),
        ({}, {"patch": "e30=", "patchType": "JSONPatch"}, 200, "received undecodable patch in webhook response: "),
        ({}, {"allowed": 3}, 200, "failed to call webhook: couldn't decode response: "),
        ({}, {}, 404, "failed to call webhook: the server could not find the requested resource"),
        ({}, {}, 500, 'failed to call webhook: an error on the server ("{'),
        ({"ca": False}, {}, 200, "tls: failed to verify certificate: x509: "),
    ],
)
async def test_calls_that_fail(
    registry: Registry, webhook: WebhookServer, fields: dict[str, Any], response: Any, status: int, why: str
) -> None:
    over = asyncio.Event()

    async def never(_: Any) -> dict[str, Any]:
        await over.wait()
        return {}

    webhook.answer = never if response == "slow" else lambda _: {"allowed": True, **response}
    webhook.status = status
    config = webhook.client_config() if fields.pop("ca", True) else {"url": webhook.url()}
    await configure(registry, MUTATING, a_webhook(config, **fields))

    error = await refusal(made(registry, a_job()))
    over.set()

    assert error.code == 500
    assert error.message.startswith('Internal error occurred: failed calling webhook "w.example.com": ')
    assert why in error.message


async def test_a_patch_that_does_not_apply(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: patching({"op": "remove", "path": "/nothing"})
    await configure(registry, MUTATING, a_webhook(webhook.client_config()))

    error = await refusal(made(registry, a_job()))

    assert (error.code, error.reason) == (500, "InternalError")


async def test_selectors_and_conditions(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: {"allowed": False}
    conditions = [{"name": "c", "expression": "request.operation == 'CREATE' && object.spec.backoffLimit == 6"}]
    await configure(
        registry,
        VALIDATING,
        a_webhook(
            webhook.client_config(),
            objectSelector={"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
            namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            matchConditions=conditions,
        ),
    )

    await refusal(made(registry, a_job()))
    await made(registry, a_job("skipped", {"labels": {"skip": ""}}))
    await made(registry, a_job("other", backoff_limit=1))
    await objects.create(registry, JOBS, "kube-system", a_job())


async def test_a_condition_that_fails(registry: Registry, webhook: WebhookServer) -> None:
    conditions = [{"name": "c", "expression": "object.spec.nothing == 1"}]
    await configure(registry, VALIDATING, a_webhook(webhook.client_config(), matchConditions=conditions))

    error = await refusal(made(registry, a_job()))

    assert (error.code, webhook.requests) == (403, [])


async def test_dry_runs(registry: Registry, webhook: WebhookServer) -> None:
    await configure(registry, VALIDATING, a_webhook(webhook.client_config()))

    await made(registry, a_job(), dry_run=True)

    (request,) = webhook.requests
    assert request["dryRun"] is True
    assert await get(registry, JOBS, "pi") is None


async def test_configurations_and_policies_are_never_subject_to_webhooks(
    registry: Registry, webhook: WebhookServer
) -> None:
    webhook.answer = lambda _: {"allowed": False}
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    await configure(registry, VALIDATING, a_webhook(webhook.client_config(), rules=[everything]))

    await refusal(made(registry, a_job()))
    await configure(registry, MUTATING, name="d")
    await objects.delete(registry, VALIDATING, "", "c", deletion.Demand())

    await made(registry, a_job())


async def test_connections_are_kept_and_made_anew(registry: Registry, webhook: WebhookServer) -> None:
    await configure(registry, VALIDATING, a_webhook(webhook.client_config()))

    for index in range(3):
        await made(registry, a_job(f"a{index}"))
    assert webhook.connections == 1
    webhook.hang_up()
    await made(registry, a_job("b"))
    assert webhook.connections == 2


async def test_a_service_is_called_at_its_ready_endpoints(registry: Registry, webhook: WebhookServer) -> None:
    ca = webhook.client_config()["caBundle"]
    service = {"namespace": "default", "name": "reviewer", "path": "/x", "port": 8443}
    await configure(registry, VALIDATING, a_webhook({"service": service, "caBundle": ca}))

    async def why() -> str:
        return (await refusal(made(registry, a_job()))).message.rpartition("w.example.com")[2][3:]

    assert await why() == 'service "reviewer" not found'
    ports = [{"port": 8443, "targetPort": "https", "name": "https"}]
    await create(registry, SERVICES, of(SERVICES, "reviewer", spec={"ports": ports, "selector": {"app": "r"}}))
    assert await why() == 'no endpoints available for service "reviewer"'
    endpoints = [
        {"addresses": ["127.0.0.2"], "conditions": {"ready": False}},
        {"addresses": ["127.0.0.1"], "conditions": {"ready": True}},
    ]
    ports = [{"name": "https", "port": webhook.port}]
    piece = of(SLICES, "reviewer-1", addressType="IPv4", endpoints=endpoints, ports=ports)
    piece = named(piece, namespace="default", uid="u", labels={"kubernetes.io/service-name": "reviewer"})
    await registry.store.commit([write_of(SLICES, piece, "A")])  # as its controller does, also for loopback addresses

    await made(registry, a_job())

    assert webhook.paths == ["/x?timeout=10s"]


async def test_quotas_are_charged_for_what_webhooks_made(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: patching(
        {"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": "3"}}}
    )
    pods = a_webhook(webhook.client_config(), "pods")
    await configure(registry, MUTATING, pods)
    await configure(registry, VALIDATING, pods | {"clientConfig": webhook.client_config("/v")})
    quota = of(QUOTAS, "q", spec={"hard": {"requests.cpu": "4"}})
    await create(registry, QUOTAS, replace(quota, status=QUOTAS.type().status))
    await objects.edit(
        registry,
        QUOTAS,
        "default",
        "q",
        lambda old: replace(old, status=replace(old.status, hard={"requests.cpu": "4"}, used={"requests.cpu": "0"})),
        UpdateOptions(status=True),
    )
    webhook_answer = webhook.answer
    webhook.answer = lambda request: (
        {"allowed": True} if webhook.paths[-1].startswith("/v") else webhook_answer(request)
    )

    await create(registry, PODS, a_pod("one"))
    error = await refusal(create(registry, PODS, a_pod("two")))

    assert (
        "exceeded quota: q, requested: requests.cpu=3, used: requests.cpu=3, limited: requests.cpu=4" in error.message
    )


def of(kind: Kind, name: str, **fields: Any) -> Any:
    return msgspec.convert({"metadata": {"name": name}} | fields, kind.type)
