"""What is posted to and read from below a pod, over HTTP: evictions, logs, and what is not served."""

from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec
from app.kinds.pod.container import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from app.kinds.pod.pod_schema import PodSchedulingGate
from app.machinery.base import LabelSelector, ObjectMeta
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from tests.registry.examples import PODS, a_pod, create, get

POD = "/api/v1/namespaces/default/pods/p"
AN_EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}


def varied(**changes: Any) -> dict[str, Any]:
    return {**AN_EVICTION, **changes}


async def report(registry: Registry, **status: Any) -> None:
    await objects.rewrite(
        registry, PODS, "default", "p", lambda pod: replace(pod, status=replace(pod.status, **status))
    )


@pytest.fixture
async def pod(registry: Registry) -> Any:
    """Running, on a node."""
    await create(registry, PODS, a_pod("p", {"labels": {"app": "w"}}, node_name="n"))
    await report(registry, phase="Running")
    return await get(registry, PODS, "p")


@pytest.mark.parametrize("version", ["policy/v1", "policy/v1beta1"])
async def test_both_versions_evict(registry: Registry, pod: Any, admin: httpx.AsyncClient, version: str) -> None:
    body = varied(apiVersion=version, deleteOptions={"gracePeriodSeconds": 3})
    answer = await admin.post(f"{POD}/eviction", json=body)

    assert (answer.status_code, answer.json()) == (
        201,
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
    )
    assert (await get(registry, PODS, "p")).metadata.deletion_grace_period_seconds == 3


async def test_an_eviction_may_be_protobuf(registry: Registry, pod: Any, admin: httpx.AsyncClient) -> None:
    named, message = b"\n\tpolicy/v1\x12\x08Eviction", b"\n\x03\n\x01p\x12\x02\x08\x05"
    body = b"k8s\0" + b"\n" + bytes([len(named)]) + named + b"\x12" + bytes([len(message)]) + message
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}

    assert (await admin.post(f"{POD}/eviction", content=body, headers=headers)).status_code == 201
    assert (await get(registry, PODS, "p")).metadata.deletion_grace_period_seconds == 5


async def test_an_eviction_may_be_yaml(pod: Any, admin: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/yaml"}
    body = "apiVersion: policy/v1\nkind: Eviction\nmetadata: {name: p}\n"

    assert (await admin.post(f"{POD}/eviction", content=body, headers=headers)).status_code == 201


@pytest.mark.parametrize(
    ("query", "options"),
    [
        pytest.param({"dryRun": "All"}, None, id="in the query"),
        pytest.param({}, {"dryRun": ["All"]}, id="in the Eviction"),
        pytest.param({"dryRun": "All"}, {"dryRun": ["All"]}, id="in both"),
    ],
)
async def test_a_dry_run_may_be_asked_for(
    registry: Registry, pod: Any, admin: httpx.AsyncClient, query: dict[str, str], options: dict[str, Any] | None
) -> None:
    body = varied(deleteOptions=options)
    answer = await admin.post(f"{POD}/eviction", params=query, json=body)

    assert answer.status_code == 201
    assert await get(registry, PODS, "p") == pod


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        pytest.param(
            varied(metadata={"name": "q"}), 400, "name in URL does not match name in Eviction object", id="other pod"
        ),
        pytest.param(varied(apiVersion="v1"), 400, "the API version in the data (v1)", id="other version"),
        pytest.param(varied(kind="Pod"), 400, "the kind in the data (Pod)", id="other kind"),
        pytest.param(
            varied(metadata={"name": "p", "namespace": "x"}), 400, "the namespace of the provided", id="other namespace"
        ),
        pytest.param(
            varied(deleteOptions={"preconditions": {"uid": "x"}}), 409, "Precondition failed", id="other incarnation"
        ),
        pytest.param(varied(deleteOptions={"propagationPolicy": "x"}), 422, "propagationPolicy", id="bad options"),
        pytest.param([], 400, "", id="no object"),
    ],
)
async def test_an_eviction_is_refused_for_an(
    pod: Any, admin: httpx.AsyncClient, body: Any, code: int, text: str
) -> None:
    answer = await admin.post(f"{POD}/eviction", json=body)

    assert answer.status_code == code
    assert text in answer.json()["message"]


