"""Watches over WebSocket: what HTTP would have sent, to whoever a token in a subprotocol stands for."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from app.api.app import create_app
from app.api.auth.authenticator import MASTERS, User
from app.api.auth.tokens import issue
from app.api.resources import kubernetes
from app.api.resources.routes import RequestInfo
from app.api.streams import exec_attach, watch_websocket
from app.api.streams.channels import Upgrade
from app.registry.verbs.objects import Registry
from tests.api.servers import connected, echo, listening
from tests.conftest import NO_TLS
from tests.registry.examples import PODS, a_pod, create

PODS_PATH = "/api/v1/namespaces/default/pods"
BEARER = "base64url.bearer.authorization.k8s.io."


class Running(NamedTuple):
    """A whole API, and a token that may do everything."""

    app: FastAPI
    url: str
    token: str

    def socket(self, path: str, *protocols: Any, token: str | None = None, **headers: str) -> connect:
        """With the token in the header, unless the protocols are to say it all."""
        if token is None:
            headers["Authorization"] = f"Bearer {self.token}"
        return connect(
            f"ws://{self.url}{path}", subprotocols=protocols or None, additional_headers=headers, compression=None
        )

    async def refused(self, *arguments: Any, **options: Any) -> tuple[int, dict[str, Any]]:
        """The code and body of the ordinary answer to a request for a WebSocket."""
        with pytest.raises(InvalidStatus) as refusal:
            await self.socket(*arguments, **options)
        response = refusal.value.response
        return response.status_code, json.loads(response.body or b"{}")


@pytest.fixture
async def running(registry: Registry) -> AsyncIterator[Running]:
    token = await issue(registry, User(name="admin", groups=(MASTERS,)))
    app = create_app(registry)
    async with listening(app) as port:
        yield Running(app, f"127.0.0.1:{port}", token)


def encoded(token: str) -> str:
    return BEARER + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


async def heard(websocket: ClientConnection, count: int) -> list[str]:
    messages = [await asyncio.wait_for(websocket.recv(), 20) for _ in range(count)]
    assert all(isinstance(message, str) for message in messages)
    return [str(message) for message in messages]


async def test_each_event_is_one_text_message_as_over_http(running: Running, registry: Registry) -> None:
    await create(registry, PODS, a_pod("a"))
    await create(registry, PODS, a_pod("b"))
    path = f"{PODS_PATH}?watch=true&timeoutSeconds=1"

    async with running.socket(path) as websocket:
        await create(registry, PODS, a_pod("c"))
        over_socket = await heard(websocket, 3)
        assert [message async for message in websocket] == []
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {running.token}"}, verify=NO_TLS) as client:
        over_http = (await client.get(f"http://{running.url}{path}")).text

    assert "".join(over_socket) == over_http
    assert [json.loads(each)["object"]["metadata"]["name"] for each in over_socket] == ["a", "b", "c"]
    assert websocket.close_code == 1000


async def test_a_watch_goes_on_from_a_revision(running: Running, registry: Registry) -> None:
    pod = await create(registry, PODS, a_pod("a"))
    await create(registry, PODS, a_pod("b"))

    query = f"watch=1&resourceVersion={pod.metadata.resource_version}"
    async with running.socket(f"/api/v1/pods?{query}") as websocket:
        (event,) = await heard(websocket, 1)

    assert json.loads(event)["object"]["metadata"]["name"] == "b"


async def test_a_watch_may_be_of_tables(running: Running, registry: Registry) -> None:
    await create(registry, PODS, a_pod("a"))

    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    async with running.socket(f"{PODS_PATH}?watch=true", Accept=accept) as websocket:
        (event,) = await heard(websocket, 1)

    assert json.loads(event)["object"]["kind"] == "Table"


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        pytest.param([], None, id="none if none is offered"),
        pytest.param(["base64.binary.k8s.io"], "base64.binary.k8s.io", id="the only one"),
        pytest.param(["v4.channel.k8s.io", "other"], "v4.channel.k8s.io", id="the first"),
    ],
)
async def test_the_subprotocol_is(running: Running, offered: list[str], agreed: str | None) -> None:
    async with running.socket(f"{PODS_PATH}?watch=true", *offered) as websocket:
        assert websocket.subprotocol == agreed


@pytest.mark.parametrize("place", [0, 1])
async def test_a_token_in_a_subprotocol_is_good_and_not_repeated(running: Running, place: int) -> None:
    protocols = ["base64.binary.k8s.io"]
    protocols.insert(place, encoded(running.token))

    async with running.socket(f"{PODS_PATH}?watch=true", *protocols, token="") as websocket:
        assert websocket.subprotocol == "base64.binary.k8s.io"


@pytest.mark.parametrize(
    "protocols",
    [
        pytest.param([], id="no token"),
        pytest.param(["x", encoded("wrong")], id="a token that nobody knows"),
        pytest.param(["x", f"{BEARER}***"], id="a token that is not base64"),
        pytest.param(["x", f"{BEARER}_w"], id="a token that is no text"),
        pytest.param(["x", BEARER], id="an empty token"),
    ],
)
async def test_401_for(running: Running, protocols: list[str]) -> None:
    code, status = await running.refused(f"{PODS_PATH}?watch=true", *protocols, token="")
    assert (code, status["reason"]) == (401, "Unauthorized")


async def test_a_token_needs_another_subprotocol_beside_it_and_no_second_token(running: Running) -> None:
    good = encoded(running.token)
    assert (await running.refused(f"{PODS_PATH}?watch=true", good, token=""))[0] == 401
    assert (await running.refused(f"{PODS_PATH}?watch=true", "x", good, good, token=""))[0] == 401


async def test_a_token_in_a_subprotocol_is_for_websockets_only(running: Running) -> None:
    async with httpx.AsyncClient(verify=NO_TLS) as client:
        headers = {"Sec-WebSocket-Protocol": f"x, {encoded(running.token)}"}
        assert (await client.get(f"http://{running.url}{PODS_PATH}", headers=headers)).status_code == 401


async def test_refusals_are_ordinary_answers(running: Running, registry: Registry) -> None:
    nobody = await issue(registry, User(name="nobody"))
    code, status = await running.refused(f"{PODS_PATH}?watch=true", "x", encoded(nobody), token="")
    assert (code, status["reason"]) == (403, "Forbidden")

    assert (await running.refused("/api/v1/unheard?watch=true"))[0] == 404
    assert (await running.refused(f"{PODS_PATH}?watch=true&resourceVersion=x"))[0] == 400
    assert (await running.refused(PODS_PATH))[0] == 200  # a list, as if no upgrade had been asked for
    assert (await running.refused(f"{PODS_PATH}/p/exec?command=ls&stdout=true"))[0] == 404


async def test_a_client_that_leaves_ends_its_watch(running: Running) -> None:
    async with running.socket(f"{PODS_PATH}?watch=true") as websocket:
        await websocket.send("nothing of interest")
        await asyncio.wait_for(await websocket.ping(), 20)
        assert len(running.app.state.streams) == 1
    async with asyncio.timeout(20):
        while running.app.state.streams:
            await asyncio.wait(running.app.state.streams)


class Endless:
    """A watch of which a client cannot take everything."""

    async def events(self) -> AsyncGenerator[bytes, None]:
        while True:
            yield bytes(100_000)


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_websocket, "SEND_SECONDS", 0.2)
    app = Starlette(routes=[Route("/", lambda request: watch_websocket.upgrade_to_websocket(request, Endless()))])
    app.state.streams = set()
    request = "GET / HTTP/1.1\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: "

    async with listening(app) as port, connected(port, request + "A" * 22 + "==") as (head, client):
        assert b" 101 " in head
        client.writer.transport.pause_reading()
        assert len(app.state.streams) == 1
        async with asyncio.timeout(20):
            while app.state.streams:
                await asyncio.wait(app.state.streams)


async def test_a_stopping_server_ends_watches(registry: Registry) -> None:
    app = create_app(registry)
    token = await issue(registry, User(name="admin", groups=(MASTERS,)))
    async with listening(app) as port:
        websocket = await Running(app, f"127.0.0.1:{port}", token).socket(f"{PODS_PATH}?watch=true")
    await websocket.wait_closed()
    assert websocket.close_code == 1001


async def test_a_stream_is_for_those_who_may(
    running: Running, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(registry: Registry, request: Request, found: RequestInfo) -> Upgrade:
        asked = exec_attach.parse_requested_streams(request.query_params.multi_items())
        return exec_attach.upgrade_to_command(request, asked, lambda command: echo([found.name], command))

    monkeypatch.setitem(kubernetes._SPECIAL, ("pods", "exec", "GET"), answer)
    path, nobody = f"{PODS_PATH}/p/exec?command=ls&stdout=true", await issue(registry, User(name="nobody"))

    code, status = await running.refused(path, "v4.channel.k8s.io", encoded(nobody), token="")
    assert (code, status["reason"]) == (403, "Forbidden")
    async with running.socket(path, "v4.channel.k8s.io", encoded(running.token), token="") as websocket:
        assert [message async for message in websocket][:2] == [b"\x01", b"\x01p\n"]
