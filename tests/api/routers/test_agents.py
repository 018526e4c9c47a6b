"""Posts of agents over HTTP: whatever the bytes, a Status below 500; and only of their own pods."""

import dataclasses
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from app.api.app import create_app
from app.api.auth.authenticator import NODES, User
from app.api.auth.tokens import issue
from app.client.protocol import StatusReport
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod import KIND as PODS
from app.registry.agents import status_reports
from app.registry.verbs.objects import Registry
from app.settings import Settings
from tests.conftest import NO_TLS
from tests.registry.examples import a_pod, create, named

BASE = "/apis/agents.jobplane.dev/v1/nodes"


@pytest.mark.parametrize("action", ["statuses", "logs", "usage", "removed-volumes"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="an array"),
        pytest.param(b'{"items": [{"namespace": "a\x8e", "node": "a\x8e"}]}', id="no UTF-8"),
        pytest.param(b'{"items": [{"name": "\\u0000", "node": "\\u0000"}]}', id="with a NUL"),
        pytest.param(b'{"items": [{"name": "%b", "node": "%b"}]}' % (b"n" * 254, b"n" * 254), id="an endless name"),
        pytest.param(b'{"more": ' + b"[" * 5_000, id="too deep"),
        pytest.param(b'{"items": [{"name": 7, "node": 7}]}', id="a number for a name"),
    ],
)
async def test_what_no_agent_sends_is_a_bad_request(registry: Registry, url: str, action: str, body: bytes) -> None:
    token = await issue(registry, User(name="system:node:n", groups=(NODES,), nodes=("n",)))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS) as agent:
        answer = await agent.post(f"{BASE}/n/{action}", content=body)

    said = answer.json()
    assert (answer.status_code, said["kind"], said["reason"]) == (400, "Status", "BadRequest"), said


@pytest.mark.parametrize(
    ("node", "forged", "code"),
    [
        pytest.param("n", {}, 200, id="its pod"),
        pytest.param("-", {}, 200, id="its pod, by the path of all its nodes"),
        pytest.param("n", {"namespace": "theirs", "name": "q"}, 403, id="a pod of another namespace"),
        pytest.param("n", {"namespace": "theirs"}, 403, id="a pod that is not there"),
        pytest.param("n", {"uid": "b0b"}, 403, id="a pod that was there before"),
        pytest.param("n", {"container": "y1"}, 403, id="a container that the pod has not"),
        pytest.param("n", {"attempt": -1}, 403, id="a run that cannot be"),
        pytest.param("n", {"name": "o"}, 403, id="two pods at once"),
        pytest.param("m", {}, 403, id="a pod of the other of its nodes"),
    ],
)
async def test_a_node_ships_logs_under_the_names_of_its_own_pods_only(
    registry: Registry, url: str, node: str, forged: dict[str, Any], code: int
) -> None:
    await create(registry, NAMESPACES, named(Namespace(), name="theirs"))
    await create(registry, PODS, named(a_pod("q", node_name="elsewhere"), namespace="theirs"))
    own, _ = [await create(registry, PODS, a_pod(name, node_name="n")) for name in ("p", "o")]
    piece = {"uid": own.metadata.uid, "namespace": "default", "name": "p", "container": "main", "data": "aGkK"}
    token = await issue(registry, User(name="system:node:n", groups=(NODES,), nodes=("n", "m")))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS) as agent:
        answer = await agent.post(f"{BASE}/{node}/logs", json={"items": [piece, piece | forged]})

    item = answer.json()["items"][-1]
    kept = await registry.store.pool.fetch("select namespace, pod, container from log_streams")
    assert item["code"] == code
    assert [tuple(each) for each in kept] == ([] if node == "m" else [("default", "p", "main")])


async def test_a_report_is_about_the_pod_that_has_all_of_its_names(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(Namespace(), name="theirs"))
    await create(registry, PODS, named(a_pod("q", node_name="n"), namespace="theirs"))
    own = await create(registry, PODS, a_pod("p", node_name="n"))
    said = StatusReport(namespace="default", name="p", uid=own.metadata.uid)

    forged = [replace(said, namespace="theirs", name="q"), replace(said, namespace="theirs"), replace(said, uid="b0b")]
    outcomes = [(await status_reports.accept(registry, PODS, [each], "n".__eq__))[0].code for each in forged]

    assert outcomes == [404, 404, 404]


@pytest.mark.parametrize(
    ("label", "default", "expected", "is_default"),
    [
        pytest.param(None, "", "privileged", True, id="no label"),
        pytest.param(None, "privileged", "privileged", False, id="no label, and a setting"),
        pytest.param(None, "baseline", "baseline", False, id="no label, and a stricter setting"),
        pytest.param("privileged", "restricted", "privileged", False, id="a label against the setting"),
        pytest.param("restricted", "", "restricted", False, id="a label"),
    ],
)
async def test_an_agent_is_told_the_level_of_a_namespace(
    registry: Registry, label: str | None, default: Any, expected: str, is_default: bool
) -> None:
    labels = {} if label is None else {"pod-security.kubernetes.io/enforce": label}
    made = await create(registry, NAMESPACES, named(Namespace(), name="team", labels=labels))
    token = await issue(registry, User(name="system:node:n", groups=(NODES,), nodes=("n",)))
    headers = {"Authorization": f"Bearer {token}"}
    policy = Settings(pod_security=default).pod_security_configuration
    app = create_app(dataclasses.replace(registry, pod_security=policy))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", headers=headers) as agent:
        answer = await agent.get(f"{BASE}/n/namespaces/team")
        missing = await agent.get(f"{BASE}/-/namespaces/other")
        others = await agent.get(f"{BASE}/m/namespaces/team")

    told = {"uid": made.metadata.uid, "level": expected, "isDefault": is_default, "services": False}
    assert answer.json() == told
    assert (missing.status_code, missing.json()["uid"]) == (200, "")
    assert others.status_code == 403