async def test_a_new_budget_asks_to_come_again(registry: Registry, pod: Any, admin: httpx.AsyncClient) -> None:
    spec = PodDisruptionBudgetSpec(selector=LabelSelector(), min_available=1)
    await create(registry, BUDGETS, PodDisruptionBudget(metadata=ObjectMeta(name="w"), spec=spec))

    answer = await admin.post(f"{POD}/eviction", json=AN_EVICTION)

    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "10")
    assert answer.json()["details"]["causes"][0]["reason"] == "DisruptionBudget"


async def test_drain_finds_evictions_in_discovery(admin: httpx.AsyncClient) -> None:
    found = {each["name"]: each for each in (await admin.get("/api/v1")).json()["resources"]}

    eviction = found["pods/eviction"]
    assert {name: eviction[name] for name in ("group", "version", "kind", "verbs")} == {
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }


@pytest.mark.parametrize("method", ["GET", "PATCH", "PUT"])
async def test_ephemeral_containers_are_refused_in_a_way_that_kubectl_bears(
    pod: Any, admin: httpx.AsyncClient, method: str
) -> None:
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    answer = await admin.request(method, f"{POD}/ephemeralcontainers", content=b"{}", headers=headers)

    status = answer.json()
    assert (status["code"], status["reason"], status["details"]) == (404, "NotFound", {"kind": "pods"})
    assert "ephemeral containers are not served" in status["message"]


async def test_pods_are_not_resized(pod: Any, admin: httpx.AsyncClient) -> None:
    assert (await admin.get(f"{POD}/resize")).status_code == 404


# --- logs


def message(answer: httpx.Response) -> str:
    text: str = answer.json()["message"]
    return text


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        pytest.param("container=x", 400, "container x is not valid for pod p", id="no such container"),
        pytest.param("previous=true", 400, 'previous terminated container "main" in pod "p" not found', id="no run"),
        pytest.param("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax', id="no number"),
        pytest.param("sinceTime=noon", 400, 'parsing time "noon"', id="no moment"),
        pytest.param("", 400, 'container "main" in pod "p" is waiting to start: ContainerCreating', id="no container"),
        *(
            pytest.param(
                f"{name}={value}",
                422,
                f'PodLogOptions "p" is invalid: {name}: Invalid value: {value}: must be greater than {limit}',
                id=f"{name} of {value}",
            )
            for name, value, limit in (
                ("tailLines", -1, "or equal to 0"),
                ("limitBytes", 0, "0"),
                ("sinceSeconds", 0, "0"),
                ("sinceSeconds", -5, "0"),
            )
        ),
        pytest.param(
            "sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z",
            422,
            'PodLogOptions "p" is invalid: : Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified',
            id="two beginnings",
        ),
    ],
)
async def test_a_log_is_refused(pod: Any, admin: httpx.AsyncClient, query: str, code: int, text: str) -> None:
    answer = await admin.get(f"{POD}/log?{query}")

    assert answer.status_code == code
    assert text in message(answer)


async def test_one_of_several_containers_must_be_named(registry: Registry, admin: httpx.AsyncClient) -> None:
    first, *others = (Container(name=name, image="busybox") for name in ("i", "a", "b"))
    await create(registry, PODS, a_pod("p", init_containers=(first,), containers=tuple(others)))

    answer = await admin.get(f"{POD}/log")

    assert message(answer) == "a container name must be specified for pod p, choose one of: [i a b]"


