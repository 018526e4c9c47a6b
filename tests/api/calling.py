"""Replicas of the API on one database, a balancer in front of them, and an agent that answers calls for a pod of processes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from msgspec.structs import replace
from websockets.asyncio.client import connect

from app.agent.clock import WallClock
from app.agent.streams import CallHandler
from app.api.app import create_app
from app.api.audit.auditor import Audit
from app.api.auth import certificates
from app.api.auth.authenticator import MASTERS, NODES, User
from app.api.auth.tokens import issue
from app.api.http.connection import Connection
from app.api.streams.agent_calls import Origin
from app.api.streams.relay import _unverified_context
from app.client.api import Api
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.runtimes.base import ContainerKey, ContainerSpec, Runtime, SandboxSpec
from app.runtimes.process.runtime import ProcessRuntime
from app.store import open_store
from tests.build import EVERY_API
from tests.registry.examples import PODS, a_pod, create

NODE = "n1"
POD = "/api/v1/namespaces/default/pods/p"
PATIENCE = 60


@dataclass
class Replica:
    """One process of the API, as far as others can tell."""

    port: int
    app: FastAPI
    registry: Registry

    @property
    def calls(self) -> Any:
        return self.app.state.calls


@asynccontextmanager
async def replica(
    dsn: str,
    clock: Callable[[], datetime],
    tls: certificates.Certificates | None = None,
    certificate: str = "",
    audit: Audit | None = None,
) -> AsyncIterator[Replica]:
    """`certificate`: what it tells the others of its own, if that is not true."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    shown = certificate or (certificates.fingerprint(tls.cert) if tls else "")
    files = {"ssl_certfile": str(tls.cert), "ssl_keyfile": str(tls.key)} if tls else {}
    async with open_store(dsn) as store:
        registry = Registry(store, clock, features=EVERY_API)
        app = create_app(registry, Origin(f"{'https' if tls else 'http'}://127.0.0.1:{port}", shown), audit=audit)
        config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_level="warning", **files)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve(sockets=[bound]))
        while not server.started:
            await asyncio.wait((task,), timeout=0.01)
        try:
            yield Replica(port, app, registry)
        finally:
            for stream in list(app.state.streams):
                stream.cancel()
            server.should_exit = True
            await asyncio.wait_for(task, PATIENCE)


@dataclass
class Balancer:
    """Passes each connection on to the next of its targets; it knows nothing of what it carries."""

    targets: list[int]
    port: int = 0
    _turn: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self.targets[self._turn % len(self.targets)]
        self._turn += 1
        self._open.add(writer)
        with suppress(OSError):
            back_reader, back_writer = await asyncio.open_connection("127.0.0.1", target)
            self._open.add(back_writer)
            try:
                await asyncio.gather(_copied(reader, back_writer), _copied(back_reader, writer))
            finally:
                back_writer.close()
                writer.close()

    def cut(self) -> None:
        """As if the machine behind it had lost its power."""
        for writer in self._open:
            writer.transport.abort()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def balanced(*targets: Replica) -> AsyncIterator[Balancer]:
    balancer = Balancer([each.port for each in targets])
    server = await asyncio.start_server(balancer.serve, "127.0.0.1", 0)
    balancer.port = server.sockets[0].getsockname()[1]
    try:
        yield balancer
    finally:
        server.close()
        balancer.cut()


async def bind(registry: Registry, name: str = "p", **spec: Any) -> str:
    """A running pod on the node, as the API has it; its uid."""
    made = await create(registry, PODS, a_pod(name, node_name=NODE, **spec))
    await objects.rewrite(
        registry, PODS, "default", name, lambda pod: replace(pod, status=replace(pod.status, phase="Running"))
    )
    return str(made.metadata.uid)


async def run(runtime: Runtime, uid: str, script: str, annotations: Mapping[str, str] | None = None) -> None:
    """What the pod's container really is."""
    await runtime.run_sandbox(SandboxSpec(pod_uid=uid, namespace="default", name="p", annotations=annotations or {}))
    key = ContainerKey(uid, "main", 0)
    await runtime.start_container(ContainerSpec(key=key, image="", command=["sh", "-c", script], env={"WHO": "you"}))


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = ProcessRuntime(folder)
    try:
        yield runtime
    finally:
        for sandbox in await runtime.sandboxes():
            await runtime.remove_sandbox(sandbox.pod_uid)
        await runtime.close()


async def agent_token(registry: Registry, node: str = NODE) -> str:
    return await issue(registry, User(name=f"system:node:{node}", groups=(NODES,), nodes=(node,)))


async def admin_token(registry: Registry) -> str:
    return await issue(registry, User(name="admin", groups=(MASTERS,)))


@asynccontextmanager
async def agent(
    registry: Registry, server: str, runtime: Runtime, ca: Path | None = None
) -> AsyncIterator[CallHandler]:
    """One that answers calls, and does nothing else."""
    api = Api(server, await agent_token(registry), ca)
    streams = CallHandler(api, runtime, (NODE,), lambda _: NODE, WallClock())
    task = asyncio.create_task(streams.run())
    try:
        yield streams
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api.close()


async def listens(*replicas: Replica) -> Replica:
    """The one that the agent has its open request at."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for each in replicas:
                if each.calls._listeners:
                    return each
            await asyncio.sleep(0.01)


def opened(replica: Replica, path: str, token: str, protocol: str = "v5.channel.k8s.io") -> connect:
    """A WebSocket of a client."""
    scheme, tls = (
        ("wss", {"ssl": _unverified_context()}) if replica.calls._origin.url.startswith("https") else ("ws", {})
    )
    protocols: Any = [protocol]
    return connect(
        f"{scheme}://127.0.0.1:{replica.port}{path}",
        subprotocols=protocols,
        additional_headers={"Authorization": f"Bearer {token}"},
        compression=None,
        **tls,
    )


async def said(websocket: Any) -> dict[int, bytes]:
    """All that comes, by channel, until the server closes."""
    found: dict[int, bytes] = {}
    async with asyncio.timeout(PATIENCE):
        async for message in websocket:
            found[message[0]] = found.get(message[0], b"") + message[1:]
    return found
