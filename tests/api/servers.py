"""Applications on a real port; and one, of one pod whose exec and port-forward echo: all that tests of upgraded
connections need.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.api.http import errors
from app.api.http.connection import Connection
from app.api.streams import exec_attach, port_forward
from app.api.streams.exec_attach import CommandStreams, exit_code_status, parse_requested_streams, success_status
from app.api.streams.port_forward import Forward
from app.machinery.errors import ApiError
from app.runtimes.spdy import Data, Decoder, Encoder, Frame

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "default", "uid": "1"},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    "status": {"phase": "Running"},
}
RESOURCE = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"]}
DOCUMENTS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [RESOURCE]},
    "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
    "/api/v1/namespaces/default/pods/p": POD,
}
PATH = "/api/v1/namespaces/default/pods/p"


async def echo(arguments: list[str], command: CommandStreams) -> dict[str, Any]:
    """Says its arguments, two sizes of its terminal if it has one, and its input; then ends as they tell it to."""
    out = command.stdout or command.stderr
    assert out is not None
    await out.write(f"{' '.join(arguments)}\n".encode())
    if command.stderr and command.stdout:
        await command.stderr.write(b"err\n")
    if command.resize:
        await out.write(await command.resize.read())
        await out.write(await command.resize.read())
    while command.stdin and (data := await command.stdin.read()):
        await out.write(data)
    match arguments:
        case ["exit", code]:
            return exit_code_status(arguments, int(code))
        case ["refuse"]:
            raise ApiError(404, "NotFound", "no such thing")
        case ["fail"]:
            raise ValueError("secret")
    return success_status()


async def greet(forward: Forward) -> None:
    """Answers an HTTP request with the port and the size of what came, as long as the client asks; port 1 refuses."""
    if forward.port == 1:
        raise ConnectionRefusedError("connection refused")
    request = b""
    while data := await forward.data.read():
        request += data
        if b"\r\n\r\n" in request:
            text = f"port {forward.port} got {len(request)}"
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
            await forward.data.write(f"{head}{text}".encode())
            return


def made(
    running: Callable[[list[str], CommandStreams], Any] = echo,
    forward: port_forward.Application = greet,
    answer_seconds: float = exec_attach.ANSWER_SECONDS,
) -> Starlette:
    async def answer(request: Request) -> Any:
        try:
            return await route(request)
        except ApiError as error:
            return errors.response(error)

    async def route(request: Request) -> Any:
        path = request.url.path
        if path == f"{PATH}/exec":
            pairs = request.query_params.multi_items()
            arguments = request.query_params.getlist("command")
            run = partial(running, arguments)
            return exec_attach.upgrade_to_command(request, parse_requested_streams(pairs), run, answer_seconds)
        if path == f"{PATH}/portforward":
            return port_forward.upgrade_to_port_forward(request, forward)
        if path == "/body":
            return Response(await request.body())
        if path not in DOCUMENTS:
            raise errors.no_such_path()
        return JSONResponse(DOCUMENTS[path])

    app = Starlette(routes=[Route("/{path:path}", answer, methods=["GET", "POST"])])
    app.state.streams = set()
    return app


@asynccontextmanager
async def listening(app: Any, **tls: str) -> AsyncIterator[int]:
    """The port of `app` on loopback. All streams are cancelled at the end, as the product does it."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        proxy_headers=False,
        **tls,
    )
    bound = config.bind_socket()
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as asyncio does it when it binds by itself
    server = uvicorn.Server(config)
    await begin(server, bound)
    try:
        yield bound.getsockname()[1]
    finally:
        for stream in list(app.state.streams):
            stream.cancel()
        async with asyncio.timeout(60):
            await end(server)
        bound.close()


async def begin(server: uvicorn.Server, bound: socket.socket) -> None:
    """As it does itself, but without signal handlers, and without a task that looks ten times a second whether to end."""
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[bound])
    await server.on_tick(0)  # makes the headers that every answer has


async def end(server: uvicorn.Server) -> None:
    """As soon as the last connection has ended, where it would look for that ten times a second, too."""
    for each in server.servers:
        each.close()
    for connection in list(server.server_state.connections):
        connection.shutdown()
    while server.server_state.connections or server.server_state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.001)


def status(text: str | bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


class SpdyClient:
    """What kubectl is to an SPDY server, as far as tests need it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.encoder, self.decoder = Encoder(), Decoder()
        self._frames: list[Frame] = []
        self._last = -1

    def open(self, kind: str, **headers: str) -> int:
        """Open a stream, and give its number."""
        self._last += 2
        self.writer.write(self.encoder.open(self._last, {"streamtype": kind, **headers}))
        return self._last

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self.writer.write(self.encoder.data(stream, data, end=end))

    async def next(self) -> Frame | None:
        """The next frame that says something; None when the server has closed."""
        while not self._frames:
            data = await asyncio.wait_for(self.reader.read(65536), 60)
            if not data:
                return None
            self._frames += self.decoder.feed(data)
        return self._frames.pop(0)

    async def all_of(self, stream: int) -> bytes:
        """What comes on a stream until its end."""
        text = bytearray()
        while frame := await self.next():
            if isinstance(frame, Data) and frame.stream == stream:
                text += frame.data
                if frame.end:
                    break
        return bytes(text)


@asynccontextmanager
async def connected(port: int, request: str, rest: bytes = b"") -> AsyncIterator[tuple[bytes, SpdyClient]]:
    """The head of the answer to `request`, given without its line ends, and what follows it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.strip().replace("\n", "\r\n").encode() + b"\r\n\r\n" + rest)
        yield await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60), SpdyClient(reader, writer)
    finally:
        writer.close()
