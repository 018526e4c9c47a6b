"""Accepting connections: storms of them are begun in small steps, by turns of client addresses, and bounded for each."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from app.api.auth import certificates
from app.api.http import listener as module
from app.api.http.listener import Listener, network_of

ONE, OTHER = "127.0.0.1", "127.0.0.2"


class Server:
    """The protocols that were made, in order, by the address of their client."""

    def __init__(self) -> None:
        self.made = 0
        self.clients: list[str] = []
        self.transports: list[asyncio.Transport] = []

    def make(self) -> asyncio.Protocol:
        self.made += 1
        return Echo(self)


class Echo(asyncio.Protocol):
    def __init__(self, server: Server) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.clients.append(transport.get_extra_info("peername")[0])
        self._server.transports.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=200) as opened:
        yield opened


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of the server, and of its clients."""
    made = certificates.ensure(tmp_path / "tls", ("localhost",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    return context, ssl.create_default_context(cafile=str(made.ca))


@asynccontextmanager
async def listening(
    bound: socket.socket, server: Server, context: ssl.SSLContext | None = None, most: int = 1_000
) -> AsyncIterator[Listener]:
    listener = Listener([bound], server.make, context, most_of_one_address=most)
    try:
        async with asyncio.timeout(60):
            yield listener
    finally:
        listener.close()
        for each in server.transports:
            each.abort()
        await listener.wait_closed()


def connect(bound: socket.socket, stack: ExitStack, address: str = ONE, sent: bytes = b"x") -> socket.socket:
    made = stack.enter_context(socket.create_connection(bound.getsockname(), source_address=(address, 0)))
    made.sendall(sent)
    made.setblocking(False)
    return made


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.002)


async def is_cut(client: socket.socket) -> bool:
    try:
        return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionError:
        return True


async def test_a_storm_is_begun_a_few_in_each_step_of_the_loop(
    bound: socket.socket, server: Server, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            connect(bound, stack, sent=b"\x16\x03\x01")  # the begin of a handshake
        async with listening(bound, server, tls[0]):
            before, steps = 0, list[int]()
            while server.made < 60:
                await asyncio.sleep(0)
                steps.append(server.made - before)
                before = server.made
    assert max(steps) <= module.BEGUN_AT_ONCE


async def test_addresses_take_turns(bound: socket.socket, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACCEPTED_AT_ONCE", 100)
    with ExitStack() as stack:
        for _ in range(30):
            connect(bound, stack)
        connect(bound, stack, OTHER)
        async with listening(bound, server):
            await until(lambda: len(server.clients) == 31)
    assert server.clients[:3] == [ONE, OTHER, ONE]


async def test_an_address_has_only_so_many_connections_and_others_go_on(bound: socket.socket, server: Server) -> None:
    with ExitStack() as stack:
        async with listening(bound, server, most=2) as listener:
            first, second = connect(bound, stack), connect(bound, stack)
            await until(lambda: len(server.clients) == 2)
            assert await is_cut(connect(bound, stack, sent=b""))

            connect(bound, stack, OTHER)
            await until(lambda: len(server.clients) == 3)
            first.close()
            second.close()
            server.transports[0].abort()
            server.transports[1].abort()
            await until(lambda: len(listener._sources) == 1)
            connect(bound, stack)
            await until(lambda: len(server.clients) == 4)
    assert server.clients == [ONE, ONE, OTHER, ONE]


async def test_handshakes_of_an_address_that_never_end_leave_room_for_others(
    bound: socket.socket,
    server: Server,
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_HANDSHAKES_OF_ONE_ADDRESS", 3)
    with ExitStack() as stack:
        async with listening(bound, server, tls[0]):
            for _ in range(9):
                connect(bound, stack, OTHER, b"\x16\x03\x01")
            await until(lambda: server.made == 3)
            assert await echoed(bound, tls[1]) == b"hello"
    assert server.made == 4


async def test_clients_that_say_nothing_cost_no_handshake_and_are_cut(
    bound: socket.socket,
    server: Server,
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.05)
    with ExitStack() as stack:
        async with listening(bound, server, tls[0]) as listener:
            assert await is_cut(connect(bound, stack, sent=b""))
            assert (server.made, listener._sources) == (0, {})


async def echoed(bound: socket.socket, trust: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(*bound.getsockname(), ssl=trust, server_hostname="localhost")
    writer.write(b"hello")
    said = await reader.readexactly(5)
    writer.transport.abort()
    return said


async def test_what_is_no_handshake_ends_alone(
    bound: socket.socket, server: Server, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with ExitStack() as stack:
        async with listening(bound, server, tls[0]) as listener:
            assert await is_cut_after_an_alert(connect(bound, stack, sent=b"GET / HTTP/1.1\r\n\r\n"))
            assert await echoed(bound, tls[1]) == b"hello"
            await until(lambda: not listener._sources)


async def is_cut_after_an_alert(client: socket.socket) -> bool:
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(client, 1024):
            pass
    except ConnectionError:
        pass
    return True


async def test_what_waits_when_the_server_stops_is_cut(
    bound: socket.socket, server: Server, tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    with ExitStack() as stack:
        async with listening(bound, server, tls[0]) as listener:
            silent, under_way = connect(bound, stack, sent=b""), connect(bound, stack, sent=b"\x16\x03\x01")
            await until(lambda: server.made == 1 and len(listener._silent) == 1)
            listener.close()
            await listener.wait_closed()
            assert await is_cut(silent)
            assert await is_cut(under_way)
            assert listener._sources == {}


def test_one_client_cannot_choose_among_many_ipv6_addresses() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")
