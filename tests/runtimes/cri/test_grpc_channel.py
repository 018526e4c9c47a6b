"""Calls to a gRPC server of its own process, which may be killed."""

import asyncio
import select
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived
from hyperframe.frame import GoAwayFrame

from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.engine.errors import EndpointError, EngineError
from tests.runtimes.conftest import PATIENCE

SERVER = """
import sys, time
from concurrent import futures
import grpc

def many(request, context):
    for number in range(5):
        yield request * 4_000 + b"%d" % number
    print("told", flush=True)
    time.sleep(1000)

def few(request, context):
    yield request

def none(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no such 100 % thing")
    yield b""

def shouts(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, request.decode() * 1_200_000)
    yield b""

def left(request, context):
    yield b"%f" % context.time_remaining()

def waits(request, context):
    context.add_callback(lambda: print("hung up", flush=True))
    yield request
    time.sleep(1000)

calls = {each.__name__: grpc.unary_stream_rpc_method_handler(each) for each in (many, few, none, shouts, left, waits)}
server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.max_concurrent_streams", 2)])
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", calls),))
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
print("up", flush=True)
server.wait_for_termination()
"""


class Server:
    def __init__(self, path: Path) -> None:
        self.endpoint = f"unix://{path}"
        self._path = path
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", SERVER, str(self._path)], stdout=subprocess.PIPE)
        self.says("up")

    @property
    def pid(self) -> int:
        return self._process.pid

    def says(self, word: str) -> None:
        """Waits for it, and lets nothing else run meanwhile."""
        assert self._process.stdout
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], f"it does not say {word!r}"
        assert self._process.stdout.readline().decode().strip() == word

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "socket")
    yield made
    made.kill()


async def test_all_that_an_engine_sent_arrives_though_it_was_killed(server: Server) -> None:
    engine = CriEngine(server.endpoint)
    answers = engine.follow("/s/many", b"x")
    found = [await anext(answers)]
    server.says("told")
    server.kill()
    found += [await anext(answers) for _ in range(4)]
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(answers)
    await engine.close()

    assert [(len(each), each[-1:]) for each in found] == [(4_001, b"%d" % number) for number in range(5)]


async def test_an_end_is_an_end_and_a_refusal_one_in_the_engine_s_words(server: Server) -> None:
    engine = CriEngine(server.endpoint)

    assert [each async for each in engine.follow("/s/few", b"x")] == [b"x"]
    with pytest.raises(EngineError, match="NotFound desc = no such 100 % thing"):
        await anext(engine.follow("/s/none", b"x"))
    with pytest.raises(EngineError, match="Unimplemented"):
        await anext(engine.follow("/s/other", b"x"))
    await engine.close()


async def test_a_message_may_be_larger_than_what_fits_at_once(server: Server) -> None:
    engine = CriEngine(server.endpoint)
    large = bytes(range(256)) * 12_000
    both = [engine.follow("/s/few", each) for each in (large, large[1:])]

    assert await asyncio.gather(*(anext(each) for each in both)) == [large, large[1:]]
    await engine.close()


@pytest.mark.parametrize("seconds", [pytest.param(30.0, id="half a minute"), pytest.param(200_000.0, id="over a day")])
async def test_an_engine_is_told_how_long_it_may_take(server: Server, seconds: float) -> None:
    engine = CriEngine(server.endpoint)
    left = [float(each) async for each in engine.follow("/s/left", b"", seconds)]
    await engine.close()

    assert len(left) == 1
    assert seconds - 20 < left[0] <= seconds


async def test_a_call_that_nobody_waits_for_any_more_is_given_up_alone(server: Server) -> None:
    engine = CriEngine(server.endpoint)
    given_up, goes_on = engine.follow("/s/waits", b"x"), engine.follow("/s/many", b"y")
    assert await anext(given_up) == b"x"
    assert (await anext(goes_on))[-1:] == b"0"
    server.says("told")
    await given_up.aclose()  # type: ignore[attr-defined]
    await asyncio.to_thread(server.says, "hung up")

    assert [(await anext(goes_on))[-1:] for _ in range(4)] == [b"1", b"2", b"3", b"4"]
    await engine.close()


