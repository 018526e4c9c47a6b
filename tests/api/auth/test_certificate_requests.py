"""CertificateSigningRequests over HTTP: who asks is the server's to say, and approvals and certificates need their own rights."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.registry.verbs.objects import Registry
from tests.api.people import People, bind, cluster_role, meeting, rule
from tests.plans.test_certificate_signing import pem

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"


@pytest.fixture
async def people(registry: Registry, url: str, admin: httpx.AsyncClient) -> AsyncIterator[People]:
    """And roles: one may write requests and all their parts, others may approve or sign for one signer."""
    every = "certificatesigningrequests,certificatesigningrequests/approval,certificatesigningrequests/status"
    await cluster_role(admin, "writes", rule("*", every, "certificates.k8s.io"))
    await cluster_role(admin, "approves", rule("approve", "signers", "certificates.k8s.io", resourceNames=[CLIENT]))
    await cluster_role(
        admin, "signs", rule("sign", "signers", "certificates.k8s.io", resourceNames=["kubernetes.io/*"])
    )
    async with meeting(registry, url) as found:
        yield found


def body(name: str = "ada", request: bytes | None = None, **spec: Any) -> dict[str, Any]:
    usual = {"signerName": CLIENT, "usages": ["client auth"]}
    return {
        "metadata": {"name": name},
        "spec": usual | {"request": base64.b64encode(request or pem()).decode()} | spec,
    }


def decided(csr: dict[str, Any], *types: str) -> dict[str, Any]:
    found = [{"type": each, "status": "True", "reason": "Tests"} for each in types]
    return csr | {"status": csr["status"] | {"conditions": found}}


async def test_the_server_says_who_asks_however_the_request_is_made(people: People, admin: httpx.AsyncClient) -> None:
    await bind(admin, "writes", ["User:ada"])
    ada = await people.user("ada", "vision")
    lie = body(username="admin", groups=["system:masters"], uid="1") | {
        "status": {"conditions": [{"type": "Approved", "status": "True"}]}
    }
    made = (await ada.post(PATH, json=lie)).json()
    assert (made["spec"]["username"], made["spec"]["groups"]) == ("ada", ["vision", "system:authenticated"])
    assert "conditions" not in made["status"]

    applied = lie | {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "b"},
    }
    del applied["status"]
    headers = {"content-type": "application/apply-patch+yaml"}
    found = (await ada.patch(f"{PATH}/b", params={"fieldManager": "t"}, headers=headers, json=applied)).json()
    assert (found["spec"]["username"], found["spec"]["groups"]) == ("ada", ["vision", "system:authenticated"])


async def test_an_approval_needs_the_verb_on_the_signer(people: People, admin: httpx.AsyncClient) -> None:
    await bind(admin, "writes", ["User:ada", "User:boss"], name="writes")
    await bind(admin, "approves", ["User:boss"], name="approves")
    ada, boss = await people.user("ada"), await people.user("boss")
    made = (await ada.post(PATH, json=body())).json()

    refused = await ada.put(f"{PATH}/ada/approval", json=decided(made, "Approved"))
    assert (refused.status_code, refused.json()["message"]) == (
        403,
        f'certificatesigningrequests.certificates.k8s.io "ada" is forbidden: user not permitted to approve requests with '
        f'signerName "{CLIENT}"',
    )
    patch = {"status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    headers = {"content-type": "application/merge-patch+json"}
    for part in ("approval", "status"):
        assert (await ada.patch(f"{PATH}/ada/{part}", json=patch, headers=headers)).status_code == 403

    sneaky = decided(made, "Approved")
    sneaky["status"]["certificate"] = base64.b64encode(b"x").decode()
    approved = await boss.put(f"{PATH}/ada/approval", json=sneaky)
    assert approved.status_code == 200
    assert [each["type"] for each in approved.json()["status"]["conditions"]] == ["Approved"]
    assert "certificate" not in approved.json()["status"]
    assert approved.json()["status"]["conditions"][0]["lastUpdateTime"]  # from which on the request is kept for an hour
    assert (await boss.get(f"{PATH}/ada/approval")).status_code == 200

    taken_back = await boss.put(f"{PATH}/ada/approval", json=decided(approved.json()))
    assert taken_back.status_code == 422
    both = await boss.put(f"{PATH}/ada/approval", json=decided(approved.json(), "Approved", "Denied"))
    assert both.status_code == 422


async def test_a_certificate_needs_the_verb_sign_and_comes_once(people: People, admin: httpx.AsyncClient) -> None:
    await bind(admin, "writes", ["User:ada", "User:signer"], name="writes")
    await bind(admin, "signs", ["User:signer"], name="signs")
    ada, signer = await people.user("ada"), await people.user("signer")
    made = (await ada.post(PATH, json=body())).json()
    certificate = base64.b64encode(open_certificate()).decode()
    signed = made | {"status": {"certificate": certificate}}
    assert (await ada.put(f"{PATH}/ada/status", json=signed)).status_code == 403
    assert (await signer.put(f"{PATH}/ada/status", json=made | {"status": {"certificate": "eA=="}})).status_code == 422
    answer = await signer.put(f"{PATH}/ada/status", json=signed)
    assert answer.json()["status"]["certificate"] == certificate
    again = await signer.put(f"{PATH}/ada/status", json=answer.json() | {"status": {"certificate": ""}})
    assert again.status_code == 422


def open_certificate() -> bytes:
    import tempfile
    from pathlib import Path

    from app.api.auth import certificates

    return certificates.ensure(Path(tempfile.mkdtemp()), []).ca.read_bytes()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (body(request=pem("eve", "system:masters")), 403),
        (body(request=b"nonsense"), 422),
        (body(usages=[]), 422),
        (body(usages=["magic"]), 422),
        (body(signerName="nonsense"), 422),
        (body(expirationSeconds=599), 422),
        (body(signerName="example.com/own", usages=["server auth"]), 201),
    ],
)
async def test_requests_are_validated(given: dict[str, Any], code: int, admin: httpx.AsyncClient) -> None:
    answer = await admin.post(PATH, json=given)
    assert answer.status_code == code, answer.text


async def test_a_spec_never_changes(admin: httpx.AsyncClient) -> None:
    made = (await admin.post(PATH, json=body())).json()
    changed = (
        await admin.put(f"{PATH}/ada", json=made | {"spec": made["spec"] | {"username": "eve", "usages": ["any"]}})
    ).json()
    assert changed["spec"] == made["spec"]