async def test_a_pod_that_is_nowhere_has_an_empty_log(registry: Registry, admin: httpx.AsyncClient) -> None:
    await create(registry, PODS, a_pod("p"))

    answer = await admin.get(f"{POD}/log?follow=true")

    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("CreateContainerError", "CreateContainerError"),
        ("ErrImagePull", "image can't be pulled"),
        ("ImagePullBackOff", "trying and failing to pull image"),
    ],
)
async def test_a_container_that_waits_says_why(
    registry: Registry, pod: Any, admin: httpx.AsyncClient, reason: str, text: str
) -> None:
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason))
    await report(registry, container_statuses=(ContainerStatus(name="main", state=state),))

    answer = await admin.get(f"{POD}/log")

    assert message(answer) == f'container "main" in pod "p" is waiting to start: {text}'


async def test_a_container_that_never_was_is_not_available(
    registry: Registry, pod: Any, admin: httpx.AsyncClient
) -> None:
    await report(registry, phase="Failed")

    assert message(await admin.get(f"{POD}/log")) == 'container "main" in pod "p" is not available'


async def test_while_it_waits_to_run_again_both_logs_are_that_of_the_last_run(
    registry: Registry, pod: Any, admin: httpx.AsyncClient
) -> None:
    stream = Stream(pod.metadata.uid, "main", 0)
    record = b"2026-03-01T12:00:00.000000000Z stdout F it broke\n"
    await registry.store.logs.append([Append(stream, "default", "p", 0, record)])
    status = ContainerStatus(
        name="main",
        state=ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff")),
        last_state=ContainerState(terminated=ContainerStateTerminated(exit_code=1)),
    )
    await report(registry, container_statuses=(status,))

    assert (await admin.get(f"{POD}/log")).text == "it broke\n"
    assert (await admin.get(f"{POD}/log?previous=true")).text == "it broke\n"


async def test_parameters_that_nothing_depends_on_are_borne(
    registry: Registry, pod: Any, admin: httpx.AsyncClient
) -> None:
    stream = Stream(pod.metadata.uid, "main", 0)
    record = b"2026-03-01T12:00:00.000000000Z stdout F hello\n"
    await registry.store.logs.append([Append(stream, "default", "p", 0, record)])

    answer = await admin.get(f"{POD}/log?insecureSkipTLSVerifyBackend=true&stream=All&pretty=true")

    assert answer.text == "hello\n"
    assert answer.headers["Content-Type"].startswith("text/plain")


# --- bindings


async def refused(admin: httpx.AsyncClient, node: str) -> tuple[int, str]:
    answer = await admin.post(f"{POD}/binding", json={"metadata": {"name": "p"}, "target": {"name": node}})
    return answer.status_code, answer.json()["message"]


async def test_a_pod_is_bound_once(registry: Registry, pod: Any, admin: httpx.AsyncClient) -> None:
    why = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"'
    assert await refused(admin, "m") == (409, why)


async def test_a_pod_behind_a_gate_is_not_bound(registry: Registry, admin: httpx.AsyncClient) -> None:
    await create(registry, PODS, a_pod("p", scheduling_gates=(PodSchedulingGate(name="a.b/c"),)))

    code, message = await refused(admin, "n")

    assert (code, message.rpartition(": ")[2]) == (409, "pod p has non-empty .spec.schedulingGates")


async def test_a_pod_that_goes_is_not_bound(registry: Registry, admin: httpx.AsyncClient) -> None:
    await create(registry, PODS, a_pod("p", {"finalizers": ("a.b/c",)}))
    await admin.delete(POD)

    code, message = await refused(admin, "n")

    assert (code, message.rpartition(": ")[2]) == (409, "pod p is being deleted, cannot be assigned to a host")


async def test_a_pod_is_not_bound_to_what_can_be_no_node(registry: Registry, admin: httpx.AsyncClient) -> None:
    await create(registry, PODS, a_pod("p"))

    code, message = await refused(admin, " ")

    assert code == 422
    assert message.startswith('Binding "p" is invalid: target.name: Invalid value: " ": a lowercase RFC 1123 subdomain')
