"""Agents that want to make the API reach other hosts, or to break it by what they answer. The API never dials a node."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime

import httpx
import pytest
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.api.streams import agent_calls
from app.kinds import by_name
from app.kinds.core.node_schema import DaemonEndpoint, NodeAddress, NodeDaemonEndpoints
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.api.calling import NODE, PATIENCE, POD, Replica, admin_token, agent_token, bind, opened, replica, said
from tests.registry.examples import PODS, create, example, named

NODES = by_name("", "Node")

ADDRESSES = (
    "127.0.0.1",
    "169.254.169.254",
    "::1",
    "::ffff:127.0.0.1",
    "2130706433",
    "0177.0.0.1",
    "localhost",
    "0.0.0.0",
)
PATHS = (
    f"/api/v1/nodes/{NODE}/proxy/pods",
    f"/api/v1/nodes/{NODE}/proxy/",
    f"/api/v1/nodes/{NODE}:%d/proxy/metrics",
    f"/api/v1/nodes/https:{NODE}:%d/proxy/",
    f"{POD}/proxy/",
    f"{POD}:%d/proxy/",
    "/api/v1/namespaces/default/services/s:%d/proxy/",
    f"{POD}/log?container=main&previous=true&insecureSkipTLSVerifyBackend=true",
    f"{POD}/log",
    f"{POD}/exec?command=id&stdout=1",
    f"{POD}/attach?stdout=1",
    f"{POD}/portforward?ports=%d",
)


@pytest.fixture
async def one(registry: Registry, dsn: str, clock: Callable[[], datetime]) -> AsyncIterator[Replica]:
    async with replica(dsn, clock) as made:
        yield made


async def test_no_address_that_a_node_claims_is_ever_dialled(
    registry: Registry, one: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither that of the node nor that of its pod, whatever path asks for it. The proxy asks the agent, which is away."""
    monkeypatch.setattr(agent_calls, "DIAL_SECONDS", 0.05)
    dialled: list[str] = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialled.append(str(writer.get_extra_info("peername")))
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await create(registry, NODES, named(example(NODES), name=NODE))
    await bind(registry)
    headers = {"Authorization": f"Bearer {await admin_token(registry)}"}
    tried = 0
    async with server, httpx.AsyncClient(base_url=f"http://127.0.0.1:{one.port}", headers=headers) as client:
        for address in ADDRESSES:
            await _claim(registry, address, port)
            for path in PATHS:
                answer = await client.get(path.replace("%d", str(port)))
                is_away = "did not answer within" in answer.text and path.startswith(POD)
                is_refused = 400 <= answer.status_code < 500 or is_away
                assert is_refused or path.endswith("/log"), (path, answer.status_code, answer.text)
                assert "location" not in answer.headers
                tried += 1
    assert (tried, dialled) == (len(ADDRESSES) * len(PATHS), [])


async def _claim(registry: Registry, address: str, port: int) -> None:
    """What an agent may write of its node, and of its pod."""
    addresses = tuple(NodeAddress(type=kind, address=address) for kind in ("InternalIP", "Hostname", "ExternalIP"))
    claimed = {
        "addresses": addresses,
        "daemon_endpoints": NodeDaemonEndpoints(kubelet_endpoint=DaemonEndpoint(port=port)),
    }
    await objects.rewrite(registry, NODES, "", NODE, lambda node: replace(node, status=replace(node.status, **claimed)))
    await objects.rewrite(
        registry,
        PODS,
        "default",
        "p",
        lambda pod: replace(pod, status=replace(pod.status, pod_ip=address, host_ip=address)),
    )


# What it answers to a call


@asynccontextmanager
async def called(one: Replica, registry: Registry) -> AsyncIterator[ClientConnection]:
    """The agent's end of a call, which the test speaks for."""
    base = f"//127.0.0.1:{one.port}/apis/agents.jobplane.dev/v1/nodes/{NODE}/calls"
    headers = {"Authorization": f"Bearer {await agent_token(registry)}"}
    async with (
        asyncio.timeout(PATIENCE),
        httpx.AsyncClient(headers=headers, timeout=PATIENCE) as its,
        its.stream("GET", f"http:{base}") as rings,
    ):
        lines = (line async for line in rings.aiter_lines() if line)
        id_ = json.loads(await anext(lines))["id"]
        async with connect(f"ws:{base}/{id_}", additional_headers=headers, compression=None, max_size=None) as agent:
            yield agent


async def execute(one: Replica, token: str) -> dict[int, bytes]:
    """What a client is told, by channel; the body of a refusal as if it came by that of errors."""
    try:
        async with opened(one, f"{POD}/exec?command=id&stdout=1&stderr=1", token) as client:
            return await said(client)
    except InvalidStatus as refused:
        answer = refused.response
    assert answer.status_code in (400, 500, 502, 504)
    assert "location" not in answer.headers
    return {3: bytes(answer.body or b"")}


READY = b"\x03" + b'{"ready": true}'
ANSWERS: dict[str, list[bytes]] = {
    "nothing of the protocol": [b"GET / HTTP/1.1\r\n\r\n"],
    "an empty message": [READY, b""],
    "a channel that there is not": [READY, b"\x63junk"],
    "a reply that is no JSON": [READY, b"\x03{"],
    "a reply of another shape": [READY, b"\x03[1, 2]"],
    "an exit code beyond any": [READY, b"\x03" + b'{"exit_code": 99999999999999999999999}'],
    "a redirect": [b"\x03" + b'{"refused": "HTTP/1.1 302 Found\\r\\nLocation: http://169.254.169.254/\\r\\n"}'],
    "nested without end": [b"\x03" + b'{"ready":' + b"[" * 100_000],
    "a message beyond any": [READY, b"\x01" + bytes(40 << 20)],
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_whatever_an_agent_answers_ends_that_call_alone(registry: Registry, one: Replica, answer: str) -> None:
    await bind(registry)
    told = asyncio.create_task(execute(one, await admin_token(registry)))
    async with called(one, registry) as agent:
        with suppress(ConnectionClosed):
            for message in ANSWERS[answer]:
                await agent.send(message)
            await agent.close()
        found = await told
    assert set(found) <= {1, 2, 3}
    assert json.loads(found[3])["status"] == "Failure"
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{one.port}") as other:
        assert (await other.get("/readyz")).status_code == 200


async def test_output_without_end_waits_for_whoever_reads_it(registry: Registry, one: Replica) -> None:
    """The API holds no more of it than its buffers, however much an agent sends."""
    await bind(registry)
    over = asyncio.Event()

    async def idle() -> None:
        async with opened(one, f"{POD}/exec?command=id&stdout=1&stderr=1", await admin_token(registry)):
            await over.wait()

    client = asyncio.create_task(idle())
    async with called(one, registry) as agent:
        await agent.send(READY)
        sent, piece = 0, b"\x01" + os.urandom(1 << 18)
        with suppress(TimeoutError):
            while sent < 256 << 20:
                async with asyncio.timeout(1):
                    await agent.send(piece)
                sent += len(piece)
        assert sent < 64 << 20
        over.set()
        agent.transport.abort()
    await asyncio.gather(client, return_exceptions=True)
