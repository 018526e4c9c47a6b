"""Exec, attach and port-forward through any replica of the API to an agent that only dials out."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from app.agent import streams as agent_streams
from app.api.auth import certificates
from app.api.serve import address_towards
from app.api.streams import agent_calls, channels, revocation
from app.client.api import Api
from app.machinery.errors import ApiError
from app.registry.verbs.objects import Registry
from app.runtimes.base import ContainerStatus
from app.runtimes.process.runtime import ProcessRuntime
from app.runtimes.simulated.runtime import SimulatedRuntime
from tests.api.calling import (
    NODE,
    PATIENCE,
    POD,
    Balancer,
    Replica,
    admin_token,
    agent,
    agent_token,
    balanced,
    bind,
    listens,
    opened,
    processes,
    replica,
    run,
    said,
)
from tests.api.people import bind as bind_role
from tests.api.people import cluster_role, meeting, rule
from tests.api.servers import connected

Clock = Callable[[], datetime]
STREAMS = "stdin=true&stdout=true&stderr=true"
SPDY = "Host: x\nConnection: Upgrade\nUpgrade: SPDY/3.1\nX-Stream-Protocol-Version: v4.channel.k8s.io"


def execute(script: str, streams: str = STREAMS) -> str:
    return str(httpx.URL(f"{POD}/exec?{streams}").copy_merge_params({"command": ["sh", "-c", script]}))


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    async with processes(tmp_path / "containers") as made:
        yield made


@pytest.fixture
async def one(registry: Registry, dsn: str, clock: Clock) -> AsyncIterator[Replica]:
    async with replica(dsn, clock) as made:
        yield made


@pytest.fixture
async def token(registry: Registry) -> str:
    return await admin_token(registry)


@pytest.fixture
async def balancer(registry: Registry, one: Replica, runtime: ProcessRuntime) -> AsyncIterator[Balancer]:
    """What leads the agent to the one replica. Its pod runs."""
    await run(runtime, await bind(registry), "exec sleep 1000")
    async with balanced(one) as made, agent(registry, f"http://127.0.0.1:{made.port}", runtime):
        await listens(one)
        yield made


# Through replicas


@pytest.mark.parametrize("tls", [False, True], ids=["in plain", "with TLS"])
async def test_any_replica_reaches_an_agent_through_any_other(
    registry: Registry, dsn: str, clock: Clock, runtime: ProcessRuntime, token: str, tmp_path: Path, tls: bool
) -> None:
    """The client at one, the agent's open request at another, its answers wherever the balancer sends them."""
    await run(runtime, await bind(registry), "exec sleep 1000")
    made = certificates.ensure(tmp_path / "tls", ["127.0.0.1"]) if tls else None
    async with replica(dsn, clock, made) as a, replica(dsn, clock, made) as b, balanced(a, b) as balancer:
        server = f"{'https' if tls else 'http'}://127.0.0.1:{balancer.port}"
        async with agent(registry, server, runtime, made.ca if made else None):
            await listens(a, b)
            data = os.urandom(300_000)
            for client in (a, b, a, a, b):
                async with opened(client, execute("cat; echo $WHO >&2; exit 3"), token) as websocket:
                    await websocket.send(b"\0" + data)
                    await websocket.send(b"\xff\0")
                    found = await said(websocket)
                assert (found[1], found[2], exit_code(found)) == (data, b"you\n", 3)
                balancer._turn += 1


def exit_code(found: dict[int, bytes]) -> int:
    status = json.loads(found[3])
    if status["status"] == "Success":
        return 0
    assert status["reason"] == "NonZeroExitCode", status
    return int(status["details"]["causes"][0]["message"])


