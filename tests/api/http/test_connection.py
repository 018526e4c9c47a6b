"""One port for HTTP and for upgrades: what stays HTTP is as before; what is upgraded is bounded, orderly, and ends."""

import asyncio
import base64
import os
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from app.api.streams import channels
from app.api.streams.exec_attach import CommandStreams, success_status
from app.api.streams.port_forward import Forward
from app.runtimes.spdy import Data, Encoder, GoAway, Reset
from tests.api.servers import PATH, connected, listening, made, status

EXEC = f"{PATH}/exec?stdout=true&stderr=true&command=ls"
SPDY = "Host: x\nConnection: Upgrade\nUpgrade: SPDY/3.1"
V4 = "X-Stream-Protocol-Version: v4.channel.k8s.io"
GREETING = "GET /version HTTP/1.1\nHost: x"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with listening(made()) as port:
        yield port


def socket(port: int, path: str, *protocols: Any, **options: Any) -> connect:
    return connect(f"ws://127.0.0.1:{port}{path}", subprotocols=protocols or None, compression=None, **options)


async def everything(websocket: ClientConnection) -> list[bytes | str]:
    """Every message until the server closes."""
    return [message async for message in websocket]


# What stays HTTP


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "SPDY/3.1", "nonsense"])
async def test_a_path_that_does_not_stream_answers_and_the_connection_goes_on(port: int, upgrade: str) -> None:
    request = f"{GREETING}\nConnection: Upgrade\nUpgrade: {upgrade}"
    rest = f"{request}\n\n{GREETING}\nConnection: close\n\n".replace("\n", "\r\n").encode()

    async with connected(port, request, rest) as (head, client):
        answers = head + await client.reader.read()

    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answers.count(b'"gitVersion"') == 3


async def test_many_requests_in_one_segment_are_answered_in_turn(port: int) -> None:
    upgrade = f"{GREETING}\nConnection: Upgrade\nUpgrade: h2c\n\n".replace("\n", "\r\n").encode()

    async with connected(port, GREETING, upgrade * 3000 + b"GET /api HTTP/1.1\r\nConnection: close\r\n\r\n") as (_, it):
        answers = await asyncio.wait_for(it.reader.read(), 60)

    assert answers.count(b'"gitVersion"') == 3001
    assert answers.endswith(b'{"kind":"APIVersions","versions":["v1"]}')


