"""Probes and hooks of a whole agent: containers that answer as the test wants."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta

import pytest

from app.agent.pods.container_checks import Checks, CheckTarget
from app.kinds.pod.container import Container, ContainerPort
from app.kinds.pod.pod import PodReadinessGate
from app.kinds.pod.probe import (
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    HTTPHeader,
    Lifecycle,
    LifecycleHandler,
    Probe,
    SleepAction,
    TCPSocketAction,
)
from app.machinery.base import Condition
from app.runtimes.base import ContainerKey
from tests.agent.fake_clock import FakeClock
from tests.agent.fake_runtime import FakeRuntime, FakeSession
from tests.agent.scene import Scene

NO = FakeSession(1, b"not well")


def asking(*command: str, **fields: int) -> Probe:
    usual = {"timeout_seconds": 60, "period_seconds": 10, "success_threshold": 1, "failure_threshold": 3}
    return Probe(exec=ExecAction(command=command), **(usual | fields))


def main(**fields: object) -> tuple[Container, ...]:
    return (Container(name="main", image="i", command=("run",), **fields),)


async def test_a_container_is_ready_once_its_probe_says_so(scene: Scene) -> None:
    scene.runtime.answers["ok?",] = NO
    scene.start_agent()
    await scene.running(containers=main(readiness_probe=asking("ok?")))
    await scene.api.until(lambda: ("Unhealthy", "Readiness probe failed: not well") in scene.told())
    assert scene.ready() == "False"
    assert not scene.container().ready
    assert scene.container().started

    scene.runtime.answers["ok?",] = FakeSession(0)
    await scene.api.until(lambda: scene.ready() == "True", scene.tick)
    scene.runtime.answers["ok?",] = NO
    for _ in range(19):
        scene.tick()
        await asyncio.sleep(0)
    assert scene.ready() == "True"  # it may fail twice
    await scene.api.until(lambda: scene.ready() == "False", scene.tick)

    assert scene.api.phase() == "Running"
    assert scene.runtime.stops == []


async def test_a_container_that_is_not_alive_is_restarted(scene: Scene) -> None:
    scene.runtime.answers["ok?",] = NO
    probe = asking("ok?", failure_threshold=2, initial_delay_seconds=5, termination_grace_period_seconds=3)
    scene.start_agent()
    await scene.running(containers=main(liveness_probe=probe), restart_policy="Always")
    scene.clock.advance(4)
    await asyncio.sleep(0)
    assert scene.runtime.executed == []
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1), scene.tick)

    assert scene.runtime.stops == [(scene.runtime.key(), timedelta(seconds=3))]
    assert ("Killing", "Container main failed liveness probe, will be restarted") in scene.told()
    assert ("Unhealthy", "Liveness probe failed: not well") in scene.told()


async def test_a_pod_that_never_restarts_fails_with_its_liveness(scene: Scene) -> None:
    scene.runtime.answers["ok?",] = NO
    scene.start_agent()
    await scene.running(containers=main(liveness_probe=asking("ok?", failure_threshold=1)))
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)

    assert ("Killing", "Container main failed liveness probe") in scene.told()
    assert scene.container().state.terminated.exit_code == 143


async def test_other_probes_wait_for_the_startup_probe(scene: Scene) -> None:
    scene.runtime.answers["up?",] = NO
    scene.start_agent()
    await scene.running(containers=main(startup_probe=asking("up?", failure_threshold=9), liveness_probe=asking("ok?")))
    await scene.api.until(lambda: len(scene.runtime.executed) == 2, scene.tick)
    assert {argv for _, argv in scene.runtime.executed} == {("up?",)}
    assert not scene.container().started
    assert scene.ready() == "False"

    scene.runtime.answers["up?",] = FakeSession(0)
    await scene.api.until(lambda: scene.runtime.executed[-1][1] == ("ok?",), scene.tick)
    await scene.api.until(lambda: scene.ready() == "True")
    assert scene.container().started


async def test_apps_wait_for_a_sidecar_to_get_through_its_startup_probe(scene: Scene) -> None:
    scene.runtime.answers["up?",] = NO
    sidecar = Container(name="side", image="i", command=("run",), restart_policy="Always", startup_probe=asking("up?"))
    scene.start_agent()
    scene.api.bind(init_containers=(sidecar,))
    await scene.api.until(lambda: scene.runtime.executed)
    await scene.api.until(lambda: "Unhealthy" in scene.reasons())
    assert not scene.runtime.was_started("main")

    scene.runtime.answers["up?",] = FakeSession(0)
    await scene.api.until(lambda: scene.runtime.was_started("main"), scene.tick)


async def test_a_probe_that_cannot_be_asked_says_nothing_about_the_container(scene: Scene) -> None:
    probe = Probe(tcp_socket=TCPSocketAction(port="nowhere"), period_seconds=1, failure_threshold=1)
    scene.start_agent()
    await scene.running(containers=main(liveness_probe=probe))
    await scene.api.until(lambda: "Unhealthy" in scene.reasons(), scene.tick)

    text = "Liveness probe errored and resulted in unknown state: couldn't find port: nowhere in container main"
    assert ("Unhealthy", text) in scene.told()
    assert scene.runtime.stops == []


async def test_a_restarted_agent_does_not_take_a_ready_container_for_unready(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(containers=main(readiness_probe=asking("ok?")))
    await scene.api.until(lambda: scene.ready() == "True")
    await scene.stop_agent()
    scene.runtime.answers["ok?",] = FakeSession(None)
    before = len(scene.runtime.executed)
    scene.start_agent()
    await scene.api.until(lambda: len(scene.runtime.executed) > before)

    assert scene.ready() == "True"


async def test_a_readiness_gate_has_to_be_opened_by_somebody(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(readiness_gates=(PodReadinessGate(condition_type="example.com/open"),))
    ready = next(each for each in scene.api.status().conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "ReadinessGatesNotReady")

    scene.api.set_condition(Condition(type="example.com/open", status="True"))
    await scene.api.until(lambda: scene.ready() == "True")


class TestHooks:
    async def test_a_container_runs_once_its_post_start_hook_is_through(self, scene: Scene) -> None:
        hook = scene.runtime.answers["hook",] = FakeSession(None)
        lifecycle = Lifecycle(post_start=LifecycleHandler(exec=ExecAction(command=("hook",))))
        scene.start_agent()
        scene.api.bind(containers=(*main(lifecycle=lifecycle), Container(name="next", image="i", command=("run",))))
        await scene.api.until(lambda: scene.runtime.executed)
        await scene.api.until(lambda: scene.waits_for() == "ContainerCreating", scene.tick)
        assert not scene.runtime.was_started("next")

        hook.end(0)
        await scene.api.until(lambda: scene.api.phase() == "Running")
        assert scene.runtime.was_started("next")

    async def test_a_container_whose_post_start_hook_fails_is_stopped(self, scene: Scene) -> None:
        scene.runtime.answers["hook",] = FakeSession(1, b"secret")
        lifecycle = Lifecycle(post_start=LifecycleHandler(exec=ExecAction(command=("hook",))))
        scene.start_agent()
        scene.api.bind(containers=main(lifecycle=lifecycle))
        await scene.api.until(lambda: scene.api.phase() == "Failed")

        assert scene.told()[2:] == [
            ("FailedPostStartHook", "PostStartHook failed"),
            ("Killing", "FailedPostStartHook"),
        ]

    async def test_the_pre_stop_hook_has_the_containers_grace(self, scene: Scene) -> None:
        hook = scene.runtime.answers["hook",] = FakeSession(None)
        lifecycle = Lifecycle(pre_stop=LifecycleHandler(exec=ExecAction(command=("hook",))))
        scene.start_agent()
        await scene.running(containers=main(lifecycle=lifecycle))
        scene.api.delete(grace=30)
        await scene.api.until(lambda: scene.runtime.executed)
        scene.clock.advance(10)
        assert scene.runtime.stops == []
        hook.end(0)
        await scene.api.until(lambda: scene.runtime.removed)

        assert scene.runtime.stops == [(scene.runtime.key(), timedelta(seconds=20))]

    async def test_a_pre_stop_hook_that_takes_all_leaves_a_moment(self, scene: Scene) -> None:
        lifecycle = Lifecycle(pre_stop=LifecycleHandler(sleep=SleepAction(seconds=100)))
        scene.start_agent()
        await scene.running(containers=main(lifecycle=lifecycle))
        scene.api.delete(grace=30)
        await scene.api.until(lambda: scene.runtime.stops, scene.tick)

        assert scene.runtime.stops == [(scene.runtime.key(), timedelta(seconds=2))]


# What is asked over the network


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that says the same to everybody; its port, and what it was told. Ends with its last connection."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(asyncio.IncompleteReadError, ConnectionError):  # some only connect
            heard.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)

    before = asyncio.all_tasks()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard
    while accepted := asyncio.all_tasks() - before:
        await asyncio.wait(accepted)


@pytest.fixture
async def checks() -> AsyncIterator[Checks]:
    clock = FakeClock()
    checks = Checks(FakeRuntime(clock.now), clock)
    yield checks
    await checks.close()


def target(port: int = 80) -> CheckTarget:
    container = Container(name="main", ports=(ContainerPort(name="web", container_port=port),))
    return CheckTarget(ContainerKey("u-1", "main", 0), container, "127.0.0.1")


MINUTE = timedelta(minutes=1)  # so that a busy machine is not taken for a container that does not answer


@pytest.mark.parametrize(
    ("answer", "ok", "output"),
    [
        pytest.param("200 OK", True, "", id="is well with 200"),
        pytest.param("304 Not Modified", True, "", id="is well with 304"),
        pytest.param("404 Not Found", False, "HTTP probe failed with statuscode: 404", id="is not with 404"),
        pytest.param("503 Busy", False, "HTTP probe failed with statuscode: 503", id="is not with 503"),
        pytest.param("302 Found\r\nLocation: http://elsewhere/", True, "", id="is well with a redirect to elsewhere"),
    ],
)
async def test_a_container_asked_by_http(checks: Checks, answer: str, ok: bool, output: str) -> None:
    headers = (HTTPHeader(name="X-Who", value="me"),)
    async with serving(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode()) as (port, heard):
        action = HTTPGetAction(path="/health?a=b", port="web", http_headers=headers)
        said = await checks.probe(Probe(http_get=action), target(port), MINUTE)

    assert (said.ok, said.output) == (ok, output)
    assert heard[0].startswith(b"GET /health?a=b HTTP/1.1\r\n")
    assert b"X-Who: me" in heard[0]
    assert b"kube-probe/1.33" in heard[0]


async def test_a_port_that_nobody_listens_on_is_said_as_clients_know_it(checks: Checks) -> None:
    async with serving(b"") as (port, _):
        pass
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"

    by_tcp = await checks.probe(Probe(tcp_socket=TCPSocketAction(port=port)), target(), MINUTE)
    by_http = await checks.probe(Probe(http_get=HTTPGetAction(port=port)), target(), MINUTE)

    assert (by_tcp.ok, by_tcp.output) == (False, refused)
    assert (by_http.ok, by_http.output) == (False, f'Get "http://127.0.0.1:{port}/": {refused}')


async def test_a_port_that_somebody_listens_on_is_well(checks: Checks) -> None:
    async with serving(b"") as (port, _):
        assert (await checks.probe(Probe(tcp_socket=TCPSocketAction(port=port)), target(), MINUTE)).ok


async def test_a_hook_takes_any_answer(checks: Checks) -> None:
    async with serving(b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n") as (port, _):
        assert (await checks.hook(LifecycleHandler(http_get=HTTPGetAction(port=port)), target())).ok


async def test_a_command_that_takes_too_long_has_failed(checks: Checks) -> None:
    checks._runtime.answers["sleep", "9"] = FakeSession(None)
    said = await checks.probe(asking("sleep", "9"), target(), timedelta(milliseconds=20))
    assert said.ok is False
    assert said.output.startswith('command timed out: "sleep 9" timed out after ')


@pytest.mark.parametrize(
    ("answer", "ok", "output"),
    [
        pytest.param(b"\x08\x01", True, "", id="serves"),
        pytest.param(b"\x08\x02", False, 'service unhealthy (responded with "NOT_SERVING")', id="does not serve"),
    ],
)
async def test_a_container_asked_by_grpc(checks: Checks, answer: bytes, ok: bool, output: str) -> None:
    grpc = pytest.importorskip("grpc.aio")
    import grpc as plain

    asked = []

    async def check(request: bytes, _) -> bytes:
        asked.append(request)
        return answer

    server = grpc.server()
    handler = plain.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        (plain.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    said = await checks.probe(Probe(grpc=GRPCAction(port=port, service="db")), target(), MINUTE)
    await server.stop(None)

    assert (said.ok, said.output) == (ok, output)
    assert asked == [b"\x0a\x02db"]
