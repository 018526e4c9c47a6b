"""One HTTP connection, against a server that sends what the test says, byte for byte."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Semaphore

import httpx
import pytest

from app.api.auth import certificates
from app.client.http_connection import MOST_HEAD_BYTES, MOST_UNREAD, PATIENT, HttpConnection

OK = b"HTTP/1.1 200 OK\r\n"
PATIENCE = 30
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(
    talk: Talk,
    idle_seconds: float = 60.0,
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    turns: asyncio.Semaphore | None = None,
) -> AsyncIterator[tuple[HttpConnection, str]]:
    """A connection, and the address of a server that has `talk` with each that dials.

    tls: what the server and the client bring, for a server over TLS.
    """
    theirs, ours = tls or (None, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    tasks: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(converse(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=theirs)
    made = HttpConnection(ours, (), idle_seconds, turns or asyncio.Semaphore())
    try:
        async with asyncio.timeout(PATIENCE):
            yield made, f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    finally:
        await made.aclose()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(*answers: bytes) -> Talk:
    """Each request gets the next answer; after the last the connection ends."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return talk


async def ask(connection: HttpConnection, url: str, seconds: float | None = None) -> httpx.Response:
    request = httpx.Request("GET", url, extensions={"timeout": {"connect": 5.0, "read": seconds}})
    response = await connection.handle_async_request(request)
    try:
        await response.aread()
    finally:
        await response.aclose()
    return response


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK + b"Content-Length: 5\r\n\r\nhello", id="with its length"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", id="in chunks"),
        pytest.param(OK + b"\r\nhello", id="until the end of the connection"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nhello", id="of an old server"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 5\r\n\r\nhello", id="after a 100"),
    ],
)
async def test_a_body_is_read_to_its_end(answer: bytes) -> None:
    async with connected(answering(answer)) as (connection, url):
        response = await ask(connection, url)
        assert (response.status_code, response.content) == (200, b"hello")


async def test_a_patient_request_dials_in_its_turn_and_others_at_once() -> None:
    turns = asyncio.Semaphore(0)
    answer = OK + b"Content-Length: 0\r\n\r\n"
    async with connected(answering(answer), turns=turns) as (connection, url):
        patient = httpx.Request("GET", url, extensions={PATIENT: True})
        waiting = asyncio.create_task(connection.handle_async_request(patient))
        assert (await ask(connection, url)).status_code == 200
        assert not waiting.done()
        turns.release()
        response = await waiting
        await response.aclose()
        assert (response.status_code, turns.locked()) == (200, False)


async def test_headers_and_status_are_the_servers() -> None:
    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nX-Two: a\r\nX-Two: b\r\n\r\n"
    async with connected(answering(answer)) as (connection, url):
        response = await ask(connection, url)
        assert response.status_code == 404
        assert response.headers.get_list("x-two") == ["a", "b"]


async def test_a_request_is_sent_as_it_was_made() -> None:
    received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        received.set_result(head + await reader.readexactly(2))
        writer.write(OK + b"Content-Length: 0\r\n\r\n")

    async with connected(talk) as (connection, url):
        request = httpx.Request("POST", f"{url}?a=%20", content=b"{}", headers={"X-One": "1"})
        await connection.handle_async_request(request)
        head, _, body = (await received).partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    assert line == b"POST /x?a=%20 HTTP/1.1"
    assert {b"X-One: 1", b"Content-Length: 2"} <= set(headers)
    assert body == b"{}"


async def _ports(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with the client's port: another one, another connection."""
    while True:
        await reader.readuntil(b"\r\n\r\n")
        port = b"%d" % writer.get_extra_info("peername")[1]
        writer.write(OK + b"Content-Length: %d\r\n\r\n%b" % (len(port), port))


async def test_it_stays_open_for_the_next_request_unless_it_was_idle_for_too_long() -> None:
    async with connected(_ports) as (connection, url):
        assert len({(await ask(connection, url)).content for _ in range(3)}) == 1
    async with connected(_ports, idle_seconds=-1.0) as (connection, url):
        assert len({(await ask(connection, url)).content for _ in range(3)}) == 3


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(OK + b"Content-Length: 0\r\nConnection: close\r\n\r\n", id="the server says close"),
        pytest.param(OK + b"Content-Length: 0\r\n\r\n", id="the server hangs up"),
        pytest.param(OK + b"Content-Length: 0\r\n\r\nHTTP/1.1 408 Late\r\n\r\n", id="the server goes on talking"),
    ],
)
async def test_one_that_cannot_go_on_is_dialled_anew(answer: bytes) -> None:
    async with connected(answering(answer)) as (connection, url):
        for _ in range(3):
            assert (await ask(connection, url)).status_code == 200
            while connection.is_open:  # noqa: ASYNC110 - its end is the event
                await asyncio.sleep(0)


