"""What containerd leaves half done when it is killed, and what outlives an agent that is."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.runtimes.base import ContainerSpec
from app.runtimes.cri import recovery as cri_recovery
from app.runtimes.cri.engine import KEEP_SECONDS
from app.runtimes.cri.messages import pb
from app.runtimes.cri.recovery import RESULTS
from app.runtimes.cri.runtime import CriRuntime
from app.runtimes.engine.containers import TrackedContainer
from tests.runtimes.conftest import FOREVER, PATIENCE, Lab, a_key, exits, raw, says
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE
from tests.runtimes.test_conformance_engines import back

ASKS = """
import socket, sys, time
from app.runtimes.cri.engine import KeepAlive
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
line = KeepAlive()
line.hold(connection)
line.hold(connection)
connection.send(b"hello")
time.sleep(1000)
"""


@pytest.fixture
async def engine(containerd: Containerd, cri: Lab) -> AsyncIterator[Containerd]:
    """One that a test may kill."""
    yield containerd
    await back(cri, containerd)


def runtime_of(lab: Lab) -> CriRuntime:
    assert isinstance(lab.runtime, CriRuntime)
    return lab.runtime


async def test_what_the_engine_was_making_is_made_anew(cri: Lab, engine: Containerd) -> None:
    await cri.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=says("once").command, env={})
    known = await runtime_of(cri)._create(spec)
    engine.kill()
    engine.forget_status(known.id)
    await back(cri, engine)
    assert [status.state for status in await cri.runtime.list()] == ["created"]

    with pytest.raises(ConnectionError, match="made anew"):
        await cri.runtime.start_container(spec)
    await cri.runtime.start_container(spec)
    assert raw(await cri.log((await cri.ended(a_key())).key)) == b"once\n"


async def test_the_exit_code_that_the_engine_forgot_is_remembered(cri: Lab, engine: Containerd) -> None:
    key = (await cri.run(exits(7))).key
    known = await runtime_of(cri)._containers.find(key)
    assert known
    engine.kill()
    engine.forget_status(known.id)
    await cri.restart()
    await back(cri, engine)

    assert [(status.state, status.exit_code) for status in await cri.runtime.list()] == [("exited", 7)]


async def test_a_network_that_was_half_noted_down_is_removed(cri: Lab, containerd: Containerd) -> None:
    await cri.sandbox("pod-1")
    sandbox = await runtime_of(cri)._sandboxes.of("pod-1")
    assert sandbox
    torn = [path for path in RESULTS.glob(f"*-{sandbox[0]}-*") if "loopback" not in path.name]
    assert len(torn) == 1
    os.truncate(torn[0], 20)
    await cri.runtime.remove_sandbox("pod-1")

    assert not [each for each in containerd.pods() if sandbox[0] in each]


async def test_a_connection_outlives_the_agent_that_is_killed(tmp_path: Path) -> None:
    """Until its holder ends, nobody is told that the agent hung up. A second hold takes the place of the first."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        agent = await asyncio.create_subprocess_exec(sys.executable, "-c", ASKS, str(path))
        connection, _ = await asyncio.to_thread(listening.accept)
    with connection:
        connection.settimeout(PATIENCE)
        assert await asyncio.to_thread(connection.recv, 5) == b"hello"
        holders = children(agent.pid)
        agent.kill()
        await agent.wait()
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        assert len(holders) == 1
        assert Path("/proc", str(holders[0]), "cmdline").read_text().split("\0")[:2] == ["sleep", str(KEEP_SECONDS)]
        os.kill(holders[0], signal.SIGKILL)
        connection.settimeout(PATIENCE)
        assert await asyncio.to_thread(connection.recv, 1) == b""


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_what_was_made_and_not_let_go_is_made_anew(cri: Lab, engine: Containerd) -> None:
    await cri.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=says("once").command, env={})
    await runtime_of(cri)._create(spec)
    containers = runtime_of(cri)._containers
    containers.outputs.make(spec.key)
    runtime_of(cri)._files.begin(spec.key)
    runtime_of(cri)._files.write_exit(spec.key, 1)
    words = containers.outputs.folder(spec.key).path / "err"
    words.write_bytes(b"write exec fifo /proc/self/fd/5: broken pipe\n")
    assert await cri.log(spec.key) == b""
    with pytest.raises(ConnectionError, match="made anew"):
        await cri.runtime.start_container(spec)
    await cri.runtime.start_container(spec)

    ended = await cri.ended(spec.key)
    assert (ended.exit_code, raw(await cri.log(spec.key)), raw(await cri.log(spec.key), b"stderr")) == (
        0,
        b"once\n",
        b"",
    )


