"""What a server may do to a connection of the client. Against a server of real sockets, which sends what it is told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from app.client.api import Api, UnreachableError
from app.client.http_connection import MOST_BUFFERED

PATIENCE = 30
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Script:
    """What to answer to each request, in order, over all connections. A None in an answer hangs up. `dialled`: so often."""

    def __init__(self, *answers: Sequence[bytes | None]) -> None:
        self._answers = list(answers)
        self.dialled = 0
        self.asked: list[bytes] = []
        self.hung_up = asyncio.Event()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        try:
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
                )
                self.asked.append(head + await reader.readexactly(length))
                for piece in self._answers.pop(0):
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()
            self.hung_up.set()


@asynccontextmanager
async def talking(script: Script) -> AsyncIterator[Api]:
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(script.converse(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    api = Api(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        async with asyncio.timeout(PATIENCE):
            yield api
    finally:
        await api.close()
        listening.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("answer", "dialled"),
    [
        pytest.param([WHOLE], 1, id="whole"),
        pytest.param([WHOLE[:20], WHOLE[20:-1], WHOLE[-1:]], 1, id="in pieces"),
        pytest.param([CHUNKED, b"1\r\n{\r\n", b"1\r\n}\r\n0\r\n\r\n"], 1, id="chunks"),
        pytest.param([b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n", WHOLE], 1, id="after a word before it"),
        pytest.param([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"], 2, id="the last one"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", b"{", b"}", None], 2, id="until the end"),
        pytest.param([WHOLE, None], 2, id="and hangs up"),
        pytest.param([WHOLE + b"HTTP"], 2, id="and says more"),
    ],
)
async def test_an_answer_is_read_however_it_comes(answer: Sequence[bytes | None], dialled: int) -> None:
    script = Script(answer, [WHOLE])
    async with talking(script) as api:
        assert await api.request("GET", "/x") == b"{}"
        if None in answer:
            await script.hung_up.wait()
            for _ in range(10):  # turns of the loop in which the client hears of it
                await asyncio.sleep(0)
        assert await api.request("POST", "/y?a=b", {"c": 1}) == b"{}"

    assert script.dialled == dialled
    assert script.asked[1].startswith(b"POST /y?a=b HTTP/1.1\r\n")
    assert script.asked[1].endswith(b'\r\n\r\n{"c":1}')


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([None], id="nothing"),
        pytest.param([WHOLE[:20], None], id="half a head"),
        pytest.param([WHOLE[:-1], None], id="half a body"),
        pytest.param([CHUNKED, b"1\r\n{\r\n", None], id="half of the chunks"),
        pytest.param([b"SSH-2.0-OpenSSH_9.2\r\n"], id="another protocol"),
    ],
)
async def test_half_an_answer_is_an_error_and_the_next_request_dials_anew(answer: Sequence[bytes | None]) -> None:
    script = Script(answer, [WHOLE])
    async with talking(script) as api:
        with pytest.raises(UnreachableError):
            await api.request("GET", "/x")
        assert await api.request("GET", "/x") == b"{}"

    assert script.dialled == 2


async def test_more_than_is_read_stays_with_the_server() -> None:
    """The whole of it comes all the same, and so does what is sent to a server that reads slowly."""
    size = 40 * MOST_BUFFERED
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    script = Script([head, b"x" * size], [WHOLE], [WHOLE])
    async with talking(script) as api:
        async with api.stream("/x") as pieces:
            got = [len(piece) async for piece in pieces]
        assert await api.request("POST", "/y", "y" * size) == b"{}"
        assert await api.request("GET", "/x") == b"{}"

    assert sum(got) == size
    assert max(got) <= 3 * MOST_BUFFERED
    assert script.asked[1].endswith(b'y"')
    assert script.dialled == 1
