"""Tokens of every kind are listed, without their secrets, and revoked."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.api.auth import token_list
from app.api.auth.authenticator import MASTERS, NODES, User, digest_of
from app.api.auth.tokens import issue, issue_for_account
from app.registry.verbs.objects import Registry
from tests.api.conftest import serving
from tests.conftest import NO_TLS

BASE = "/apis/agents.jobplane.dev/v1"


async def of_every_kind(registry: Registry, admin: httpx.AsyncClient) -> dict[str, str]:
    """Secrets by the type that they are listed as."""
    ends = registry.now() + timedelta(hours=1)
    join = await admin.post(f"{BASE}/jointokens", json={"uses": 3})
    return {
        "User": await issue(registry, User(name="ada", groups=("dev",)), ends),
        "Admin": await issue(registry, User(name="root", groups=(MASTERS,)), ends),
        "Node": await issue(registry, User(name="system:node:n1", groups=(NODES,), nodes=("n1",)), ends),
        "ServiceAccount": await issue_for_account(registry, "default", "default", ends),
        "Join": join.json()["token"],
    }


async def listed(admin: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await admin.get(f"{BASE}/tokens")
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def code(registry: Registry, token: str) -> int:
    """Of a replica that has not seen the token yet."""
    async with serving(registry) as url, httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        return (await client.get("/version", headers={"Authorization": f"Bearer {token}"})).status_code


async def test_a_token_of_every_kind_is_listed_with_all_but_its_secret(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    secrets = await of_every_kind(registry, admin)
    items = await listed(admin)

    shown = {each["type"]: each for each in items if each["user"] != "admin"}
    assert shown.keys() == secrets.keys()
    assert not any(secret in str(items) or digest_of(secret) in str(items) for secret in secrets.values())
    assert all(each["state"] == "Active" and each["expiresAt"] for each in shown.values())
    assert (shown["User"]["user"], shown["User"]["groups"]) == ("ada", ["dev"])
    assert (shown["Node"]["nodes"], shown["Join"]["uses"]) == (["n1"], 3)
    assert shown["Join"]["metadata"]["name"] == secrets["Join"].partition(".")[0]


@pytest.mark.parametrize("kind", ["User", "Admin", "Node", "ServiceAccount", "Join"])
async def test_a_revoked_token_is_refused_by_every_replica(
    registry: Registry, admin: httpx.AsyncClient, kind: str
) -> None:
    secret = (await of_every_kind(registry, admin))[kind]
    assert await code(registry, secret) == 200
    (id_,) = (
        each["metadata"]["name"]
        for each in await listed(admin)
        if (each["type"], each["user"]) != ("Admin", "admin") and each["type"] == kind
    )

    assert (await admin.delete(f"{BASE}/tokens/{id_}")).status_code == 200

    assert await code(registry, secret) == 401
    assert id_ not in str(await listed(admin))
    assert (await admin.delete(f"{BASE}/tokens/{id_}")).status_code == 404


async def test_a_token_that_is_no_longer_good_is_listed_with_the_reason(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    await of_every_kind(registry, admin)
    await admin.delete("/api/v1/namespaces/default/serviceaccounts/default")
    await registry.store.pool.execute("update tokens set uses = 0 where uses is not null")
    states = {each["type"]: each["state"] for each in await listed(admin) if each["user"] != "admin"}
    assert states == {
        "User": "Active", "Admin": "Active", "Node": "Active", "ServiceAccount": "Orphaned", "Join": "UsedUp"
    }  # fmt: skip

    registry.clock.move(hours=1)

    states = {each["type"]: each["state"] for each in await listed(admin) if each["type"] != "Join"}
    assert states == {"Admin": "Expired", "User": "Expired", "Node": "Expired", "ServiceAccount": "Expired"}


async def test_a_long_list_comes_page_by_page(
    registry: Registry, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_list, "MOST", 2)
    await of_every_kind(registry, admin)
    names: list[str] = []
    query: dict[str, str] = {}
    while True:
        page = (await admin.get(f"{BASE}/tokens", params=query)).json()
        assert len(page["items"]) <= 2
        names += [each["metadata"]["name"] for each in page["items"]]
        if "continue" not in page["metadata"]:
            break
        query = {"continue": page["metadata"]["continue"]}

    assert len(names) == len(set(names)) == 6


@pytest.mark.parametrize(
    "place", ["x", "2026-01-01,a", "2026-01-01T00:00:00+00:00,a\0", ",", "9" * 5000, "0001-01-01T00:00:00+23:59,a"]
)
async def test_a_place_that_is_none_is_a_bad_request(admin: httpx.AsyncClient, place: str) -> None:
    assert (await admin.get(f"{BASE}/tokens", params={"continue": place})).status_code == 400


@pytest.mark.parametrize(("method", "path"), [("GET", "tokens"), ("DELETE", "tokens/a")])
async def test_only_administrators_see_and_revoke_tokens(
    registry: Registry, admin: httpx.AsyncClient, method: str, path: str
) -> None:
    secrets = await of_every_kind(registry, admin)
    for kind in ("User", "Node", "ServiceAccount", "Join"):
        headers = {"Authorization": f"Bearer {secrets[kind]}"}
        answer = await admin.request(method, f"{BASE}/{path}", headers=headers)
        assert (kind, answer.status_code) == (kind, 403)
