"""A joined node's credential is renewed in time, whatever happens on the way. The API is real, the clocks are not."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from app.agent.config import AgentConfig
from app.agent.node.credential import LONGEST_SLEEP, CredentialRenewal, seconds_to_renewal
from app.agent.node.join import credential_path, join
from app.api.app import create_app
from app.api.auth.authenticator import MASTERS, NODE_PREFIX, NODES, User
from app.api.auth.tokens import issue
from app.client.api import Api
from app.client.protocol import CREDENTIAL, CredentialAnswer
from app.registry.verbs.objects import Registry
from app.store.tokens import MOST_CREDENTIALS
from tests.agent.fake_clock import FakeClock
from tests.api.servers import listening
from tests.conftest import NO_TLS, Clock

BASE = "/apis/agents.jobplane.dev/v1"
DAY = 86400
LIFE = 30 * DAY


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        (CredentialAnswer(LIFE, LIFE), 21 * DAY, 27 * DAY),
        (CredentialAnswer(LIFE, 10 * DAY), DAY, 7 * DAY),
        (CredentialAnswer(LIFE, 2 * DAY), 0, 0),
        (CredentialAnswer(LIFE, -5), 0, 0),
    ],
)
def test_a_credential_is_due_after_most_of_its_life(answer: CredentialAnswer, least: float, most: float) -> None:
    found = {seconds_to_renewal(answer, f"n{number}") for number in range(100)}
    assert all(each is not None and least <= each <= most for each in found)
    assert len(found) > 50 or most == 0


def test_a_credential_without_end_is_never_due() -> None:
    assert seconds_to_renewal(CredentialAnswer(), "n") is None


@pytest.fixture
async def url(registry: Registry) -> AsyncIterator[str]:
    app = create_app(registry)
    app.state.authenticator._seconds = 0.0  # it remembers tokens by the real time, and these tests move the other clock
    async with listening(app) as port:
        yield f"http://127.0.0.1:{port}"


async def admin(registry: Registry, url: str) -> httpx.AsyncClient:
    token = await issue(registry, User(name="admin", groups=(MASTERS,)))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS, timeout=60)


async def joined(registry: Registry, url: str, folder: Path, life: int = LIFE) -> str:
    """A node that has joined; its credential."""
    async with await admin(registry, url) as client:
        made = await client.post(f"{BASE}/jointokens", json={"nodeTtlSeconds": life})
    config = AgentConfig(server=url, node_names=("n1",), state_dir=folder, join_token=made.json()["token"])
    return (await join(config)).token


async def accepts(url: str, token: str) -> int:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS, timeout=60) as client:
        return (await client.get(f"{BASE}/credential", headers={"Authorization": f"Bearer {token}"})).status_code


def renewal(url: str, token: str, folder: Path) -> CredentialRenewal:
    return CredentialRenewal(Api(url, token), folder, "n1", FakeClock())


async def test_it_is_renewed_when_due_and_the_old_one_stays_good_until_its_end(
    registry: Registry, clock: Clock, url: str, tmp_path: Path
) -> None:
    token = await joined(registry, url, tmp_path)
    renewing = renewal(url, token, tmp_path)
    assert await renewing._advance() == LONGEST_SLEEP
    assert credential_path(tmp_path).read_text() == token

    clock.move(days=28)
    await renewing._advance()
    new = credential_path(tmp_path).read_text()
    assert new != token
    assert credential_path(tmp_path).stat().st_mode & 0o777 == 0o600
    assert [await accepts(url, each) for each in (token, new)] == [200, 200]
    answer = await renewing._api.read(CREDENTIAL, CredentialAnswer)  # by the new one
    assert (answer.life_seconds, answer.left_seconds) == (LIFE, LIFE)
    clock.move(days=3)
    assert [await accepts(url, each) for each in (token, new)] == [401, 200]
    await renewing._api.close()


async def test_an_agent_that_was_killed_before_it_kept_the_new_credential_goes_on_by_it(
    registry: Registry, clock: Clock, url: str, tmp_path: Path
) -> None:
    token = await joined(registry, url, tmp_path)
    clock.move(days=28)
    renewing = renewal(url, token, tmp_path)
    await renewing._advance()
    new = credential_path(tmp_path).read_text()
    credential_path(tmp_path).with_name("node.token.new").write_text(new)  # as if it had not been moved
    credential_path(tmp_path).write_text(token)
    clock.move(days=3)
    config = AgentConfig(server=url, node_names=("n1",), state_dir=tmp_path)
    assert (await join(config)).token == new == credential_path(tmp_path).read_text()
    await renewing._api.close()


async def test_a_lost_answer_and_an_api_that_is_away_are_made_good(
    registry: Registry, clock: Clock, url: str, tmp_path: Path
) -> None:
    token = await joined(registry, url, tmp_path)
    clock.move(days=28)
    away = renewal("http://127.0.0.1:9", token, tmp_path)
    assert await away._advance() < LONGEST_SLEEP
    secret = "made before, and its answer was lost"
    (tmp_path / "node.token.new").write_text(secret)
    body = {"node": "n1", "digest": sha256(secret.encode()).hexdigest()}
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS) as client:
        assert [(await client.post(CREDENTIAL, json=body)).status_code for _ in range(2)] == [201, 201]
    renewing = renewal(url, token, tmp_path)
    await renewing._advance()
    assert credential_path(tmp_path).read_text() == secret
    for each in (away, renewing):
        await each._api.close()


async def test_no_one_renews_early_or_for_others_or_without_bound(
    registry: Registry, clock: Clock, url: str, tmp_path: Path
) -> None:
    token = await joined(registry, url, tmp_path)
    bounded = await issue(registry, User(name=f"{NODE_PREFIX}n3", groups=(NODES,), nodes=("n3",)), clock.move(hours=1))
    clock.move(hours=-1)

    async def renew(by: str, node: str, secret: str) -> int:
        body = {"node": node, "digest": sha256(secret.encode()).hexdigest()}
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {by}"}, verify=NO_TLS) as client:
            return (await client.post(CREDENTIAL, json=body)).status_code

    assert await renew(token, "n1", "early") == 409
    assert await renew(bounded, "n3", "for ever") == 409  # `jobplane token --node --duration` means what it says
    clock.move(days=28)
    assert await renew(token, "n2", "others") == 403
    codes = [await renew(token, "n1", f"s{number}") for number in range(MOST_CREDENTIALS)]
    assert codes == [201] * (MOST_CREDENTIALS - 1) + [429]
    async with await admin(registry, url) as client:
        assert (await client.post(CREDENTIAL, json={"node": "n1", "digest": "0" * 64})).status_code == 403
        assert (await client.delete(f"{BASE}/credentials/n1")).status_code == 200
    assert [await accepts(url, each) for each in (token, "s0")] == [401, 401]