async def test_a_request_for_an_upgrade_may_have_a_body(port: int) -> None:
    body = os.urandom(200_000)
    request = f"POST /body HTTP/1.1\nHost: x\nConnection: Upgrade\nUpgrade: h2c\nContent-Length: {len(body)}"

    async with connected(port, request, body + b"GET /api HTTP/1.1\r\nConnection: close\r\n\r\n") as (_, client):
        answers = await client.reader.read()

    assert answers.startswith(body + b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("request_", "code", "said"),
    [
        pytest.param(f"GET {EXEC} HTTP/1.1\nHost: x", 400, "Upgrade request required", id="without an upgrade"),
        pytest.param(f"POST {EXEC} HTTP/1.0\n{SPDY}", 400, "Upgrade request required", id="in HTTP/1.0"),
        pytest.param(
            f"POST {EXEC} HTTP/1.1\nHost: x\nUpgrade: SPDY/3.1",
            400,
            "Upgrade request required",
            id="without a Connection header",
        ),
        pytest.param(f"POST {EXEC} HTTP/1.1\n{SPDY.replace('SPDY/3.1', 'h2c')}", 400, "Upgrade request", id="to h2c"),
        pytest.param(
            f"POST {PATH}/exec HTTP/1.1\n{SPDY}",
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
            id="without streams",
        ),
        pytest.param(
            f"POST {EXEC} HTTP/1.1\n{SPDY}\nX-Stream-Protocol-Version: v9\nX-Stream-Protocol-Version: v8",
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [v9 v8], server accepts [v4",
            id="in a protocol that nobody knows",
        ),
        pytest.param(
            f"GET {EXEC} HTTP/1.1\n{SPDY.replace('SPDY/3.1', 'websocket')}",
            400,
            "Sec-WebSocket-Version: 13",
            id="to a WebSocket without a version",
        ),
        pytest.param(
            f"GET {EXEC} HTTP/1.1\n{SPDY.replace('SPDY/3.1', 'websocket')}\n"
            "Sec-WebSocket-Version: 13\nSec-WebSocket-Key: short",
            400,
            "Sec-WebSocket-Key must be 16 bytes",
            id="to a WebSocket without a key",
        ),
        pytest.param(
            f"GET {PATH}/portforward HTTP/1.1\n{SPDY.replace('SPDY/3.1', 'websocket')}",
            400,
            'query parameter \\"ports\\" is required',
            id="to a WebSocket without ports",
        ),
    ],
)
async def test_no_stream_is_opened(port: int, request_: str, code: int, said: str) -> None:
    if "ports" in said:
        request_ += "\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)).decode()
    async with connected(port, request_) as (head, client):
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        body = await client.reader.readexactly(length)

    assert f" {code} ".encode() in head
    assert said in body.decode()


# WebSocket


OUTCOME = {"metadata": {}, "status": "Success"}


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
async def test_a_command_over_binary_channels(port: int, protocol: str) -> None:
    async with socket(port, EXEC, "unknown", protocol, "channel.k8s.io") as websocket:
        first, *others, last = await everything(websocket)

    assert websocket.subprotocol == protocol
    assert (first, others) == (b"\x01", [b"\x01ls\n", b"\x02err\n"])
    assert last[:1] == b"\x03"
    assert status(last[1:]) == OUTCOME
    assert websocket.close_code == 1000


async def test_a_command_over_base64_channels(port: int) -> None:
    async with socket(port, f"{EXEC}&stdin=1", "v4.base64.channel.k8s.io") as websocket:
        await websocket.send("0" + base64.b64encode(b"hello").decode())
        await websocket.send("0not base64")
        messages = [await websocket.recv() for _ in range(4)]

    assert messages == ["1", "1bHMK", "2ZXJyCg==", "1aGVsbG8="]


async def test_old_protocols_end_with_the_message_of_a_failure_only(port: int) -> None:
    async with socket(port, EXEC.replace("=ls", "=refuse")) as websocket:
        messages = await everything(websocket)
        assert websocket.subprotocol is None
    assert messages[-1] == b"\x03no such thing"

    async with socket(port, EXEC, "channel.k8s.io") as websocket:
        assert await everything(websocket) == [b"\x01", b"\x01ls\n", b"\x02err\n"]


async def test_what_goes_wrong_inside_is_not_told(port: int, caplog: pytest.LogCaptureFixture) -> None:
    async with socket(port, EXEC.replace("=ls", "=fail"), "v4.channel.k8s.io") as websocket:
        *_, last = await everything(websocket)

    assert status(last[1:])["code"] == 500
    assert "secret" not in str(last)
    assert "secret" in caplog.text


async def test_version_5_ends_one_channel(port: int) -> None:
    async with socket(port, f"{EXEC}&stdin=true", "v5.channel.k8s.io") as websocket:
        await websocket.send([b"\x00", b"some", b"", b" text"])  # in fragments
        await websocket.send(b"\x07nowhere")
        await websocket.send(b"")
        await websocket.send(b"\xff\x00")
        await websocket.send(b"\x00too late")
        messages = await everything(websocket)

    assert messages[3:-1] == [b"\x01some text"]
    assert status(messages[-1][1:]) == OUTCOME


async def test_an_unknown_subprotocol_is_refused(port: int) -> None:
    with pytest.raises(InvalidStatus) as refusal:
        await socket(port, EXEC, "v9.channel.k8s.io").__aenter__()
    assert refusal.value.response.status_code == 400


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        pytest.param(Frame(Opcode.BINARY, b"x").serialize(mask=False), 1002, id="a frame without a mask"),
        pytest.param(b"\xf2\x80\0\0\0\0", 1002, id="reserved bits"),
        pytest.param(Frame(Opcode.CONT, b"x").serialize(mask=True), 1002, id="the rest of nothing"),
        pytest.param(b"\x82\xff" + struct.pack(">Q", 1 << 40) + b"\0\0\0\0", 1009, id="a message without end"),
        pytest.param(b"\x88\x82\0\0\0\0\x03\xe8", 1000, id="the end"),
    ],
)
async def test_the_server_closes_at(port: int, wire: bytes, code: int) -> None:
    async with socket(port, f"{EXEC}&stdin=true", "v4.channel.k8s.io") as websocket:
        websocket.transport.write(wire)
        await asyncio.wait_for(websocket.wait_closed(), 20)
    assert websocket.close_code == code