async def test_more_calls_than_an_engine_takes_are_for_later_and_disturb_no_other(server: Server) -> None:
    engine = CriEngine(server.endpoint)
    first, second = engine.follow("/s/waits", b"x"), engine.follow("/s/many", b"y")
    assert [(await anext(each))[:1] for each in (first, second)] == [b"x", b"y"]
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(engine.follow("/s/few", b"z"))
    await first.aclose()  # type: ignore[attr-defined]

    assert [(await anext(second))[-1:] for _ in range(4)] == [b"1", b"2", b"3", b"4"]
    await engine.close()


async def test_words_that_are_too_long_are_not_heard_and_the_next_call_has_another_connection(server: Server) -> None:
    """A server that heeds the limit breaks off its call. This one does not, which ends the connection and its calls."""
    engine = CriEngine(server.endpoint)
    goes_on = engine.follow("/s/many", b"y")
    assert (await anext(goes_on))[-1:] == b"0"
    with pytest.raises((EngineError, ConnectionError)) as found:
        await anext(engine.follow("/s/shouts", b"x"))

    assert len(str(found.value)) < 1000
    again = engine.follow("/s/many", b"y")
    assert [(await anext(again))[-1:] for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    await engine.close()


@asynccontextmanager
async def answering(path: Path, says: Callable[[H2Connection], bytes]) -> AsyncIterator[str]:
    """What says something to the first question of each connection, all at once, and nothing more."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire, asked = H2Connection(H2Configuration(client_side=False)), False
        wire.initiate_connection()
        while not asked:
            events = wire.receive_data(await reader.read(65536))
            asked = any(isinstance(each, RequestReceived) for each in events)
            writer.write(wire.data_to_send())
        writer.write(says(wire))
        await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(answer, path)
    async with server:
        yield f"unix://{path}"


def message(wire: H2Connection) -> bytes:
    wire.send_headers(1, [(":status", "200")])
    wire.send_data(1, b"\0\0\0\0\1x")
    return wire.data_to_send()


async def test_an_engine_that_is_leaving_ends_what_was_asked_and_is_asked_no_more(tmp_path: Path) -> None:
    def leaving(wire: H2Connection) -> bytes:
        before = message(wire) + GoAwayFrame(0, last_stream_id=1).serialize()
        wire.ping(b"12345678")
        wire.send_headers(1, [("grpc-status", "0")], end_stream=True)
        return before + wire.data_to_send()

    async with answering(tmp_path / "socket", leaving) as endpoint:
        engine = CriEngine(endpoint)
        assert [each async for each in engine.follow("/s/any", b"")] == [b"x"]
        assert [each async for each in engine.follow("/s/any", b"")] == [b"x"]
        await engine.close()


async def test_what_came_before_nonsense_arrives(tmp_path: Path) -> None:
    def nonsense(wire: H2Connection) -> bytes:
        return message(wire) + b"\0\0\1\6\0\0\0\0\0x"  # a PING that is too short

    async with answering(tmp_path / "socket", nonsense) as endpoint:
        engine = CriEngine(endpoint)
        answers = engine.follow("/s/any", b"")
        assert await anext(answers) == b"x"
        with pytest.raises(ConnectionError, match="does not answer"):
            await anext(answers)
        await engine.close()


async def test_an_engine_that_is_back_is_asked_on_a_new_connection(server: Server) -> None:
    engine = CriEngine(server.endpoint)
    assert await anext(engine.follow("/s/few", b"x")) == b"x"
    assert engine.process == server.pid
    server.kill()
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(engine.follow("/s/few", b"x"))
    server.start()

    assert await anext(engine.follow("/s/few", b"x")) == b"x"
    assert engine.process == server.pid
    await engine.close()


async def test_an_engine_that_never_answers_is_away_after_a_while(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/socket")
        silent.listen()
        engine = CriEngine(f"{tmp_path}/socket")
        with pytest.raises(ConnectionError, match="it takes too long"):
            await engine.ask(pb.VersionRequest(), pb.VersionResponse, timeout=0.05)
        await engine.close()


def test_the_runtime_needs_no_grpcio() -> None:
    script = (
        "import sys; from app.runtimes import cri; assert not {'grpc', 'cri_api.v1.api_pb2_grpc'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_an_engine_that_is_not_there_is_a_connection_error(tmp_path: Path) -> None:
    engine = CriEngine(f"unix://{tmp_path}/socket")
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(engine.follow("/s/few", b"x"))
    await engine.close()


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1", "unix://relative", "https://engine"])
def test_what_is_no_socket_of_this_machine_is_refused_with_words(endpoint: str) -> None:
    with pytest.raises(EndpointError, match="only unix:// with"):
        CriEngine(endpoint)
