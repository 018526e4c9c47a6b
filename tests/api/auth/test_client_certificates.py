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
from app.api.auth.authenticator import NODE_PREFIX, NODES, Authenticator, User
from app.api.auth.tokens import issue
from app.api.streams import revocation
from app.controllers.auth.certificate_signing import folder_signer
from app.plans.certificate_signing import Signing
from app.registry.verbs.objects import Registry
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
    authenticator: Authenticator

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
        yield Site(f"https://127.0.0.1:{port}", tls, clock, app.state.authenticator)


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


async def node_token(registry: Registry, *nodes: str) -> dict[str, str]:
    user = User(name=f"{NODE_PREFIX}{nodes[0]}", groups=(NODES,), nodes=nodes)
    return {"Authorization": f"Bearer {await issue(registry, user)}"}


async def test_a_node_needs_its_token_besides_its_certificate(site: Site, registry: Registry) -> None:
    own, other = await node_token(registry, "n1"), await node_token(registry, "n2")
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
    async with site.client(f"{NODE_PREFIX}n1", NODES) as agent:
        alone = await agent.get(lease)
        assert (alone.status_code, alone.json()["message"]) == (
            403,
            'User "system:node:n1" must send its token besides its certificate',
        )
        assert (await agent.get(lease, headers=own)).status_code == 404
        assert (await agent.get(lease, headers=other)).status_code == 403


async def test_where_it_is_demanded_a_node_shows_its_own_certificate_that_has_not_ended(
    site: Site, registry: Registry, admin: httpx.AsyncClient
) -> None:
    site.authenticator.requires_node_certificates = True
    own, other = await node_token(registry, "n1"), await node_token(registry, "n2")
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}"
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    paths = (
        lease.format("n1"),
        "/apis/agents.jobplane.dev/v1/credential",
        "/apis/agents.jobplane.dev/v1/nodes/n1/calls",
    )

    async def answers(client: httpx.AsyncClient, headers: dict[str, str]) -> list[tuple[int, str]]:
        found = [await client.get(path, headers=headers) for path in paths[:2]]
        return [(each.status_code, each.json().get("reason", "")) for each in found]

    required = (403, "ClientCertificateRequired")
    async with site.client("ada") as ada, site.client(f"{NODE_PREFIX}n1", NODES) as agent:
        assert await answers(ada, own) == [required] * 2
        assert await answers(agent, other) == [required] * 2
        assert await answers(agent, own) == [(404, "NotFound"), (200, "")]
        assert (await agent.get(paths[2], headers=other)).status_code == 403
        assert (await ada.get(f"{requests}/node-csr-n1-abc", headers=own)).status_code == 404  # it may ask for one
        assert (await ada.get(f"{requests}/node-csr-n2-abc", headers=own)).status_code == 403
        assert (await ada.get(requests, headers=own)).status_code == 403
        headers = {"Authorization": admin.headers["Authorization"]}
        assert (await ada.get(PODS, headers=headers)).status_code == 200  # of others none is demanded
        site.clock.move(hours=1)
        assert await answers(agent, own) == [required] * 2
