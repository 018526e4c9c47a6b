"""metrics.k8s.io: what agents have said within the last minute, in the form of metrics-server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import NODES, User
from app.api.auth.tokens import issue
from app.registry.verbs.objects import Registry
from tests.conftest import NO_TLS, Clock

METRICS = "/apis/metrics.k8s.io/v1beta1"
AGENTS = "/apis/agents.jobplane.dev/v1/nodes"
PODS = f"{METRICS}/namespaces/default/pods"
MAIN = {"cpu": 12_345, "memory": 123 << 10}


class Cluster:
    """Nodes with an agent each."""

    def __init__(self, registry: Registry, admin: httpx.AsyncClient, url: str, stack: AsyncExitStack) -> None:
        self._registry, self._admin, self._url, self._stack = registry, admin, url, stack
        self.agents: dict[str, httpx.AsyncClient] = {}

    async def node(self, name: str, labels: dict[str, str] | None = None) -> None:
        token = await issue(self._registry, User(name=f"system:node:{name}", groups=(NODES,), nodes=(name,)))
        client = httpx.AsyncClient(base_url=self._url, headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS)
        self.agents[name] = await self._stack.enter_async_context(client)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}}
        assert (await self._admin.post("/api/v1/nodes", json=node)).status_code == 201

    async def pod(self, name: str, node: str, phase: str = "Running", namespace: str = "default") -> str:
        """A pod that runs on a node; its UID."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        spec = {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}
        created = await self._admin.post(pods, json={"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
        assert created.status_code == 201, created.text
        uid: str = created.json()["metadata"]["uid"]
        binding = {"target": {"kind": "Node", "name": node}}
        assert (await self._admin.post(f"{pods}/{name}/binding", json=binding)).status_code == 201
        report = {"namespace": namespace, "name": name, "uid": uid, "status": {"phase": phase}}
        told = await self.agents[node].post(f"{AGENTS}/{node}/statuses", json={"items": [report]})
        assert told.json()["items"][0]["code"] == 200, told.text
        return uid

    async def says(self, by: str, pods: dict[str, Any], node: str = "", **more: Any) -> httpx.Response:
        usage = {"node": node or by, "window": 15, "used": {"cpu": 2_000_000_000, "memory": 3 << 30}, "pods": pods}
        return await self.agents[by].post(f"{AGENTS}/{by}/usage", json={"items": [usage | more]})


@pytest.fixture
async def cluster(registry: Registry, admin: httpx.AsyncClient, url: str) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        made = Cluster(registry, admin, url, stack)
        await made.node("n1", {"zone": "a"})
        await made.node("n2", {"zone": "b"})
        yield made


async def names(admin: httpx.AsyncClient, path: str, **params: str) -> list[str]:
    answer = await admin.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return [item["metadata"]["name"] for item in answer.json()["items"]]


async def test_a_node_s_metrics_look_like_metrics_server_s(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    await cluster.says("n1", {}, window=15.0251)
    found = (await admin.get(f"{METRICS}/nodes/n1")).json()

    assert found.pop("metadata") == {"name": "n1", "creationTimestamp": found["timestamp"], "labels": {"zone": "a"}}
    assert found == {
        "kind": "NodeMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "timestamp": found["timestamp"],
        "window": "15.025s",
        "usage": {"cpu": "2", "memory": "3Gi"},
    }


async def test_a_pod_s_metrics_look_like_metrics_server_s(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    uid = await cluster.pod("p", "n1")
    await cluster.says("n1", {uid: {"side": {"cpu": 0, "memory": 4096}, "main": MAIN}})
    found = (await admin.get(f"{PODS}/p")).json()

    assert (found["kind"], found["window"]) == ("PodMetrics", "15s")
    assert found["metadata"]["namespace"] == "default"
    assert found["metadata"]["labels"] == {"app": "p"}
    assert found["containers"] == [
        {"name": "main", "usage": {"cpu": "12345n", "memory": "123Ki"}},
        {"name": "side", "usage": {"cpu": "0", "memory": "4Ki"}},
    ]


async def test_lists_are_lists_of_metrics(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    await cluster.says("n1", {})
    found = (await admin.get(f"{METRICS}/nodes")).json()

    assert (found["kind"], found["apiVersion"], found["metadata"]) == ("NodeMetricsList", "metrics.k8s.io/v1beta1", {})
    assert [item["metadata"]["name"] for item in found["items"]] == ["n1"]
    assert "kind" not in found["items"][0]


async def test_pods_are_selected(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    uids = [await cluster.pod(name, node) for name, node in (("p", "n1"), ("q", "n1"), ("r", "n2"))]
    uids.append(await cluster.pod("s", "n2", namespace="kube-public"))
    await cluster.says("n1", {uid: {"main": MAIN} for uid in uids[:2]})
    await cluster.says("n2", {uid: {"main": MAIN} for uid in uids[2:]})

    assert await names(admin, PODS) == ["p", "q", "r"]
    assert await names(admin, f"{METRICS}/pods") == ["p", "q", "r", "s"]
    assert await names(admin, PODS, labelSelector="app in (p, r)") == ["p", "r"]
    assert await names(admin, PODS, fieldSelector="metadata.name=q") == ["q"]
    assert await names(admin, f"{METRICS}/pods", fieldSelector="metadata.namespace!=default") == ["s"]
    assert await names(admin, f"{METRICS}/nodes", labelSelector="zone=b") == ["n2"]


async def test_a_word_is_stale_after_a_minute(cluster: Cluster, admin: httpx.AsyncClient, clock: Clock) -> None:
    uid = await cluster.pod("p", "n1")
    await cluster.says("n1", {uid: {"main": MAIN}})
    clock.move(seconds=60)
    assert await names(admin, PODS) == ["p"]
    clock.move(seconds=1)

    assert await names(admin, PODS) == await names(admin, f"{METRICS}/nodes") == []
    answer = await admin.get(f"{METRICS}/nodes/n1")
    assert (answer.status_code, answer.json()["message"]) == (404, 'nodemetrics.metrics.k8s.io "n1" not found')


async def test_the_newest_word_counts(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    await cluster.says("n1", {})
    await cluster.says("n1", {}, used={"cpu": 250_000_000, "memory": 1 << 20})

    assert (await admin.get(f"{METRICS}/nodes/n1")).json()["usage"] == {"cpu": "250m", "memory": "1Mi"}


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param(f"{METRICS}/nodes/x", 'nodes "x" not found', id="no such node"),
        pytest.param(f"{PODS}/x", 'pods "x" not found', id="no such pod"),
        pytest.param(f"{PODS}/p", 'podmetrics.metrics.k8s.io "default/p" not found', id="nobody spoke of it"),
        pytest.param(f"{METRICS}/pods/p", "the server could not find the requested resource", id="no namespace"),
    ],
)
async def test_what_is_not_there_is_not_found(
    cluster: Cluster, admin: httpx.AsyncClient, path: str, message: str
) -> None:
    await cluster.pod("p", "n1")
    answer = await admin.get(path)

    assert (answer.status_code, answer.json()["reason"], answer.json()["message"]) == (404, "NotFound", message)


async def test_pods_that_do_not_run_are_left_out(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    uid = await cluster.pod("p", "n1", phase="Succeeded")
    await cluster.says("n1", {uid: {"main": MAIN}})

    assert await names(admin, PODS) == []


async def test_an_agent_speaks_for_its_own_nodes_only(cluster: Cluster, admin: httpx.AsyncClient) -> None:
    answer = await cluster.says("n2", {}, node="n1")

    assert answer.json() == {"accepted": 0}
    assert await names(admin, f"{METRICS}/nodes") == []
    assert (await cluster.agents["n2"].post(f"{AGENTS}/n1/usage", json={"items": []})).status_code == 403


async def test_what_an_agent_says_of_another_s_pods_counts_for_nothing(
    cluster: Cluster, admin: httpx.AsyncClient
) -> None:
    uid = await cluster.pod("p", "n1")
    await cluster.says("n2", {uid: {"main": MAIN}})

    assert await names(admin, PODS) == []


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"window": 0}, id="no time"),
        pytest.param({"window": 10**9}, id="ages"),
        pytest.param({"used": {"cpu": -1, "memory": 0}}, id="less than nothing"),
        pytest.param({"used": {"cpu": 2**70, "memory": 0}}, id="more than is counted"),
        pytest.param({"node": "a\0"}, id="a NUL"),
    ],
)
async def test_nonsense_is_refused(cluster: Cluster, more: dict[str, Any]) -> None:
    assert (await cluster.says("n1", {}, **more)).status_code == 400


@pytest.mark.parametrize(
    ("params", "code"),
    [
        pytest.param({"watch": "true"}, 405, id="watches"),
        pytest.param({"fieldSelector": "spec.nodeName=n1"}, 400, id="other fields"),
        pytest.param({"labelSelector": "a=b=c"}, 400, id="bad selectors"),
    ],
)
async def test_metrics_do_not_know(admin: httpx.AsyncClient, params: dict[str, str], code: int) -> None:
    assert (await admin.get(PODS, params=params)).status_code == code


async def test_metrics_cannot_be_written(admin: httpx.AsyncClient) -> None:
    assert (await admin.post(PODS, json={})).status_code == 405
    assert (await admin.delete(f"{PODS}/p")).status_code == 405


async def test_agents_may_not_read_metrics(cluster: Cluster) -> None:
    answer = await cluster.agents["n1"].get(f"{METRICS}/nodes")

    assert (answer.status_code, answer.json()["reason"]) == (403, "Forbidden")