async def test_pings_are_answered_and_sent(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "PING_SECONDS", 0.01)
    async with socket(port, f"{EXEC}&stdin=true", "v4.channel.k8s.io") as websocket:
        await asyncio.wait_for(await websocket.ping(), 20)


async def test_ports_over_channels(port: int) -> None:
    async with socket(port, f"{PATH}/portforward?ports=80,1&ports=8080", "v4.channel.k8s.io") as websocket:
        for number in (0, 4):
            await websocket.send(bytes([number]) + b"hi\r\n\r\n")
        messages = await everything(websocket)

    ports = [bytes([at]) + struct.pack("<H", (80, 1, 8080)[at // 2]) for at in range(6)]
    assert messages[:6] == ports
    told = {message[:1]: message[1:] for message in messages[6:]}
    assert told[b"\x00"].endswith(b"port 80 got 6")
    assert told[b"\x03"] == b"connection refused"
    assert told[b"\x04"].endswith(b"port 8080 got 6")


# SPDY


async def test_a_command_over_spdy(port: int) -> None:
    request = (
        f"POST {EXEC}&stdin=true HTTP/1.1\n{SPDY}\nX-Stream-Protocol-Version: v5.channel.k8s.io, v4.channel.k8s.io"
    )
    async with connected(port, request) as (head, client):
        assert b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n" in head
        client.open("nonsense")
        assert await client.next() == Reset(1, 3)
        error, stdin, stdout, stderr = (client.open(kind) for kind in ("error", "stdin", "stdout", "stderr"))
        client.send(stdin, b"some")
        client.send(99, b"for nobody")
        client.send(stdin, b" text", end=True)
        frames = [frame async for frame in iter_of(client)]

    told = {
        stream: b"".join(f.data for f in frames if isinstance(f, Data) and f.stream == stream)
        for stream in (error, stdout, stderr)
    }
    assert (told[stdout], told[stderr], status(told[error])) == (b"ls\nsome text", b"err\n", OUTCOME)
    assert {frame.stream for frame in frames if isinstance(frame, Data) and frame.end} == {error, stdout, stderr}
    assert isinstance(frames[-1], GoAway)


async def iter_of(client: Any) -> AsyncIterator[Any]:
    """Until the server says that it is over; then the client closes, which the server waits for."""
    while frame := await client.next():
        yield frame
        if isinstance(frame, GoAway):
            return


async def test_what_comes_with_the_request_is_not_lost(port: int) -> None:
    encoder = Encoder()
    eager = b"".join(encoder.open(1 + 2 * at, {"streamtype": kind}) for at, kind in enumerate(("error", "stdout")))

    async with connected(port, f"POST {PATH}/exec?stdout=1&command=ls HTTP/1.1\n{SPDY}\n{V4}", eager) as (_, client):
        assert await client.all_of(3) == b"ls\n"


@pytest.mark.parametrize(
    "wire",
    [
        pytest.param(b"\x80\x02\0\1\0\0\0\0", id="another version"),
        pytest.param(Encoder().open(2, {"streamtype": "error"}), id="a stream with an even number"),
        pytest.param(Encoder().open(1, {"streamtype": "x" * 90_000}), id="headers that unpack to too much"),
    ],
)
async def test_nonsense_ends_an_spdy_connection(port: int, wire: bytes) -> None:
    async with connected(port, f"POST {EXEC} HTTP/1.1\n{SPDY}\n{V4}") as (_, client):
        client.writer.write(wire)
        frame = await client.next()
        assert frame is None or (isinstance(frame, GoAway) and frame.status == 1)


async def test_connections_to_ports_come_and_go_on_one_spdy_connection(port: int) -> None:
    request = f"POST {PATH}/portforward HTTP/1.1\n{SPDY}\nX-Stream-Protocol-Version: portforward.k8s.io"
    async with connected(port, request) as (_, client):
        for number in range(3):
            client.open("error", port="80", requestid=str(number))
            data = client.open("data", port="80", requestid=str(number))
            client.send(data, b"\r\n\r\n", end=True)
            assert (await client.all_of(data)).endswith(b"port 80 got 4")

        error, data = client.open("error", port="1"), client.open("data", port="1")  # as clients did before requestid
        assert await client.all_of(error) == b"connection refused"
        for headers in ({"port": "0"}, {"port": "65536"}, {"port": "x"}, {}):
            refused = client.open("data", **headers)
            while (frame := await client.next()) != Reset(refused, 3):
                assert frame == Data(data, b"", end=True)


# Flow and ends


async def test_a_client_that_does_not_read_holds_up_the_command() -> None:
    written = 0
    blocked = asyncio.Event()

    async def pour(arguments: list[str], command: CommandStreams) -> dict[str, Any]:
        nonlocal written
        assert command.stdout
        for _ in range(100):
            asyncio.get_running_loop().call_later(0.3, tell, written)
            await command.stdout.write(bytes(250_000))
            written += 250_000
        return success_status()

    def tell(before: int) -> None:
        if before == written:
            blocked.set()

    async with (
        listening(made(pour)) as port,
        connected(port, f"POST {PATH}/exec?stdout=1 HTTP/1.1\n{SPDY}\n{V4}") as at,
    ):
        _, client = at
        client.open("error")
        stdout = client.open("stdout")
        await asyncio.wait_for(blocked.wait(), 20)
        assert written < 20_000_000
        assert len(await client.all_of(stdout)) == 25_000_000


async def test_a_command_that_does_not_read_holds_up_the_client() -> None:
    proceed = asyncio.Event()
    received = 0

    async def wait(arguments: list[str], command: CommandStreams) -> dict[str, Any]:
        nonlocal received
        assert command.stdin
        await proceed.wait()
        while data := await command.stdin.read():
            assert len(data) <= channels.MOST_BUFFERED + 65536
            received += len(data)
        return success_status()

    async with listening(made(wait)) as port, connected(port, f"POST {PATH}/exec?stdin=1 HTTP/1.1\n{SPDY}\n{V4}") as at:
        _, client = at
        error, stdin = client.open("error"), client.open("stdin")
        client.send(stdin, bytes(16_000_000))
        client.send(stdin, bytes(16_000_000), end=True)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.writer.drain(), 0.3)
        proceed.set()
        assert status(await client.all_of(error)) == OUTCOME
    assert received == 32_000_000


async def test_a_client_that_leaves_ends_the_command() -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def run(arguments: list[str], command: CommandStreams) -> dict[str, Any]:
        assert command.stdin
        assert command.stdout
        assert await command.stdin.read() == b"last words"
        assert await command.stdin.read() == b""
        ended.put_nowait("stdin")
        try:
            await command.stdout.write(b"hello?")
        except ConnectionError:
            ended.put_nowait("stdout")
        return success_status()

    async with listening(made(run)) as port:
        async with socket(port, f"{PATH}/exec?stdin=1&stdout=1", "v4.channel.k8s.io") as websocket:
            await websocket.send(b"\x00last words")
        assert [await asyncio.wait_for(ended.get(), 20) for _ in range(2)] == ["stdin", "stdout"]


async def test_a_stopping_server_ends_what_is_open() -> None:
    async def forward(forward: Forward) -> None:
        await asyncio.Event().wait()

    async with listening(made(forward=forward)) as port:
        websocket = await socket(port, f"{EXEC}&stdin=true", "v4.channel.k8s.io").__aenter__()
        assert await websocket.recv() == b"\x01"
        request = f"POST {PATH}/portforward HTTP/1.1\n{SPDY}"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")

    await websocket.wait_closed()
    assert websocket.close_code == 1001
    assert (await reader.read())[:4] == struct.pack(">HH", 0x8003, 7)
    writer.close()


async def test_many_idle_connections_are_no_burden(port: int) -> None:
    sockets = [await socket(port, f"{EXEC}&stdin=true", "v4.channel.k8s.io").__aenter__() for _ in range(200)]
    async with connected(port, GREETING) as (head, _):
        assert b" 200 " in head
    await asyncio.gather(*(each.close() for each in sockets))