async def test_one_that_has_ended_unseen_is_not_used_again() -> None:
    """Its end is in the kernel when the next request comes, and the event loop has not looked yet."""
    ended = Semaphore(0)

    def serve() -> None:
        for _ in range(2):
            talk, _ = server.accept()
            with talk:
                talk.recv(1 << 16)
                talk.sendall(OK + b"Content-Length: 0\r\n\r\n")
            ended.release()

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = asyncio.get_running_loop().run_in_executor(None, serve)
        connection = HttpConnection(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), (), 60.0, asyncio.Semaphore())
        for _ in range(2):
            assert (await ask(connection, f"http://127.0.0.1:{server.getsockname()[1]}/x")).status_code == 200
            ended.acquire()  # nothing else runs on the loop
        await serving
    await connection.aclose()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(b"", "disconnected without sending a response", id="nothing"),
        pytest.param(b"HTTP/1.1 200", "disconnected without sending a response", id="half a head"),
        pytest.param(OK + b"Content-Length: 9\r\n\r\nhello", "before the end of its answer", id="half a body"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "before the end of its answer", id="no last chunk"
        ),
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", "Expected HTTP", id="no HTTP"),
        pytest.param(OK + b"X: " + b"x" * (MOST_HEAD_BYTES + 1), "too long", id="a head without end"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes, error: str) -> None:
    async with connected(answering(answer)) as (connection, url):
        with pytest.raises(httpx.RemoteProtocolError, match=error):
            await ask(connection, url)


async def test_a_server_that_says_nothing_is_waited_for_only_so_long() -> None:
    async def talk(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with connected(talk) as (connection, url):
        with pytest.raises(httpx.ReadTimeout):
            await ask(connection, url, seconds=0.01)


async def test_nobody_there_is_an_error_of_the_system() -> None:
    async with connected(_ports) as (connection, _):
        with pytest.raises(httpx.ConnectError) as raised:
            await ask(connection, "http://127.0.0.1:9/")
        assert isinstance(raised.value.__cause__, ConnectionRefusedError)


async def test_a_header_with_a_line_break_is_not_sent() -> None:
    async with connected(_ports) as (connection, url):
        with pytest.raises(httpx.LocalProtocolError):
            await connection.handle_async_request(httpx.Request("GET", url, headers={"X": "a\r\nY: b"}))


async def test_a_body_that_is_not_read_holds_up_the_server() -> None:
    sent = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: %d\r\n\r\n" % (200 * MOST_UNREAD))
        for _ in range(200):
            writer.write(b"x" * MOST_UNREAD)
            await writer.drain()
            sent += 1

    async with connected(talk) as (connection, url):
        response = await connection.handle_async_request(httpx.Request("GET", url))
        before = -1
        while before < sent:  # until it stands still
            before = sent
            for _ in range(100):
                await asyncio.sleep(0)
        assert sent < 200
        body = await response.aread()
        assert len(body) == 200 * MOST_UNREAD


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    made = certificates.ensure(tmp_path, ["127.0.0.1"])
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.load_cert_chain(made.cert, made.key)
    ours.load_verify_locations(made.ca)
    return theirs, ours


async def test_a_connection_over_tls_that_broke_is_closed(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    is_answered, is_gone = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answering(OK + b"Content-Length: 0\r\n\r\n")(reader, writer)
        await is_answered.wait()
        writer.write(b"unsolicited")
        await reader.read()
        is_gone.set()

    async with connected(talk, tls=tls) as (connection, url):
        await ask(connection, url)
        is_answered.set()
        await is_gone.wait()
        await connection.aclose()
    assert not connection.is_open


@pytest.mark.parametrize("steps", range(16))
async def test_a_connection_over_tls_is_found_lost_at_each_step_of_its_end(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], steps: int
) -> None:
    async with connected(answering(OK + b"Content-Length: 0\r\n\r\n"), tls=tls) as (connection, url):
        await ask(connection, url)
        for _ in range(steps):
            await asyncio.sleep(0)
        with suppress(httpx.RemoteProtocolError, httpx.ReadError):  # it was asked before its end could be known
            assert (await ask(connection, url)).status_code == 200
