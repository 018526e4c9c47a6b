"""Answers that go on, from a gRPC server of its own process, which may be killed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.runtimes.base import Unsupported
from app.runtimes.cri_engine import Engine
from app.runtimes.engine_errors import EngineError

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

calls = {each.__name__: grpc.unary_stream_rpc_method_handler(each) for each in (many, few, none)}
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", calls),))
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
print("up", flush=True)
server.wait_for_termination()
"""


class Server:
    def __init__(self, path: Path) -> None:
        self.endpoint = f"unix://{path}"
        self._process = subprocess.Popen([sys.executable, "-c", SERVER, str(path)], stdout=subprocess.PIPE)
        self.says("up")

    def says(self, word: str) -> None:
        """Waits for it, and lets nothing else run meanwhile."""
        assert self._process.stdout
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
    engine = Engine(server.endpoint)
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
    engine = Engine(server.endpoint)

    assert [each async for each in engine.follow("/s/few", b"x")] == [b"x"]
    with pytest.raises(EngineError, match="NotFound desc = no such 100 % thing"):
        await anext(engine.follow("/s/none", b"x"))
    with pytest.raises(EngineError, match="Unimplemented"):
        await anext(engine.follow("/s/other", b"x"))
    await engine.close()


async def test_an_engine_that_is_not_there_is_a_connection_error(tmp_path: Path) -> None:
    engine = Engine(f"unix://{tmp_path}/socket")
    with pytest.raises(ConnectionError, match="does not answer"):
        await anext(engine.follow("/s/few", b"x"))
    await engine.close()


async def test_an_engine_without_a_socket_of_this_machine_tells_nothing(tmp_path: Path) -> None:
    engine = Engine("tcp://127.0.0.1:1")
    with pytest.raises(Unsupported):
        await anext(engine.follow("/s/few", b"x"))
    await engine.close()
