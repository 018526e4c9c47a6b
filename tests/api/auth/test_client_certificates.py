"""Client certificates over real TLS: CN and O are the user, their end counts, and the server's own certificate is none."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.api.app import create_app
from app.api.auth import certificates
from app.api.streams import revocation
from app.controllers.certificate_signing import folder_signer
from app.plans.certificate_signing import Signing
from app.registry.objects import Registry
from tests.api.people import bind
from tests.api.servers import listening
from tests.conftest import Clock
from tests.plans.test_certificate_signing import pem

PODS = "/api/v1/namespaces/default/pods"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
HOUR = timedelta(hours=1)


@dataclass
class Site:
    """An API with TLS whose clock is passed in, and its authority."""

    url: str
    tls: Path
    clock: Clock

    def client(
        self, common_name: str = "ada", *groups: str, authority: Path | None = None, **how: Any
    ) -> httpx.AsyncClient:
        """Whoever has a certificate that is good for an hour."""
        key = ec.generate_private_key(ec.SECP256R1())
        request = x509.load_pem_x509_csr(pem(common_name, *groups, key=key))
        certificate = folder_signer(authority or self.tls)(Signing(request, HOUR), self.clock())
        assert certificate
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file = self.tls / f"{common_name}.pem"
        file.write_bytes(certificate + private)
        return self.shows(file, **how)

    def shows(self, file: Path, **how: Any) -> httpx.AsyncClient:
        context = ssl.create_default_context(cafile=str(self.tls / "ca.crt"))
        context.load_cert_chain(file)
        return httpx.AsyncClient(base_url=self.url, verify=context, trust_env=False, timeout=60, **how)


@pytest.fixture
async def site(registry: Registry, clock: Clock, tmp_path: Path) -> AsyncIterator[Site]:
    """TLS looks at the real time, and the API at the clock: they begin as one."""
    clock.now = datetime.now(UTC)
    tls = tmp_path / "tls"
    made = certificates.ensure(tls, ["127.0.0.1"])
    app = create_app(registry, authority=made.ca.read_text)
    files: dict[str, Any] = {"ssl_certfile": str(made.cert), "ssl_keyfile": str(made.key), "ssl_ca_certs": str(made.ca)}
    async with listening(app, **files, ssl_cert_reqs=ssl.CERT_OPTIONAL) as port:
        yield Site(f"https://127.0.0.1:{port}", tls, clock)


async def who(client: httpx.AsyncClient, **how: Any) -> Any:
    answer = await client.post(REVIEWS, json={}, **how)
    return answer.json()["status"]["userInfo"] if answer.is_success else answer.status_code


async def test_the_subject_is_the_user_and_roles_decide(site: Site, admin: httpx.AsyncClient) -> None:
    async with site.client("ada", "vision", "x") as ada, site.client("bob") as bob:
        found = await who(ada)
        assert (found["username"], found["groups"]) == ("ada", ["vision", "x", "system:authenticated"])
        assert found["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
        assert (await ada.get(PODS)).status_code == 403
        await bind(admin, "view", ["Group:vision"], "default")
        assert [(await each.get(PODS)).status_code for each in (ada, bob)] == [200, 403]


async def test_a_token_counts_before_a_certificate_and_without_either_there_is_nobody(
    site: Site, admin: httpx.AsyncClient
) -> None:
    async with site.client("ada") as ada:
        assert (await who(ada, headers={"Authorization": admin.headers["Authorization"]}))["username"] == "admin"
        assert await who(ada, headers={"Authorization": "Bearer wrong"}) == 401
    plain = ssl.create_default_context(cafile=str(site.tls / "ca.crt"))
    async with httpx.AsyncClient(base_url=site.url, verify=plain, trust_env=False, timeout=60) as nobody:
        assert await who(nobody) == 401


async def test_a_certificate_ends_on_a_connection_that_goes_on(site: Site) -> None:
    async with site.client("ada") as ada:
        assert (await who(ada))["username"] == "ada"
        site.clock.move(hours=1)
        assert await who(ada) == 401


async def test_a_watch_ends_with_its_certificate(
    site: Site, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 0.05)
    await bind(admin, "view", ["User:ada"], "default")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    watching = {"watch": "1", "timeoutSeconds": "300"}
    async with asyncio.timeout(60), site.client("ada") as ada, ada.stream("GET", PODS, params=watching) as answer:
        lines = answer.aiter_lines()
        await admin.post(PODS, json=pod)
        assert json.loads(await anext(lines))["type"] == "ADDED"
        site.clock.move(hours=1)
        last = [json.loads(line) async for line in lines][-1]
    assert (last["type"], last["object"]["code"]) == ("ERROR", 401)


async def test_a_node_is_itself_by_its_certificate(site: Site) -> None:
    async with site.client("system:node:n1", "system:nodes") as node:
        assert (await node.get("/api/v1/nodes/n1")).status_code == 404
        assert (await node.get("/api/v1/nodes/n2")).status_code == 403


async def test_certificates_of_others_and_for_other_uses_are_refused(site: Site, tmp_path: Path) -> None:
    other = tmp_path / "other"
    certificates.ensure(other, [])
    for client in (site.client("eve", authority=other), site.shows(site.tls / "server.pem")):
        async with client:
            with pytest.raises(httpx.TransportError):  # the handshake fails
                await who(client)


async def test_a_certificate_of_an_authority_that_was_replaced_is_refused(site: Site) -> None:
    async with site.client("ada") as ada:
        certificates.begin_rotation(site.tls, now=datetime.now(UTC))
        assert (await who(ada))["username"] == "ada"
    async with site.client("bob") as bob:
        certificates.finish_rotation(site.tls)  # TLS of this process still trusts the old one
        assert await who(bob) == 401
