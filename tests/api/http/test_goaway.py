"""Connections that end with an answer: by chance, with a watch, and all of them once the process stops."""

import httpx
import pytest

from app.api.http.connection import Connection
from app.api.http.goaway import Goaway
from tests.api.servers import listening, made
from tests.conftest import NO_TLS


@pytest.mark.parametrize(
    ("chance", "draw", "query", "is_stopping", "ends"),
    [
        pytest.param(0.0, 0.0, b"", False, False, id="off"),
        pytest.param(0.0, 0.0, b"watch=1", False, False, id="off, a watch"),
        pytest.param(0.01, 0.005, b"", False, True, id="by chance"),
        pytest.param(0.01, 0.015, b"", False, False, id="not by chance"),
        pytest.param(0.01, 0.9, b"timeoutSeconds=5&watch=true", False, True, id="a watch"),
        pytest.param(0.0, 0.9, b"", True, True, id="stopping"),
        pytest.param(0.01, 0.9, b"", True, True, id="stopping, not by chance"),
    ],
)
def test_a_connection_ends_or_goes_on(chance: float, draw: float, query: bytes, is_stopping: bool, ends: bool) -> None:
    goaway = Goaway(chance, lambda: draw)
    goaway.is_stopping = is_stopping

    assert goaway.ends_connection(query) is ends


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_a_client_is_told_that_its_connection_ends(monkeypatch: pytest.MonkeyPatch, is_stopping: bool) -> None:
    goaway = Goaway()
    goaway.is_stopping = is_stopping
    monkeypatch.setattr(Connection, "goaway", goaway)

    async with (
        listening(made()) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=NO_TLS) as client,
    ):
        answers = [await client.get("/version") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.headers.get("connection") for answer in answers] == ["close" if is_stopping else None] * 2
