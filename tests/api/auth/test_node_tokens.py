"""Agents ask for tokens of their pods' accounts, and for no others."""

from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import NODE_PREFIX, NODES, User
from app.api.auth.tokens import issue
from app.registry.verbs.objects import Registry
from tests.api.conftest import NO_TLS

TOKEN = "/api/v1/namespaces/default/serviceaccounts/{}/token"


async def made(client: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def a_pod(admin: httpx.AsyncClient, name: str, node: str, **spec: Any) -> str:
    pod = {"nodeName": node, "containers": [{"name": "main", "image": "i"}], **spec}
    return (await made(admin, "/api/v1/namespaces/default/pods", metadata={"name": name}, spec=pod))["metadata"]["uid"]


def vault() -> dict[str, Any]:
    source = {"serviceAccountToken": {"path": "t", "audience": "vault"}}
    return {"volumes": [{"name": "v", "projected": {"sources": [source]}}]}


async def asked(registry: Registry, url: str, account: str, **spec: Any) -> httpx.Response:
    """As the agent of node n1."""
    token = await issue(registry, User(name=f"{NODE_PREFIX}n1", groups=(NODES,)))
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS) as agent:
        return await agent.post(TOKEN.format(account), json={"spec": spec})


def bound(name: str, uid: str) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}


@pytest.mark.parametrize("audiences", [[], ["vault"]], ids=["of this API", "of its volume"])
async def test_an_agent_gets_a_token_for_its_pod(
    registry: Registry, url: str, admin: httpx.AsyncClient, audiences: list[str]
) -> None:
    uid = await a_pod(admin, "mine", "n1", **vault())
    answer = await asked(registry, url, "default", boundObjectRef=bound("mine", uid), audiences=audiences)

    assert answer.status_code == 201, answer.text
    assert answer.json()["status"]["token"]


@pytest.mark.parametrize(
    ("pod", "spec", "why"),
    [
        pytest.param("", {}, "node requested token not bound to a pod", id="not for a pod"),
        pytest.param(
            "theirs",
            {},
            "node requested token bound to a pod scheduled on a different node",
            id="for another node's pod",
        ),
        pytest.param(
            "absent",
            {},
            "node requested token bound to a pod scheduled on a different node",
            id="for a pod that is not there",
        ),
        pytest.param(
            "mine", {"audiences": ["bank"]}, 'audience "bank" not found in pod spec volume', id="for somebody else"
        ),
    ],
)
async def test_an_agent_gets_no_token(
    registry: Registry, url: str, admin: httpx.AsyncClient, pod: str, spec: dict, why: str
) -> None:
    uids = {"mine": await a_pod(admin, "mine", "n1"), "theirs": await a_pod(admin, "theirs", "n2"), "absent": "u"}
    reference = {"boundObjectRef": bound(pod, uids[pod])} if pod else {}
    answer = await asked(registry, url, "default", **reference, **spec)

    assert (answer.status_code, answer.json()["reason"]) == (403, "Forbidden")
    assert answer.json()["message"].endswith(why)


async def test_an_agent_gets_no_token_of_another_account_or_by_a_name_alone(
    registry: Registry, url: str, admin: httpx.AsyncClient
) -> None:
    uid = await a_pod(admin, "mine", "n1")
    await made(admin, "/api/v1/namespaces/default/serviceaccounts", metadata={"name": "strong"})

    assert (await asked(registry, url, "strong", boundObjectRef=bound("mine", uid))).status_code in (400, 403)
    unnamed = await asked(registry, url, "default", boundObjectRef=bound("mine", ""))
    assert (unnamed.status_code, unnamed.json()["message"].split(": ")[-1]) == (
        403,
        "node requested token with a pod binding without a uid",
    )


async def test_a_pod_that_asks_finds_its_token_in_a_volume(admin: httpx.AsyncClient) -> None:
    await a_pod(admin, "asks", "n1", automountServiceAccountToken=True)
    spec = (await admin.get("/api/v1/namespaces/default/pods/asks")).json()["spec"]
    (volume,) = spec["volumes"]

    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    assert spec["containers"][0]["volumeMounts"] == [
        {
            "name": volume["name"],
            "readOnly": True,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        }
    ]
