"""Requests of one client: so many at a time, in order, and what is urgent does not wait. Against a server of real sockets."""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from app.client.api import AT_ONCE, START_SECONDS, Api, Connections, NotUpYetError, UnreachableError

PATIENCE = 30
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers what it may. `asked`: paths in the order of their requests; `dialled`: how many connections it has had."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.dialled = 0
        self._news = asyncio.Event()
        self._may_answer: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode()
                self.asked.append(path)
                self._news.set()
                await self._may_answer[path].wait()
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.asked) < count:
                self._news.clear()
                await self._news.wait()

    def answer(self, *paths: str) -> None:
        for path in paths:
            self._may_answer[path].set()


@asynccontextmanager
async def talking() -> AsyncIterator[tuple[Server, Api]]:
    server = Server()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(server.converse(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    api = Api(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        yield server, api
    finally:
        await api.close()
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_requests_wait_in_order_and_urgent_ones_do_not() -> None:
    paths = [f"/{number}" for number in range(5 * AT_ONCE)]
    async with talking() as (server, api):
        requests = [asyncio.create_task(api.request("GET", path)) for path in paths]
        await server.until(AT_ONCE)
        urgent = asyncio.create_task(api.request("GET", "/urgent", urgent=True))
        await server.until(AT_ONCE + 1)
        assert sorted(server.asked) == sorted([*paths[:AT_ONCE], "/urgent"])

        for number, path in enumerate(paths[:-AT_ONCE], AT_ONCE + 2):  # one is answered, and one is asked
            server.answer(path)
            await server.until(number)
        server.answer("/urgent", *paths)
        await asyncio.gather(*requests, urgent)

    assert server.asked[AT_ONCE + 1 :] == paths[AT_ONCE:]
    assert server.dialled == AT_ONCE + 1


async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with talking() as (server, api):
        server.answer("/x")
        for _ in range(5):
            assert await api.request("GET", "/x") == b"{}"

    assert server.dialled == 1


async def _stream(api: Api) -> None:
    async with api.stream("/x") as pieces:
        async for _ in pieces:
            break


async def _request(api: Api) -> None:
    await api.request("GET", "/x")


@pytest.mark.parametrize("ask", [pytest.param(_request, id="request"), pytest.param(_stream, id="stream")])
async def test_a_request_that_is_given_up_leaves_no_answer_to_the_next(ask: Callable[[Api], Awaitable[None]]) -> None:
    async with talking() as (server, api):
        given_up = asyncio.ensure_future(ask(api))
        await server.until(1)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        server.answer("/next")

        assert await api.request("GET", "/next") == b"{}"

    assert server.dialled == 2


async def test_a_client_that_found_no_server_finds_it_once_it_is_there() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        api = Api(f"http://127.0.0.1:{port}")
        with pytest.raises(UnreachableError):
            await api.request("GET", "/x")

        server = Server()
        server.answer("/x")
        reserved.listen()
        async with await asyncio.start_server(server.converse, sock=reserved.dup()):
            assert await api.request("GET", "/x") == b"{}"
            await api.close()


async def test_only_an_api_that_never_answered_may_still_be_starting() -> None:
    """Then its silence is no warning: `jobplane up` starts API and agent at the same time."""
    times = [0.0]

    def answer(_: httpx.Request) -> httpx.Response:
        if times[0] == 5:
            return httpx.Response(200)
        raise httpx.ConnectError("refused")

    async def failure(api: Api) -> type[Exception]:
        with pytest.raises(UnreachableError) as raised:
            await api.request("GET", "/livez")
        return raised.type

    starting, answered = (
        Api("http://api", transport=httpx.MockTransport(answer), monotonic=lambda: times[0]) for _ in range(2)
    )
    assert await failure(starting) is NotUpYetError
    times[0] = 5
    await answered.request("GET", "/livez")
    times[0] = 6
    assert await failure(answered) is UnreachableError
    assert await failure(starting) is NotUpYetError
    times[0] = START_SECONDS + 1
    assert await failure(starting) is UnreachableError


class Connection(httpx.AsyncBaseTransport):
    """One that notes that it was closed."""

    is_closed = False

    async def handle_async_request(self, _: httpx.Request) -> httpx.Response:
        assert not self.is_closed
        return httpx.Response(200, stream=httpx.ByteStream(b""))

    async def aclose(self) -> None:
        self.is_closed = True


async def test_renewed_connections_are_used_by_no_later_request() -> None:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(Connection())
        return made[-1]

    pool, request = Connections(connect), httpx.Request("GET", "http://api")
    idle, open_ = [await pool.handle_async_request(request) for _ in range(2)]
    await idle.aclose()
    await pool.renew()
    assert [each.is_closed for each in made] == [True, False]
    await (await pool.handle_async_request(request)).aclose()
    await open_.aclose()
    assert [each.is_closed for each in made] == [True, True, False]
    await (await pool.handle_async_request(request)).aclose()
    assert len(made) == 3
    await pool.aclose()