async def test_a_replica_is_known_by_its_certificate(
    registry: Registry,
    dsn: str,
    clock: Clock,
    runtime: ProcessRuntime,
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent's token goes to nobody else. Who waits is told nothing worse than that nobody came."""
    monkeypatch.setattr(agent_calls, "DIAL_SECONDS", 1.0)
    await run(runtime, await bind(registry), "exec sleep 1000")
    made = certificates.ensure(tmp_path / "tls", ["127.0.0.1"])
    async with (
        replica(dsn, clock, made, certificate="0" * 64) as a,
        replica(dsn, clock, made) as b,
        balanced(b) as balancer,
        agent(registry, f"https://127.0.0.1:{balancer.port}", runtime, made.ca),
    ):
        await listens(b)
        async with opened(a, execute("true"), token) as websocket:
            found = await said(websocket)
    assert "error dialing backend: the agent" in json.loads(found[3])["message"]


async def test_a_replica_that_goes_takes_only_its_own_streams(
    registry: Registry, dsn: str, clock: Clock, runtime: ProcessRuntime, token: str
) -> None:
    await run(runtime, await bind(registry), "exec sleep 1000")
    async with replica(dsn, clock) as a, AsyncExitStack() as others:
        b = await others.enter_async_context(replica(dsn, clock))
        async with balanced(b) as balancer, agent(registry, f"http://127.0.0.1:{balancer.port}", runtime):
            await listens(b)
            balancer.targets = [a.port]
            async with opened(a, execute("cat"), token) as kept:
                await kept.send(b"\0one")
                assert (await kept.recv(), await kept.recv()) == (b"\x01", b"\x01one")
                await others.aclose()
                await listens(a)
                async with opened(a, execute("echo hi"), token) as websocket:
                    assert (await said(websocket))[1] == b"hi\n"
                await kept.send(b"\0two")
                assert await kept.recv() == b"\x01two"


# Agents


async def test_a_node_without_an_agent(
    registry: Registry, one: Replica, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_calls, "DIAL_SECONDS", 0.3)
    await bind(registry)
    why = f'error dialing backend: the agent of node "{NODE}" did not answer within 0 seconds'
    async with opened(one, execute("ls"), token) as websocket:
        found = await said(websocket)
    assert json.loads(found[3])["message"] == f"Internal error occurred: {why}"
    for part in ("exec?command=ls&stdout=1", "portforward"):
        request = f"POST {POD}/{part} HTTP/1.1\n{SPDY.replace('v4.channel', 'portforward') if part[0] == 'p' else SPDY}"
        async with connected(one.port, f"{request}\nAuthorization: Bearer {token}") as (
            head,
            client,
        ):
            assert head.startswith(b"HTTP/1.1 500")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            assert json.loads(await client.reader.readexactly(length))["message"] == why


async def test_an_agent_answers_only_calls_of_its_own_nodes(
    registry: Registry, one: Replica, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_calls, "DIAL_SECONDS", 2.0)
    await bind(registry)
    path = f"http://127.0.0.1:{one.port}/apis/agents.jobplane.dev/v1/nodes/{NODE}/calls"
    headers = {"Authorization": f"Bearer {await agent_token(registry)}"}
    api = Api(f"http://127.0.0.1:{one.port}", await agent_token(registry, "n2"))
    async with httpx.AsyncClient(headers=headers) as its, its.stream("GET", path) as rings:
        lines = rings.aiter_lines()
        assert await anext(lines) == ""
        calling = asyncio.create_task(everything(one, execute("ls"), token))
        id_ = json.loads(await anext(lines))["id"]
        try:
            assert await refused(api, f"n2/calls/{id_}") == (404, "NotFound")
            assert await refused(api, f"{NODE}/calls/{id_}") == (403, "Forbidden")
            assert await refused(api, f"-/calls/{id_}") == (404, "NotFound")
            assert await refused(api, "n2/calls/nix") == (404, "NotFound")
        finally:
            await api.close()
        assert "did not answer" in json.loads((await calling)[3])["message"]


async def everything(one: Replica, path: str, token: str) -> dict[int, bytes]:
    async with opened(one, path, token) as websocket:
        return await said(websocket)


async def refused(api: Api, path: str) -> tuple[int, str]:
    with pytest.raises(ApiError) as refusal:
        await api.open_socket(f"/apis/agents.jobplane.dev/v1/nodes/{path}")
    return refusal.value.code, refusal.value.reason


async def test_an_agent_is_rung_for_its_own_nodes_only(registry: Registry, one: Replica, token: str) -> None:
    await bind(registry)
    other = httpx.AsyncClient(headers={"Authorization": f"Bearer {await agent_token(registry, 'n2')}"})
    path = f"http://127.0.0.1:{one.port}/apis/agents.jobplane.dev/v1/nodes"
    async with other:
        assert (await other.get(f"{path}/{NODE}/calls")).status_code == 403
        async with other.stream("GET", f"{path}/-/calls") as stream:
            await listens(one)
            (speaks_for,) = one.calls._listeners.values()
            assert (stream.status_code, speaks_for("n2"), speaks_for(NODE)) == (200, True, False)


async def test_the_death_of_the_agent_ends_the_stream(one: Replica, balancer: Balancer, token: str) -> None:
    async with opened(one, execute("echo ready; sleep 1000"), token) as websocket:
        assert (await websocket.recv(), await websocket.recv()) == (b"\x01", b"\x01ready\n")
        balancer.cut()
        found = await said(websocket)
    assert json.loads(found[3])["message"] == (
        f'Internal error occurred: the connection to the agent of node "{NODE}" was lost'
    )


@pytest.mark.parametrize("blocked", [False, True], ids=["", "that does not read what it is sent"])
async def test_a_client_that_hangs_up_ends_its_command(
    one: Replica,
    balancer: Balancer,
    token: str,
    runtime: ProcessRuntime,
    monkeypatch: pytest.MonkeyPatch,
    blocked: bool,
) -> None:
    monkeypatch.setattr(channels, "PING_SECONDS", 0.2)
    monkeypatch.setattr(agent_streams, "PING_SECONDS", 0.2)
    websocket = await opened(one, execute("echo $$; exec sleep 1000"), token)
    await websocket.recv()
    pid = int((await websocket.recv())[1:])
    if blocked:
        for _ in range(40):
            await websocket.send(b"\0" + bytes(32768))
    websocket.transport.abort()
    async with asyncio.timeout(PATIENCE):
        while Path(f"/proc/{pid}").exists():  # noqa: ASYNC110 - a stranger's end, of which nobody tells
            await asyncio.sleep(0.01)
    assert [each.state for each in await runtime.list()] == ["running"]


# What is refused


async def test_who_loses_the_right_to_a_stream_loses_the_stream(
    registry: Registry, one: Replica, balancer: Balancer, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revocation, "SECONDS", 0.1)
    async with meeting(registry, f"http://127.0.0.1:{one.port}") as people:
        admin = await people.holder(token)
        await cluster_role(admin, "gets", rule("get", "pods/exec"))
        await bind_role(admin, "ClusterRole/gets", ["User:ada"], "default")
        ada = (await people.user("ada")).headers["authorization"].removeprefix("Bearer ")
        async with opened(one, execute("echo ready; exec cat"), ada) as websocket:
            assert (await websocket.recv(), await websocket.recv()) == (b"\x01", b"\x01ready\n")
            await websocket.send(b"\0more\n")
            assert await websocket.recv() == b"\x01more\n"
            gone = await admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/gets")
            assert gone.status_code == 200
            async with asyncio.timeout(PATIENCE):
                await websocket.wait_closed()


async def test_rights_are_those_of_kubernetes(registry: Registry, one: Replica, balancer: Balancer, token: str) -> None:
    """A WebSocket's GET is get, SPDY's POST is create; agents may neither."""
    url = f"http://127.0.0.1:{one.port}"
    async with meeting(registry, url) as people:
        admin = await people.holder(token)
        await cluster_role(admin, "gets", rule("get", "pods/exec"))
        await bind_role(admin, "ClusterRole/gets", ["User:ada"], "default")
        ada = await people.user("ada")
        path = execute("ls")
        assert (await ada.get(path)).json()["message"] == "Upgrade request required"
        refusal = (await ada.post(path)).json()
        assert refusal["message"].startswith('pods "p" is forbidden: User "ada" cannot create resource "pods/exec"')
        assert (await (await people.user("bob")).get(path)).status_code == 403
        assert (await (await people.holder(await agent_token(registry))).get(path)).status_code == 403


@pytest.mark.parametrize(
    ("part", "code", "message"),
    [
        pytest.param("pods/nix/exec?command=ls&stdout=1", 404, 'pods "nix" not found', id="no such pod"),
        pytest.param(
            "pods/two/exec?command=ls&stdout=1",
            400,
            "a container name must be specified for pod two, choose one of: [a b]",
            id="which container",
        ),
        pytest.param(
            "pods/two/attach?container=c&stdout=1", 400, "container c is not valid for pod two", id="no such container"
        ),
        pytest.param(
            "pods/two/exec?container=a&stdout=1",
            400,
            "you must specify at least one command for the container",
            id="no command",
        ),
        pytest.param(
            "pods/two/exec?container=a&command=ls",
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
            id="no streams",
        ),
        pytest.param("pods/two/portforward?ports=x", 400, 'unable to parse "x" as a port', id="no port"),
        pytest.param(
            "pods/nowhere/portforward?ports=1", 400, "pod nowhere does not have a host assigned", id="on no node"
        ),
    ],
)
async def test_a_request_is_refused_for(
    registry: Registry, one: Replica, token: str, part: str, code: int, message: str
) -> None:
    containers = [{"name": name, "image": "i"} for name in "ab"]
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{one.port}", headers=headers) as client:
        for name, node in (("two", NODE), ("nowhere", "")):
            spec = {"containers": containers[: 2 if node else 1], **({"nodeName": node} if node else {})}
            made = await client.post("/api/v1/namespaces/default/pods", json={"metadata": {"name": name}, "spec": spec})
            assert made.status_code == 201
    with pytest.raises(InvalidStatus) as refusal:
        await opened(one, f"/api/v1/namespaces/default/{part}", token, "v4.channel.k8s.io").__aenter__()
    answer = refusal.value.response
    assert (answer.status_code, json.loads(answer.body or b"")["message"]) == (code, message)


async def test_what_an_agent_refuses_is_told_as_a_kubelet_would(
    registry: Registry, one: Replica, token: str, runtime: ProcessRuntime
) -> None:
    await bind(registry)
    async with balanced(one) as balancer, agent(registry, f"http://127.0.0.1:{balancer.port}", runtime):
        await listens(one)
        request = f"POST {POD}/exec?command=ls&stdout=1 HTTP/1.1\n{SPDY}\nAuthorization: Bearer {token}"
        async with connected(one.port, request) as (head, client):
            assert head.startswith(b"HTTP/1.1 500")
            assert await client.reader.readline() == b'container not found ("main")\n'
        async with opened(one, f"{POD}/attach?stdout=1", token) as websocket:
            message = json.loads((await said(websocket))[3])["message"]
        assert message.endswith("unable to upgrade connection: container main not found in pod p_default")


async def trouble(registry: Registry, one: Replica, token: str, runtime: SimulatedRuntime) -> str:
    """What a client is told that wants to run a command."""
    async with balanced(one) as balancer, agent(registry, f"http://127.0.0.1:{balancer.port}", runtime):
        await listens(one)
        async with opened(one, execute("ls"), token) as websocket:
            message = json.loads((await said(websocket))[3])["message"]
    await runtime.close()
    return str(message)


async def test_what_a_runtime_cannot_is_said(registry: Registry, one: Replica, token: str, clock: Clock) -> None:
    runtime = SimulatedRuntime(clock)
    await run(runtime, await bind(registry), "", annotations={"jobplane.dev/simulate": '{"seconds": 1000}'})
    message = await trouble(registry, one, token, runtime)
    assert message.endswith("error executing command in container: containers of this runtime run no commands")


async def test_a_runtime_that_is_away_is_said_to_be_and_no_fault_of_ours(
    registry: Registry, one: Replica, token: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(SimulatedRuntime):
        async def list(self) -> list[ContainerStatus]:
            raise ConnectionError("the container engine does not answer")

    await bind(registry)
    runtime = Away(clock)
    message = await trouble(registry, one, token, runtime)

    assert message.endswith("the node's runtime cannot be asked: the container engine does not answer")
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


# Ports


async def test_a_port_is_reached_by_channels_too(
    registry: Registry, one: Replica, balancer: Balancer, token: str
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened(one, f"{POD}/portforward?ports={port}", token, "v4.channel.k8s.io") as websocket:
        await websocket.send(b"\0you\n")
        found = await said(websocket)
    assert found == {0: port.to_bytes(2, "little") + b"hello you\n", 1: port.to_bytes(2, "little")}
    async with opened(one, f"{POD}/portforward?ports={port}", token, "v4.channel.k8s.io") as websocket:
        found = await said(websocket)
    assert b"error forwarding port" in found[1]
    assert b"Connect call failed" in found[1] or b"refused" in found[1]


def test_a_notice_fits_into_what_the_database_passes_on() -> None:
    notice: Any = agent_calls.Notice("x" * 22, "n" * 253, "https://" + "h" * 253 + ":65535", "0" * 64)
    assert len(agent_calls.msgspec.json.encode(notice)) < 8000


@pytest.mark.parametrize(
    "dsn",
    [
        pytest.param("postgresql://u:p@127.0.0.1:1,127.0.0.2:2/db?target_session_attrs=primary", id="two hosts"),
        pytest.param("postgresql://u:p,w@127.0.0.1/db", id="one host, and a password with a comma"),
        pytest.param("postgresql://postgres@/postgres?host=/tmp&port=5432", id="a socket"),
    ],
)
def test_a_replica_finds_its_address_whatever_the_url_of_the_database_looks_like(dsn: str) -> None:
    assert address_towards(dsn) == "127.0.0.1"