async def seems_begun(cri: Lab) -> tuple[ContainerSpec, TrackedContainer]:
    """A container that was made, and has written something."""
    await cri.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=FOREVER.command, env={})
    known = await runtime_of(cri)._create(spec)
    runtime_of(cri)._files.begin(spec.key)
    outputs = runtime_of(cri)._containers.outputs
    outputs.make(spec.key)
    (outputs.folder(spec.key).path / "out").write_bytes(b"early\n")
    return spec, known


async def test_what_writes_before_the_engine_notes_down_that_it_runs_is_waited_for(cri: Lab) -> None:
    _, known = await seems_begun(cri)
    looking = asyncio.create_task(cri.runtime.list())
    for _ in range(3):  # the list has been answered by then
        await runtime_of(cri)._containers.ask(known.id)
    assert not looking.done()
    await runtime_of(cri)._engine.ask(pb.StartContainerRequest(container_id=known.id), pb.StartContainerResponse)

    assert [status.state for status in await looking] == ["running"]


async def test_what_a_restarted_engine_does_not_know_to_have_run_is_not_started_again(
    cri: Lab, engine: Containerd
) -> None:
    spec, known = await seems_begun(cri)
    engine.kill()
    await back(cri, engine)
    await cri.runtime.start_container(spec)

    assert (await cri.ended(spec.key)).reason == "ContainerStatusUnknown"
    assert (await runtime_of(cri)._containers.ask(known.id)).status.state == pb.CONTAINER_CREATED


async def test_what_an_agent_that_died_had_started_is_not_started_again(cri: Lab) -> None:
    spec, known = await seems_begun(cri)
    for _ in range(2):
        await runtime_of(cri)._request_start(spec.key, known)

    assert [status.state for status in await cri.runtime.list()] == ["running"]


def kill_command(line: str) -> None:
    subprocess.run(["pkill", "-KILL", "-fx", line], check=True)


async def test_when_it_was_started_is_known_though_the_engine_forgot(cri: Lab, engine: Containerd) -> None:
    await cri.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=["sleep", "1000.77"], env={})
    known = await runtime_of(cri)._create(spec)
    before = engine.status(known.id)
    await cri.runtime.start_container(spec)
    engine.kill()
    engine.forget_status(known.id, before)
    kill_command("sleep 1000.77")
    await back(cri, engine)

    ended = await cri.ended(spec.key)
    assert (ended.exit_code, ended.reason) == (137, "Error")
    assert ended.started_at
    assert ended.finished_at
    assert ended.started_at <= ended.finished_at


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("failed to create containerd task: task x: already exists", True, id="half made"),
        pytest.param(
            "failed to create containerd task: failed to start shim: signal: killed: unknown", True, id="no shim"
        ),
        pytest.param(
            'failed to create containerd task: OCI runtime: exec: "x": not found', False, id="no such program"
        ),
        pytest.param("failed to start containerd task: context canceled", False, id="perhaps begun"),
        pytest.param(
            "failed to create containerd task: failed to start shim: mkdir /run/x: file exists", True, id="left over"
        ),
        pytest.param('sandbox container "05d3" is not running', True, id="no sandbox"),
        pytest.param("write exec fifo /proc/self/fd/5: broken pipe", True, id="not let go"),
    ],
)
def test_what_never_began_is_told_by_the_engine_s_words(message: str, *, expected: bool) -> None:
    assert cri_recovery.never_began(message) is expected
