"""What a WebSocket's client is told, and when, that takes its time before it reads: kubectl throws away what comes too early."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from app.api.streams.exec_attach import CommandStreams, success_status
from tests.api.servers import PATH, connected, listening, made

ASKED = """Connection: Upgrade
Upgrade: websocket
Sec-WebSocket-Version: 13
Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==
Sec-WebSocket-Protocol: v5.channel.k8s.io"""


@asynccontextmanager
async def one_that_answers_nothing(
    port: int,
) -> AsyncIterator[tuple[Callable[[], Coroutine[Any, Any, Frame]], Callable[..., None]]]:
    """A client of WebSocket that only does what it is told: the next frame that it gets, and how it sends one."""
    protocol, frames = Protocol(Side.CLIENT), list[Any]()
    request = f"GET {PATH}/exec?stdin=1&stdout=1&stderr=1&command=ls HTTP/1.1\nHost: x\n{ASKED}"
    async with connected(port, request) as (_, client):

        async def received() -> Frame:
            while not frames:
                data = await asyncio.wait_for(client.reader.read(65536), 20)
                assert data, "the server has closed"
                protocol.receive_data(data)
                frames.extend(protocol.events_received())
            frame: Frame = frames.pop(0)
            return frame

        def send(opcode: Opcode, data: bytes = b"") -> None:
            client.writer.write(Frame(opcode, data).serialize(mask=True))

        yield received, send


@pytest.mark.parametrize(
    ("opcode", "data"),
    [
        pytest.param(Opcode.PONG, b"", id="answered a ping"),
        pytest.param(Opcode.BINARY, b"\xff\x00", id="said something"),
    ],
)
async def test_nothing_is_said_until_the_client_has(opcode: Opcode, data: bytes) -> None:
    async with listening(made(answer_seconds=60)) as port, one_that_answers_nothing(port) as (received, send):
        assert (await received()).opcode is Opcode.PING
        early = asyncio.create_task(received())
        assert await asyncio.wait((early,), timeout=0.2) == (set(), {early})

        send(opcode, data)

        assert (await early).data == b"\x01"
        assert [(await received()).data for _ in range(2)] == [b"\x01ls\n", b"\x02err\n"]


async def test_a_client_that_answers_no_ping_is_told_all_the_same() -> None:
    async with listening(made(answer_seconds=0.1)) as port, one_that_answers_nothing(port) as (received, _):
        assert (await received()).opcode is Opcode.PING
        assert [(await received()).data for _ in range(3)] == [b"\x01", b"\x01ls\n", b"\x02err\n"]


async def test_a_client_that_leaves_before_it_answers_is_not_waited_for() -> None:
    begun = asyncio.Event()

    async def run(arguments: list[str], command: CommandStreams) -> dict[str, Any]:
        begun.set()
        return success_status()

    async with listening(made(run, answer_seconds=60)) as port:
        async with one_that_answers_nothing(port) as (received, _):
            assert (await received()).opcode is Opcode.PING
        await asyncio.wait_for(begun.wait(), 20)
