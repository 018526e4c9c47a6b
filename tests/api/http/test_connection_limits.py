"""Limits of a connection, in bytes and in seconds, whoever is at its other end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.api.http import connection_limits
from app.api.http.connection_limits import DISCARDING, UNREAD
from tests.api.servers import listening

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


class App:
    """Reads the whole body, waits for `proceed`, and answers with `size` bytes."""

    def __init__(self, size: int = 2) -> None:
        self.size = size
        self.state = type("State", (), {"streams": set()})()
        self.proceed = asyncio.Event()
        self.proceed.set()
        self.begun = asyncio.Event()
        self.heads = 0
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.heads += 1
        self.begun.set()
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            self.gone.set()
        await self.proceed.wait()
        headers = [(b"content-length", b"%d" % self.size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * self.size})


class Refusing(App):
    """Answers at once, whatever body comes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


class Waiting(App):
    """Answers nothing until its client is gone, as a watch without events."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
async def port(app: App) -> AsyncIterator[int]:
    async with listening(app) as port:
        yield port


@asynccontextmanager
async def client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(30):
            yield reader, writer
    finally:
        writer.transport.abort()


async def head(reader: asyncio.StreamReader) -> bytes:
    """The status line of the next answer, whose body is read over."""
    said = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(said.lower().partition(b"content-length: ")[2].split()[0]))
    return said.partition(b"\r\n")[0]


async def flood(writer: asyncio.StreamWriter) -> None:
    for _ in range(1_000):
        writer.write(b"a" * 100_000)
        await writer.drain()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.005)


# Bytes


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        pytest.param(GET + b"A: " + b"a" * 1_300_000, 431, id="a header without end"),
        pytest.param(b"GET /" + b"a" * 1_300_000, 414, id="a path without end"),
        pytest.param(GET + b"A: " + b"a" * 70_000 + b"\r\n\r\n", 431, id="a long header"),
        pytest.param(GET + (b"A: " + b"a" * 60_000 + b"\r\n") * 20, 431, id="long headers"),
        pytest.param(GET + b"a:\r\n" * 3_000 + b"\r\n", 431, id="many headers"),
        pytest.param(b"GET /?" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414, id="a long query"),
        pytest.param(b"\r\n" * 700_000, 431, id="empty lines before a request"),
        pytest.param(b"nonsense\r\n\r\n", 400, id="no HTTP"),
        pytest.param(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"a" * 1_300_000,
            431,
            id="a trailer without end",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 1_300_000,
            431,
            id="a chunk's extension without end",
        ),
    ],
)
async def test_a_request_is_refused_while_it_arrives(port: int, app: App, sent: bytes, code: int) -> None:
    async with client(port) as (reader, writer):
        writer.write(sent)
        assert (
            await head(reader)
            == {
                400: b"HTTP/1.1 400 Bad Request",
                414: b"HTTP/1.1 414 Request-URI Too Long",
                431: b"HTTP/1.1 431 Request Header Fields Too Large",
            }[code]
        )
        assert await reader.read() == b""
    if b"chunked" in sent:
        await app.gone.wait()
    else:
        assert not app.heads


async def test_what_an_honest_client_sends_is_served(port: int) -> None:
    async with client(port) as (reader, writer):
        for _ in range(3):
            writer.write(GET + b"A: aaaa\r\n" * 1_500 + b"B: " + b"b" * 60_000 + b"\r\n\r\n")
            assert await head(reader) == b"HTTP/1.1 200 OK"


async def test_a_refused_client_that_goes_on_sending_is_cut(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MOST_UNWANTED", 1_000_000)
    async with client(port) as (_, writer):
        with pytest.raises(ConnectionError):
            await flood(writer)


async def test_a_body_is_read_over_after_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(Refusing()) as port, client(port) as (reader, writer):
        for _ in range(2):  # the connection goes on
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n" + bytes(4_000_000))
            assert await head(reader) == b"HTTP/1.1 413 Request Entity Too Large"
        monkeypatch.setattr(connection_limits, "MOST_UNWANTED", 1_000_000)
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            await flood(writer)


async def test_requests_are_not_queued_without_end(port: int, app: App) -> None:
    app.proceed.clear()
    async with client(port) as (reader, writer):
        writer.write((GET + b"\r\n") * 200)
        assert await reader.read() == b""
    app.proceed.set()


async def test_large_bodies_after_their_answers_are_read_at_one_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "DISCARD_SECONDS", 60.0)
    async with listening(Refusing()) as port, client(port) as (reader, writer):
        writer.write(POST.replace(b"1000", b"9000000") + bytes(1_000_000))
        assert await head(reader) == b"HTTP/1.1 413 Request Entity Too Large"
        await until(lambda: len(DISCARDING) == 1)
        (connection,) = DISCARDING
        assert connection.flow.read_paused
    await until(lambda: not DISCARDING)  # a client that is gone is forgotten


async def test_only_so_many_clients_go_on_sending_after_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "DISCARD_SECONDS", 60.0)
    monkeypatch.setattr(connection_limits, "MOST_DISCARDING", 1)
    async with listening(Refusing()) as port, client(port) as (_, first), client(port) as (_, second):
        first.write(POST.replace(b"1000", b"9000000") + bytes(1_000_000))
        await until(lambda: len(DISCARDING) == 1)
        second.write(POST.replace(b"1000", b"9000000"))
        with pytest.raises(ConnectionError):
            await flood(second)


async def test_there_are_only_so_many_connections(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MOST_CONNECTIONS", 1)
    async with client(port) as (reader, writer):
        writer.write(GET + b"\r\n")
        assert await head(reader) == b"HTTP/1.1 200 OK"
        async with client(port) as (refused, _):
            assert await head(refused) == b"HTTP/1.1 503 Service Unavailable"
            assert await refused.read() == b""
        writer.write(GET + b"\r\n")
        assert await head(reader) == b"HTTP/1.1 200 OK"


# Seconds


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_SECONDS", "BODY_STALL_SECONDS", "UNREAD_SECONDS", "LINGER_SECONDS"):
        monkeypatch.setattr(connection_limits, name, 0.2)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"\r\n", b"", id="an empty line"),
        pytest.param(b"GET", b"HTTP/1.1 408 Request Timeout", id="the begin of a request line"),
        pytest.param(GET, b"HTTP/1.1 408 Request Timeout", id="half of the headers"),
        pytest.param(POST, b"HTTP/1.1 408 Request Timeout", id="no body"),
        pytest.param(POST + b"x", b"HTTP/1.1 408 Request Timeout", id="some of a body"),
        pytest.param(
            b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 9\r\n\r\nx",
            b"HTTP/1.1 408 Request Timeout",
            id="some of the body of a request for an upgrade",
        ),
    ],
)
async def test_a_connection_is_ended_that_has_sent(port: int, sent: bytes, answer: bytes) -> None:
    async with client(port) as (reader, writer):
        writer.write(sent)
        assert (await reader.read()).partition(b"\r\n")[0] == answer


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("sent", [b"GET http://a:999999/", b"CONNECT a:1"])
async def test_a_refused_client_that_keeps_its_connection_is_cut(port: int, sent: bytes) -> None:
    async with client(port) as (reader, writer):
        writer.write(sent + b" HTTP/1.1\r\n\r\n")
        assert await head(reader) == b"HTTP/1.1 400 Bad Request"
        while True:  # until the server has gone: it reads over what comes
            try:
                writer.write(b"x")
                await writer.drain()
            except ConnectionError:
                return
            await asyncio.sleep(0.05)


async def test_a_refusal_is_not_taken_for_the_answer_to_the_request_before(port: int, app: App) -> None:
    app.proceed.clear()
    async with client(port) as (reader, writer):
        writer.write(GET + b"\r\n")
        await app.begun.wait()
        writer.write(b"GET http://a:999999/ HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
    app.proceed.set()


async def test_a_request_with_others_behind_it_is_told_that_its_client_has_left() -> None:
    app = Waiting()
    async with listening(app) as port:
        async with client(port) as (_, writer):
            writer.write((GET + b"\r\n") * 2)
            await app.begun.wait()
        async with asyncio.timeout(30):
            await app.gone.wait()


@pytest.mark.usefixtures("hasty")
async def test_a_body_that_drips_is_ended(port: int, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "BODY_SECONDS", 0.5)
    async with client(port) as (reader, writer):
        writer.write(POST)
        answer = asyncio.create_task(reader.readline())
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.05)
        assert answer.result().startswith(b"HTTP/1.1 408 ")
    await app.gone.wait()


@pytest.mark.usefixtures("hasty")
async def test_a_client_that_waits_for_its_answer_is_not_idle(port: int, app: App) -> None:
    app.proceed.clear()
    async with client(port) as (reader, writer), client(port) as (other, _):
        writer.write(GET + b"\r\n")
        await app.begun.wait()
        assert await other.read() == b""  # others have been ended meanwhile
        app.proceed.set()
        assert await head(reader) == b"HTTP/1.1 200 OK"


@pytest.mark.usefixtures("hasty")
async def test_a_client_that_takes_nothing_of_its_answer_is_cut() -> None:
    async with listening(App(50_000_000)) as port, client(port) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined] # only so the kernel's buffers fill
        writer.write(GET + b"\r\n")
        await until(lambda: UNREAD.total)
        await until(lambda: not UNREAD.total)


async def test_of_too_much_that_waits_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MOST_UNREAD", 120_000_000)
    async with listening(App(50_000_000)) as port:
        async with client(port) as first, client(port) as second, client(port) as third:
            for number, (reader, writer) in enumerate((first, second, third)):
                reader._transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(GET + b"\r\n")
                await until(lambda count=number: len(UNREAD._sizes) >= min(count + 1, 2))
            await until(lambda: UNREAD.total < 120_000_000)
            assert len(UNREAD._sizes) == 2
            for reader, _ in (second, third):
                reader._transport.resume_reading()  # type: ignore[attr-defined]
                assert await head(reader) == b"HTTP/1.1 200 OK"
        await until(lambda: not UNREAD.total)
