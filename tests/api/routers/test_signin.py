"""The page's sign-in: one-time codes, what they are exchanged for, and who may make them."""

import asyncio

import httpx
import pytest

from app.api.auth.authenticator import AUTHENTICATED
from app.registry.verbs.objects import Registry
from tests.api.conftest import serving
from tests.api.people import bind, cluster_role, meeting
from tests.conftest import NO_TLS


async def code_of(client: httpx.AsyncClient) -> str:
    answer = await client.post("/ui/codes", json={})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["code"])


async def exchange(url: str, code: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        return await nobody.post("/ui/signin", json={"code": code})


async def code_for(url: str, token: str) -> int:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        return (await client.get("/api/v1/nodes", headers={"Authorization": f"Bearer {token}"})).status_code


async def test_a_code_is_exchanged_for_a_token_of_the_user_who_made_it(url: str, admin: httpx.AsyncClient) -> None:
    signed_in = await exchange(url, await code_of(admin))

    assert signed_in.status_code == 201
    headers = {"Authorization": f"Bearer {signed_in.json()['token']}"}
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS, headers=headers) as client:
        review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
        answer = await client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review)
    assert answer.json()["status"]["userInfo"]["username"] == "admin"
    assert "system:masters" in answer.json()["status"]["userInfo"]["groups"]


async def test_of_many_that_come_at_once_one_gets_a_token(url: str, admin: httpx.AsyncClient) -> None:
    code = await code_of(admin)
    answers = await asyncio.gather(*(exchange(url, code) for _ in range(6)))

    assert sorted(each.status_code for each in answers) == [201] + [403] * 5
    refused = next(each for each in answers if each.status_code == 403)
    assert "jobplane page" in refused.json()["message"]


async def test_another_replica_takes_a_code(registry: Registry, url: str, admin: httpx.AsyncClient) -> None:
    async with serving(registry) as other:
        assert (await exchange(other, await code_of(admin))).status_code == 201


@pytest.mark.parametrize(("seconds", "status"), [(599, 201), (601, 403)])
async def test_a_code_lives_for_ten_minutes(
    url: str, registry: Registry, admin: httpx.AsyncClient, seconds: int, status: int
) -> None:
    code = await code_of(admin)
    registry.clock.move(seconds=seconds)

    assert (await exchange(url, code)).status_code == status


async def test_a_token_of_the_page_lives_for_twelve_hours(
    url: str, registry: Registry, admin: httpx.AsyncClient
) -> None:
    token = (await exchange(url, await code_of(admin))).json()["token"]
    codes = []
    for hours in (11, 2):
        registry.clock.move(seconds=hours * 3600)
        async with serving(registry) as later:
            codes.append(await code_for(later, token))

    assert codes == [200, 401]


async def test_a_code_is_no_token_and_a_token_no_code(url: str, registry: Registry, admin: httpx.AsyncClient) -> None:
    code = await code_of(admin)
    token = (await exchange(url, await code_of(admin))).json()["token"]

    assert await code_for(url, code) == 401
    assert (await exchange(url, token)).status_code == 403
    assert await code_for(url, token) == 200
    rows = str(await registry.store.pool.fetch("select * from tokens"))
    assert code not in rows
    assert token not in rows


@pytest.mark.parametrize("body", ["{}", '{"code": ""}', '{"code": "x"}', '{"code": 1}', "[", "x" * 20_000])
async def test_what_is_no_code_is_refused(url: str, body: str) -> None:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        answer = await nobody.post("/ui/signin", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 403, 413)
    assert answer.json()["kind"] == "Status"


async def test_only_administrators_and_who_has_the_path_make_codes(
    registry: Registry, url: str, admin: httpx.AsyncClient
) -> None:
    await cluster_role(admin, "makes-codes", {"verbs": ["post"], "nonResourceURLs": ["/ui/codes"]})
    await bind(admin, "makes-codes", ["User:ada"])
    async with meeting(registry, url) as people, httpx.AsyncClient(base_url=url, verify=NO_TLS) as nobody:
        ada, bob = await people.user("ada", AUTHENTICATED), await people.user("bob", AUTHENTICATED)
        codes = [(await who.post("/ui/codes", json={})).status_code for who in (ada, bob, nobody)]
        token = (await exchange(url, await code_of(ada))).json()["token"]

    assert codes == [201, 403, 401]
    assert await code_for(url, token) == 403  # it is ada's, with no more rights than hers
