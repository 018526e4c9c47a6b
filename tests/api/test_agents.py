"""What agents post, over HTTP: whatever the bytes, a Status below 500."""

import httpx
import pytest

from app.api.auth import NODES, User
from app.api.tokens import issue
from app.registry.objects import Registry
from tests.conftest import NO_TLS


@pytest.mark.parametrize("action", ["statuses", "logs", "usage"])
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
        answer = await agent.post(f"/apis/agents.jobplane.dev/v1/nodes/n/{action}", content=body)

    said = answer.json()
    assert (answer.status_code, said["kind"], said["reason"]) == (400, "Status", "BadRequest"), said
