"""Join tokens, the credentials that nodes get for them, and all that such a credential is good for."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agent.config import AgentConfig
from app.agent.node.join import JoinError, has_joined, join
from app.api.app import create_app
from app.api.auth import certificates
from app.api.auth.authenticator import User
from app.api.auth.tokens import issue
from app.client.ca_pin import MismatchError, authority, hash_of
from app.registry.verbs.objects import Registry
from tests.api.conftest import serving
from tests.api.servers import listening
from tests.conftest import NO_TLS

BASE = "/apis/agents.jobplane.dev/v1"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def join_token(admin: httpx.AsyncClient, ttl: int = 3600, uses: int = 1, **more: int) -> str:
    answer = await admin.post(f"{BASE}/jointokens", json={"ttlSeconds": ttl, "uses": uses, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


async def exchange(url: str, token: str, node: str, secret: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        body = {"node": node, "digest": sha256(secret.encode()).hexdigest()}
        return await client.post(f"{BASE}/join", json=body, headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
async def node(url: str, admin: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """With the credential of the node n1, which is registered."""
    assert (await exchange(url, await join_token(admin), "n1", "mine")).status_code == 201
    headers = {"Authorization": "Bearer mine"}
    async with httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS) as client:
        assert (await client.post("/api/v1/nodes", json={"metadata": {"name": "n1"}})).status_code == 201
        yield client


async def test_a_token_is_made_listed_and_revoked(url: str, registry: Registry, admin: httpx.AsyncClient) -> None:
    token = await join_token(admin)
    name = token.partition(".")[0]
    listed = (await admin.get(f"{BASE}/jointokens")).json()["items"]
    assert [each["metadata"]["name"] for each in listed] == [name]
    assert token not in str(listed)
    assert token not in str(await registry.store.pool.fetch("select * from tokens"))

    assert (await admin.delete(f"{BASE}/jointokens/{name}")).status_code == 200

    assert (await admin.get(f"{BASE}/jointokens")).json()["items"] == []
    assert (await admin.delete(f"{BASE}/jointokens/{name}")).status_code == 404
    assert (await exchange(url, token, "n1", "s")).status_code == 401


async def test_as_many_nodes_join_by_one_token_as_it_has_uses_until_it_ends(
    url: str, registry: Registry, admin: httpx.AsyncClient
) -> None:
    token = await join_token(admin, ttl=3600, uses=2)
    answers = [await exchange(url, token, f"n{each}", f"s{each}") for each in range(3)]
    assert [each.status_code for each in answers] == [201, 201, 403]
    assert "jobplane token create" in answers[2].json()["message"]
    # A machine that has not heard the answer asks again, at no cost.
    assert (await exchange(url, token, "n0", "s0")).status_code == 201
    other = await join_token(admin, ttl=3600, uses=2)

    registry.clock.move(seconds=3601)
    async with serving(registry) as later:
        assert (await exchange(later, other, "n9", "s9")).status_code == 401


async def test_of_many_that_come_at_once_no_more_join_than_a_token_has_uses(
    url: str, admin: httpx.AsyncClient, registry: Registry
) -> None:
    token = await join_token(admin, uses=2)
    answers = await asyncio.gather(*(exchange(url, token, f"n{each}", f"s{each}") for each in range(8)))

    assert sorted(each.status_code for each in answers) == [201] * 2 + [403] * 6
    count = "select count(*) from tokens where username like 'system:node:n%'"
    assert await registry.store.pool.fetchval(count) == 2


async def test_a_join_token_is_good_for_one_node_unless_told_otherwise(url: str, admin: httpx.AsyncClient) -> None:
    token = (await admin.post(f"{BASE}/jointokens", json={})).json()["token"]

    assert [(await exchange(url, token, each, each)).status_code for each in ("n1", "n2")] == [201, 403]


async def test_a_refused_machine_costs_no_use(url: str, admin: httpx.AsyncClient, node: httpx.AsyncClient) -> None:
    token = await join_token(admin)

    assert [(await exchange(url, token, each, "s")).status_code for each in ("n1", "n2")] == [409, 201]


async def test_a_secret_that_is_another_tokens_costs_no_use(url: str, admin: httpx.AsyncClient) -> None:
    first, second = await join_token(admin), await join_token(admin)
    assert (await exchange(url, first, "n1", "same")).status_code == 201
    assert [(await exchange(url, second, "n2", each)).status_code for each in ("same", "other")] == [409, 201]


async def test_a_nodes_credential_ends_if_the_join_token_says_so(
    url: str, registry: Registry, admin: httpx.AsyncClient
) -> None:
    token = await join_token(admin, nodeTtlSeconds=600)
    assert (await exchange(url, token, "n1", "mine")).status_code == 201

    codes = []
    for seconds in (599, 2):
        registry.clock.move(seconds=seconds)
        async with serving(registry) as later, httpx.AsyncClient(base_url=later, verify=NO_TLS) as client:
            answer = await client.get("/api/v1/nodes/n1", headers={"Authorization": "Bearer mine"})
            codes.append(answer.status_code)
    assert codes == [404, 401]


async def test_to_ask_again_is_harmless(url: str, admin: httpx.AsyncClient, node: httpx.AsyncClient) -> None:
    assert (await exchange(url, await join_token(admin), "n1", "mine")).status_code == 201
    assert (await node.get("/api/v1/nodes/n1")).status_code == 200


async def test_a_duplicate_agent_is_refused_until_the_node_is_reset(
    url: str, registry: Registry, admin: httpx.AsyncClient, node: httpx.AsyncClient
) -> None:
    token = await join_token(admin)
    refused = await exchange(url, token, "n1", "other")
    assert (refused.status_code, refused.json()["reason"]) == (409, "AlreadyExists")
    assert "jobplane node reset n1" in refused.json()["message"]

    assert (await admin.delete(f"{BASE}/credentials/n1")).status_code == 200
    assert (await exchange(url, token, "n1", "other")).status_code == 201
    async with serving(registry) as later, httpx.AsyncClient(base_url=later, verify=NO_TLS) as client:
        codes = [
            (await client.get("/api/v1/nodes/n1", headers={"Authorization": f"Bearer {each}"})).status_code
            for each in ("mine", "other")
        ]
    assert codes == [401, 200]


async def test_a_node_that_was_deleted_may_be_joined_anew(
    url: str, registry: Registry, admin: httpx.AsyncClient, node: httpx.AsyncClient
) -> None:
    await registry.store.pool.execute("update tokens set created_at = now() - interval '6 minutes'")
    await admin.delete("/api/v1/nodes/n1")

    assert (await exchange(url, await join_token(admin), "n1", "other")).status_code == 201


async def test_of_two_that_come_at_once_one_joins(url: str, admin: httpx.AsyncClient) -> None:
    token = await join_token(admin)
    answers = await asyncio.gather(*(exchange(url, token, "n1", f"s{each}") for each in range(6)))

    assert sorted(each.status_code for each in answers) == [201] + [409] * 5


async def test_a_node_that_a_fleets_agent_keeps_is_not_taken_over(
    url: str, registry: Registry, admin: httpx.AsyncClient
) -> None:
    await admin.post("/api/v1/nodes", json={"metadata": {"name": "local"}})
    spec = {"renewTime": registry.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "leaseDurationSeconds": 40}
    await admin.post(LEASES, json={"metadata": {"name": "local"}, "spec": spec})
    token = await join_token(admin)
    assert (await exchange(url, token, "local", "s")).status_code == 409

    registry.clock.move(seconds=41)

    assert (await exchange(url, token, "local", "s")).status_code == 201


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param({}, "no name for a node", id="nothing"),
        pytest.param({"node": "A b", "digest": "0" * 64}, "no name for a node", id="a name that is none"),
        pytest.param({"node": "n1", "digest": "0" * 63}, "SHA-256", id="a digest too short"),
        pytest.param({"node": "n1", "digest": "é" * 64}, "SHA-256", id="a digest that is none"),
        pytest.param({"node": 7}, "node", id="a number"),
    ],
)
async def test_what_no_agent_asks_is_refused(
    url: str, admin: httpx.AsyncClient, body: dict[str, Any], message: str
) -> None:
    answer = await admin.post(f"{BASE}/join", json=body, headers={"Authorization": f"Bearer {await join_token(admin)}"})

    assert answer.status_code == 400, answer.text
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    "body",
    [
        *({"ttlSeconds": each} for each in (0, -1, 10**12)),
        *({"uses": each} for each in (0, -1, 10**5)),
        *({"nodeTtlSeconds": each} for each in (-1, 10**12)),
    ],
    ids=str,
)
async def test_a_token_lasts_for_a_while(admin: httpx.AsyncClient, body: dict[str, int]) -> None:
    answer = await admin.post(f"{BASE}/jointokens", json=body)

    assert answer.status_code == 400
    assert f"{next(iter(body))} must be between" in answer.json()["message"]


async def test_a_machine_cannot_take_the_id_of_another_token(url: str, admin: httpx.AsyncClient) -> None:
    """Whoever revoked that id would end both."""
    first, second = await join_token(admin), await join_token(admin)
    assert (await exchange(url, first, "n1", "mine")).status_code == 201
    body = {"node": "n2", "digest": sha256(b"mine").hexdigest()[:12] + "0" * 52}

    answer = await admin.post(f"{BASE}/join", json=body, headers={"Authorization": f"Bearer {second}"})

    assert answer.status_code == 409


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "jointokens"),
        ("GET", "jointokens"),
        ("DELETE", "jointokens/a"),
        ("POST", "join"),
        ("DELETE", "credentials/n1"),
    ],
)
@pytest.mark.parametrize("who", ["user", "node", "joiner", "nobody"])
async def test_only_administrators_decide_who_joins(
    url: str, registry: Registry, admin: httpx.AsyncClient, node: httpx.AsyncClient, method: str, path: str, who: str
) -> None:
    if who == "joiner" and path == "join":
        return
    tokens = {
        "user": await issue(registry, User(name="ada")),
        "node": "mine",
        "joiner": await join_token(admin),
        "nobody": "x",
    }
    answer = await node.request(method, f"{BASE}/{path}", headers={"Authorization": f"Bearer {tokens[who]}"}, json={})

    assert answer.status_code == (401 if who == "nobody" else 403), answer.text


ALLOWED = [
    ("GET", "/api/v1/nodes/n1", None),
    ("GET", "/api/v1/nodes?fieldSelector=metadata.name=n1", None),
    ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"kubernetes.io/arch": "amd64", "node.kubernetes.io/x": "y"}}}),
    ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"example.com/rack": "7"}}}),
    ("PATCH", "/api/v1/nodes/n1/status", {"status": {"capacity": {"cpu": "4"}}}),
    ("POST", LEASES, {"metadata": {"name": "n1"}}),
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName=n1", None),
    ("GET", "/api/v1/namespaces/default/secrets/mentioned", None),
    ("GET", "/api/v1/namespaces/default/secrets/pulls", None),
    ("GET", "/api/v1/namespaces/default/configmaps/mentioned", None),
    ("POST", "/api/v1/namespaces/default/events", {
        "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}
    }),
    ("POST", f"{BASE}/nodes/n1/statuses", {"items": []}),
    ("POST", f"{BASE}/nodes/n1/usage", {"items": []}),
]  # fmt: skip
REFUSED = [
    ("GET", "/api/v1/nodes/n2", None),
    ("GET", "/api/v1/nodes", None),
    ("POST", "/api/v1/nodes", {"metadata": {"name": "n3"}}),
    ("PATCH", "/api/v1/nodes/n2", {"metadata": {"labels": {"a": "b"}}}),
    ("PATCH", "/api/v1/nodes/n2/status", {"status": {"capacity": {"cpu": "4"}}}),
    ("DELETE", "/api/v1/nodes/n1", None),
    ("DELETE", "/api/v1/nodes/n2", None),
    ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"node-restriction.kubernetes.io/team": "x"}}}),
    ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"a.node-restriction.kubernetes.io/team": "x"}}}),
    ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    ("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"x.k8s.io/y": "z"}}}),
    ("PATCH", "/api/v1/nodes/n1/status", {"metadata": {"labels": {"node-restriction.kubernetes.io/team": "x"}}}),
    ("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    ("POST", LEASES, {"metadata": {"name": "n2"}}),
    ("GET", f"{LEASES}/n2", None),
    ("GET", "/api/v1/pods", None),
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName=n2", None),
    ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "q"}, "spec": {"containers": []}}),
    ("DELETE", "/api/v1/namespaces/default/pods/p", None),
    ("PATCH", "/api/v1/namespaces/default/pods/theirs/status", {"status": {"phase": "Failed"}}),
    ("GET", "/api/v1/namespaces/default/pods/theirs/log", None),
    ("GET", "/apis/logs.jobplane.dev/v1/namespaces/default/logs", None),
    ("GET", "/api/v1/namespaces/default/secrets", None),
    ("GET", "/api/v1/secrets", None),
    ("GET", "/api/v1/namespaces/default/secrets/other", None),
    ("GET", "/api/v1/namespaces/default/secrets/theirs", None),
    ("GET", "/api/v1/namespaces/kube-system/secrets/mentioned", None),
    ("PATCH", "/api/v1/namespaces/default/secrets/mentioned", {"data": {}}),
    ("DELETE", "/api/v1/namespaces/default/configmaps/mentioned", None),
    ("GET", "/apis/batch/v1/namespaces/default/jobs", None),
    ("POST", f"{BASE}/nodes/n2/statuses", {"items": []}),
    ("POST", f"{BASE}/nodes/n2/logs", {"items": []}),
    ("GET", f"{BASE}/nodes/n2/calls", None),
]  # fmt: skip


def named(cases: list[Any]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]} {case[1]} {list((case[2] or {}).values())[:1]}") for case in cases]


@pytest.fixture
async def full(registry: Registry, admin: httpx.AsyncClient, node: httpx.AsyncClient) -> httpx.AsyncClient:
    """A pod on n1 that mentions a secret, a config map and what it pulls by; one on n2, and what neither mentions."""
    await admin.post("/api/v1/nodes", json={"metadata": {"name": "n2"}})
    for name in ("mentioned", "other", "theirs", "pulls"):
        for kind in ("secrets", "configmaps"):
            await admin.post(f"/api/v1/namespaces/default/{kind}", json={"metadata": {"name": name}})
    for pod, home, name in (("p", "n1", "mentioned"), ("theirs", "n2", "theirs")):
        reference: Any = {"name": name}
        source = [{"secretRef": reference}, {"configMapRef": reference}]
        spec = {
            "nodeName": home,
            "imagePullSecrets": [{"name": "pulls"}] if home == "n1" else [],
            "containers": [{"name": "main", "image": "busybox", "envFrom": source}],
        }
        made = await admin.post("/api/v1/namespaces/default/pods", json={"metadata": {"name": pod}, "spec": spec})
        assert made.status_code == 201, made.text
    return node


async def call(client: httpx.AsyncClient, method: str, path: str, body: Any) -> httpx.Response:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return await client.request(method, path, json=body, headers={"Content-Type": kind})


@pytest.mark.parametrize(("method", "path", "body"), named(ALLOWED))
async def test_a_node_may(full: httpx.AsyncClient, method: str, path: str, body: Any) -> None:
    answer = await call(full, method, path, body)

    assert answer.status_code in (200, 201), answer.text


async def test_a_node_may_do_nothing_else(full: httpx.AsyncClient) -> None:
    """All is asked of one server: what is refused changes nothing."""
    for method, path, body in REFUSED:
        answer = await call(full, method, path, body)

        said = f"{method} {path} {body}: {answer.text}"
        assert (answer.status_code, answer.json()["reason"]) == (403, "Forbidden"), said


async def test_a_node_reports_of_its_own_pods_only(full: httpx.AsyncClient, admin: httpx.AsyncClient) -> None:
    uids = {
        name: (await admin.get(f"/api/v1/namespaces/default/pods/{name}")).json()["metadata"]["uid"]
        for name in ("p", "theirs")
    }
    items = [{"namespace": "default", "name": name, "uid": uid} for name, uid in uids.items()]
    statuses = [{**each, "status": {"phase": "Running"}} for each in items]
    logs = [{**each, "container": "main", "data": "aGkK"} for each in items]

    told = (await full.post(f"{BASE}/nodes/n1/statuses", json={"items": statuses})).json()["items"]
    kept = (await full.post(f"{BASE}/nodes/n1/logs", json={"items": logs})).json()["items"]

    assert {each["uid"]: each["code"] for each in told} == {uids["p"]: 200, uids["theirs"]: 403}
    assert {each["uid"]: each["code"] for each in kept} == {uids["p"]: 200, uids["theirs"]: 403}


async def test_a_refused_label_is_refused_in_kubernetes_words(node: httpx.AsyncClient) -> None:
    body = {"metadata": {"labels": {"node-restriction.kubernetes.io/team": "x", "k8s.io/y": "z"}}}
    said = (await call(node, "PATCH", "/api/v1/nodes/n1", body)).json()["message"]
    assert said == (
        'nodes "n1" is forbidden: is not allowed to modify labels: k8s.io/y, node-restriction.kubernetes.io/team'
    )


async def test_an_administrator_may_label_as_he_likes(admin: httpx.AsyncClient, node: httpx.AsyncClient) -> None:
    body = {"metadata": {"labels": {"node-restriction.kubernetes.io/team": "x"}}}
    assert (await call(admin, "PATCH", "/api/v1/nodes/n1", body)).status_code == 200
    # And the node keeps it while it changes what is its own.
    assert (await call(node, "PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"rack": "7"}}})).status_code == 200


# The agent's side


async def test_an_agent_joins_once_and_keeps_its_credential(url: str, admin: httpx.AsyncClient, tmp_path: Path) -> None:
    config = AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path, join_token=await join_token(admin))
    assert not has_joined(tmp_path)
    joined = await join(config)

    again = await join(AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path))

    assert again.token == joined.token != config.join_token
    assert has_joined(tmp_path)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {"node.token": "0o600"}


async def test_an_agent_whose_credential_was_revoked_says_so_and_joins_again(
    url: str, admin: httpx.AsyncClient, tmp_path: Path
) -> None:
    token = await join_token(admin, uses=2)
    first = await join(AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path, join_token=token))
    await admin.delete(f"{BASE}/credentials/n1")
    with pytest.raises(JoinError, match="give a --join-token"):
        await join(AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path))

    second = await join(AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path, join_token=token))

    assert second.token != first.token


async def test_an_agent_says_why_it_cannot_join(
    url: str, admin: httpx.AsyncClient, node: httpx.AsyncClient, tmp_path: Path
) -> None:
    with pytest.raises(JoinError, match="it expired or was revoked"):
        await join(AgentConfig(server=url, node_names=("n2",), state_dir=tmp_path, join_token="guess"))
    with pytest.raises(JoinError, match="jobplane node reset n1"):
        await join(AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path, join_token=await join_token(admin)))


async def test_an_answer_that_was_lost_is_asked_for_again(url: str, admin: httpx.AsyncClient, tmp_path: Path) -> None:
    token = await join_token(admin)
    (tmp_path / "node.token.new").write_text("made-up")
    await exchange(url, token, "n1", "made-up")

    assert (
        await join(AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path, join_token=token))
    ).token == "made-up"


async def test_the_authority_is_known_by_its_hash(registry: Registry, tmp_path: Path) -> None:
    made = certificates.ensure(tmp_path / "tls", ["127.0.0.1"])
    pem = made.ca.read_text()
    files = {"ssl_certfile": str(made.cert), "ssl_keyfile": str(made.key)}
    async with listening(create_app(registry, authority=made.ca.read_text), **files) as port:
        server = f"https://127.0.0.1:{port}"
        assert ssl.PEM_cert_to_DER_cert(await authority(server, hash_of(pem))) == ssl.PEM_cert_to_DER_cert(pem.strip())
        with pytest.raises(MismatchError, match="something else answers"):
            await authority(server, "sha256:" + "0" * 64)
        state = tmp_path / "state"
        state.mkdir()
        with pytest.raises(JoinError, match="--ca-hash"):
            await join(AgentConfig(server=server, node_names=("n1",), state_dir=state, join_token="x"))


async def test_who_joins_while_the_authority_is_rotated_trusts_both(registry: Registry, tmp_path: Path) -> None:
    made = certificates.ensure(tmp_path / "tls", ["127.0.0.1"])
    first = made.ca.read_text()
    certificates.begin_rotation(tmp_path / "tls", now=datetime.now(UTC))
    both = made.ca.read_text()
    files = {"ssl_certfile": str(made.cert), "ssl_keyfile": str(made.key)}
    async with listening(create_app(registry, authority=made.ca.read_text), **files) as port:
        assert hash_of(both) == hash_of(first)
        assert await authority(f"https://127.0.0.1:{port}", hash_of(first)) == both


async def test_nothing_is_trusted_for_standing_beside_what_the_hash_names(registry: Registry, tmp_path: Path) -> None:
    """Somebody in between shows the authority that is looked for, and his own."""
    ours, theirs = (certificates.ensure(tmp_path / name, ["127.0.0.1"]) for name in ("ours", "theirs"))
    shown = ours.ca.read_text() + theirs.ca.read_text()
    files = {"ssl_certfile": str(theirs.cert), "ssl_keyfile": str(theirs.key)}
    async with listening(create_app(registry, authority=lambda: shown), **files) as port:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            await authority(f"https://127.0.0.1:{port}", hash_of(ours.ca.read_text()))


async def test_a_node_waits_until_it_is_approved(url: str, registry: Registry, admin: httpx.AsyncClient) -> None:
    made = await admin.post(f"{BASE}/jointokens", json={"approve": True, "nodeTtlSeconds": 7200, "ttlSeconds": 3600})
    token = made.json()["token"]
    asked = await exchange(url, token, "n1", "mine")
    assert (asked.status_code, asked.json()) == (201, {"node": "n1", "approved": False})
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer mine"}, verify=NO_TLS) as node:
        assert (await node.get("/api/v1/nodes/n1")).status_code == 401
        states = {each["user"]: each["state"] for each in (await admin.get(f"{BASE}/tokens")).json()["items"]}
        assert states["system:node:n1"] == "Pending"
        assert (await exchange(url, token, "n1", "another")).status_code == 409  # the name is asked for
        assert (await admin.post(f"{BASE}/credentials/n2/approve", json={})).status_code == 404
        assert (await node.post(f"{BASE}/credentials/n1/approve", json={})).status_code == 401

        assert (await admin.post(f"{BASE}/credentials/n1/approve", json={})).status_code == 201
        assert (await admin.post(f"{BASE}/credentials/n1/approve", json={})).status_code == 404
        assert (await exchange(url, token, "n1", "mine")).json() == {"node": "n1", "approved": True}
        async with asyncio.timeout(60):  # what a process knows of a token counts for a second
            while (await node.get("/api/v1/nodes/n1")).status_code == 401:  # noqa: ASYNC110 - it gives no signal
                await asyncio.sleep(0.1)
        assert (await node.get("/api/v1/nodes/n1")).status_code == 404
        assert (await node.post(f"{BASE}/credentials/n2/approve", json={})).status_code == 403
        answer = (await node.get(f"{BASE}/credential")).json()
        assert (answer["lifeSeconds"], answer["leftSeconds"]) == (7200, 7200)


async def test_a_node_that_nobody_approves_is_forgotten_with_its_join_token(
    url: str, registry: Registry, admin: httpx.AsyncClient
) -> None:
    made = await admin.post(f"{BASE}/jointokens", json={"approve": True, "ttlSeconds": 3600})
    await exchange(url, made.json()["token"], "n1", "mine")
    registry.clock.move(seconds=3601)
    assert (await admin.post(f"{BASE}/credentials/n1/approve", json={})).status_code == 404
