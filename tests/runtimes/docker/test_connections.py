"""Events and streams from what passes for a Docker Engine, and hangs up."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.runtimes.docker.containers import DockerContainers
from app.runtimes.docker.engine import DockerEngine
from app.runtimes.docker.logs import EngineLogs
from app.runtimes.docker.sandboxes import DockerSandboxes
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.files import Files

OK = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.fixture(params=["unix", "tcp"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX if request.param == "unix" else socket.AF_INET) as made:
        made.bind(str(tmp_path / "socket") if request.param == "unix" else ("127.0.0.1", 0))
        made.listen()
        made.setblocking(False)
        yield made


@pytest.fixture
async def engine(listening: socket.socket) -> AsyncIterator[DockerEngine]:
    address = listening.getsockname()
    made = DockerEngine(f"unix://{address}" if isinstance(address, str) else f"tcp://{address[0]}:{address[1]}/")
    made.api_version = "v1.41"  # or it would ask
    yield made
    await made.close()


async def accepted(listening: socket.socket) -> socket.socket:
    connection, _ = await asyncio.get_running_loop().sock_accept(listening)
    connection.setblocking(True)
    return connection


@pytest.mark.parametrize("block", [7, 65536])
async def test_all_that_an_engine_sent_arrives_though_it_was_killed(
    listening: socket.socket, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """It has not read what it was asked, so that the connection is reset."""
    monkeypatch.setattr("app.runtimes.docker.connections._BLOCK", block)
    events = engine.hear_events(filters="{}")
    first = asyncio.ensure_future(anext(events))
    with await accepted(listening) as connection:
        connection.sendall(OK + b'{"number": 0}\n')
        assert await first == {"number": 0}
        connection.sendall(b'{"number": 1}\n\n{"number": 2}\n{"num')
    assert [await anext(events) for _ in range(2)] == [{"number": 1}, {"number": 2}]
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(events)


async def test_it_is_asked_so_that_nothing_comes_in_chunks(listening: socket.socket, engine: DockerEngine) -> None:
    events = engine.hear_events(filters='{"type": ["container"]}')
    first = asyncio.ensure_future(anext(events))
    with await accepted(listening) as connection:
        asked = await asyncio.to_thread(connection.recv, 65536)
    with pytest.raises(ConnectionError):
        await first

    assert asked.split(b"\r\n")[0] == b"GET /v1.41/events?filters=%7B%22type%22%3A+%5B%22container%22%5D%7D HTTP/1.0"


async def test_a_refusal_is_one_in_the_engine_s_words(listening: socket.socket, engine: DockerEngine) -> None:
    first = asyncio.ensure_future(anext(engine.hear_events()))
    with await accepted(listening) as connection:
        connection.sendall(b'HTTP/1.0 400 Bad Request\r\n\r\n{"message": "no such filter"}\n')
        with pytest.raises(EngineError, match="Error response from daemon: no such filter") as found:
            await first
    assert found.value.code == "InvalidArgument"


@pytest.mark.parametrize(
    ("said", "error", "losses"),
    [
        pytest.param(b"HTTP/1.0 403 Forbidden\r\n\r\n", EngineError, 0, id="refused"),
        pytest.param(OK, ConnectionError, 1, id="hung up"),
    ],
)
async def test_an_engine_loses_nothing_by_refusing_to_tell_of_ends(
    listening: socket.socket, engine: DockerEngine, tmp_path: Path, said: bytes, error: type[Exception], losses: int
) -> None:
    files = Files(tmp_path / "files")
    containers = DockerContainers(engine, files, EngineLogs(engine, files), "node", DockerSandboxes(engine, "node"))
    for _ in range(2):
        first = asyncio.ensure_future(anext(containers.ends()))
        with await accepted(listening) as connection:
            connection.sendall(said)
        with pytest.raises(error):
            await first

    assert len(containers.recovery._losses) == losses


@pytest.mark.parametrize(
    "said", [b"", b"HTTP/1.0 200", b"\r\n\r\n", b"what do you want?\r\n\r\n", OK + b"50\r\n", OK + b"{\n"]
)
async def test_what_makes_no_sense_is_no_answer(listening: socket.socket, engine: DockerEngine, said: bytes) -> None:
    first = asyncio.ensure_future(anext(engine.hear_events()))
    with await accepted(listening) as connection:
        connection.sendall(said)
    with pytest.raises(ConnectionError, match="does not answer"):
        await first


async def test_a_refusal_without_words_is_one(listening: socket.socket, engine: DockerEngine) -> None:
    first = asyncio.ensure_future(anext(engine.hear_events()))
    with await accepted(listening) as connection:
        connection.sendall(b"HTTP/1.0 403 Forbidden\r\n\r\n")
    with pytest.raises(EngineError) as found:
        await first
    assert found.value.code == "PermissionDenied"


async def test_an_engine_that_is_not_there_is_a_connection_error(
    listening: socket.socket, engine: DockerEngine
) -> None:
    listening.close()
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(engine.hear_events())


async def test_what_comes_with_the_head_is_of_the_stream(listening: socket.socket, engine: DockerEngine) -> None:
    asking = asyncio.ensure_future(engine.upgrade("exec/x/start", {"Tty": True}))
    with await accepted(listening) as connection:
        connection.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\nearly ")
        reader, writer = await asking
        connection.sendall(b"late")
        assert await reader.readexactly(10) == b"early late"
        assert (await asyncio.to_thread(connection.recv, 65536)).endswith(
            b'\r\nContent-Length: 13\r\n\r\n{"Tty": true}'
        )
        writer.write(b"word")
        writer.write_eof()
        assert await asyncio.to_thread(connection.recv, 65536) == b"word"
        assert await asyncio.to_thread(connection.recv, 65536) == b""
    writer.close()
    await writer.wait_closed()
