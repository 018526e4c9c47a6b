"""Write coalescing: what the other end of a connection has received, and when."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from app.api.http.write_coalescing import CoalescingTransport

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class Wire:
    """A connection whose transport is wrapped; `received`: what has arrived since the last call."""

    def __init__(self, transport: CoalescingTransport, peer: socket.socket) -> None:
        self.transport, self._peer = transport, peer

    def received(self) -> bytes:
        try:
            return self._peer.recv(1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.setblocking(False)
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
        yield Wire(CoalescingTransport(transport), peer)
        transport.abort()


async def test_the_answer_to_a_read_leaves_with_its_body(wire: Wire) -> None:
    wire.transport.is_read = True
    wire.transport.write(HEAD)
    assert wire.received() == b""

    wire.transport.write(BODY)

    assert wire.received() == HEAD + BODY


async def test_the_answer_to_a_write_leaves_after_the_turn_of_the_loop(wire: Wire) -> None:
    wire.transport.write(HEAD)
    wire.transport.write(BODY)
    assert wire.received() == b""

    await asyncio.sleep(0)

    assert wire.received() == HEAD + BODY


async def test_a_head_does_not_wait_for_its_body_longer_than_that(wire: Wire) -> None:
    wire.transport.is_read = True
    wire.transport.write(HEAD)

    await asyncio.sleep(0)

    assert wire.received() == HEAD
    wire.transport.write(BODY)
    assert wire.received() == BODY


async def test_no_more_than_64_kib_are_held(wire: Wire) -> None:
    wire.transport.write(HEAD)
    wire.transport.write(bytes(64 << 10))

    assert wire.received() == HEAD + bytes(64 << 10)


async def test_what_is_held_leaves_before_the_end(wire: Wire) -> None:
    wire.transport.write(HEAD)

    wire.transport.close()

    assert wire.received() == HEAD
