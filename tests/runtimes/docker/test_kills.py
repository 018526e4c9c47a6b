"""What a Docker Engine leaves half done when it is killed."""

import asyncio
import itertools
import os
import shutil
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.base import ContainerSpec, Mount
from app.runtimes.docker import recovery as docker_recovery
from app.runtimes.docker.runtime import DockerRuntime
from app.runtimes.engine.recovery import belongs_to
from app.runtimes.linux import process_table
from tests.runtimes.conftest import FOREVER, PATIENCE, Behaviour, Lab, a_key, exits, raw, says, script
from tests.runtimes.dockers import Dockerd
from tests.runtimes.images import IMAGE
from tests.runtimes.test_conformance_engines import back


@pytest.fixture
async def engine(dockerd: Dockerd, docker: Lab) -> AsyncIterator[Dockerd]:
    """One that a test may kill."""
    yield dockerd
    await back(docker, dockerd)


def runtime_of(lab: Lab) -> DockerRuntime:
    assert isinstance(lab.runtime, DockerRuntime)
    return lab.runtime


async def made(lab: Lab, does: Behaviour) -> ContainerSpec:
    """A container that was not started."""
    await lab.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=does.command, env={})
    await runtime_of(lab)._create(spec)
    return spec


async def test_lines_that_the_engine_could_not_note_down_are_there(
    docker: Lab, engine: Dockerd, tmp_path: Path
) -> None:
    """Written just before the engine dies, and while it is dead."""
    text = "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; [ -e /shared/slow ] && sleep 0.001; done"
    key = await docker.start(script(text), mounts=[Mount(source=tmp_path, target="/shared")])
    await docker.logged(key, b"line 5\n")
    (tmp_path / "slow").touch()
    engine.kill()
    await asyncio.sleep(0.5)
    (tmp_path / "slow").unlink()
    await back(docker, engine)
    await docker.ended(key)

    assert raw(await docker.log(key)) == b"".join(b"line %d\n" % number for number in range(1, 3001))


async def test_an_end_that_the_engine_told_and_did_not_note_down_is_known(
    docker: Lab, engine: Dockerd, tmp_path: Path
) -> None:
    """Its event has come, and nobody has read it yet when the engine is killed."""
    await hears(docker)
    go = tmp_path / "go"
    waits = script(f"until [ -e {go} ]; do sleep 0.02; done; exit 3")
    key = await docker.start(waits, mounts=await docker.shared(tmp_path))
    known = await runtime_of(docker)._known.find(key)
    assert known
    before = engine.config(known.id).read_bytes()
    go.touch()
    until_sent(engine, b'"Action":"die","Actor":{"ID":"' + known.id.encode())
    engine.kill()
    engine.config(known.id).write_bytes(before)
    await back(docker, engine)
    assert (await runtime_of(docker)._containers.ask(known.id))["State"]["ExitCode"] != 3

    found = [await docker.ended(key)]
    await docker.restart()
    found.append(await docker.ended(key))
    assert [(one.state, one.exit_code, one.reason, one.message) for one in found] == [("exited", 3, "Error", "")] * 2
    assert found[0].finished_at == found[1].finished_at


async def test_what_runs_of_a_container_that_the_engine_lost_is_killed(docker: Lab, engine: Dockerd) -> None:
    """Nobody else would end it: the container may have been made anew meanwhile."""
    key = await docker.start(FOREVER)
    known = await runtime_of(docker)._known.find(key)
    assert known
    assert runs(known.id)
    engine.kill()
    shutil.rmtree(engine.config(known.id).parent)
    await back(docker, engine)

    async with asyncio.timeout(PATIENCE):
        while runs(known.id):
            await runtime_of(docker).list()


def runs(container_id: str) -> bool:
    return any(belongs_to(pid, container_id) for pid in process_table.pids())


async def hears(lab: Lab) -> None:
    """Until the agent is told of ends."""
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count():
            key = (await lab.run(exits(0), a_key(name=f"early-{number}"))).key
            if runtime_of(lab)._files.exit_reported_at(key):
                return


def until_sent(engine: Dockerd, text: bytes) -> None:
    """By the engine to this process, which reads nothing and does nothing else meanwhile."""
    until = time.monotonic() + PATIENCE
    while not any(text in each for each in unread(engine)):
        assert time.monotonic() < until
        time.sleep(0.01)


def unread(engine: Dockerd) -> Iterator[bytes]:
    """What the engine has sent to this process, by connection."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as each:
                    if f"unix://{each.getpeername()}" == engine.endpoint:
                        yield each.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)


async def test_what_was_told_of_a_container_is_not_said_of_the_one_made_anew(docker: Lab) -> None:
    spec = await made(docker, exits(3))
    runtime = runtime_of(docker)
    known = await runtime._known.find(spec.key)
    assert known
    runtime._containers._keep(die(known.id, 7))
    assert runtime._files.exit_code(spec.key) == 7
    await runtime._remake(spec.key, known)
    runtime._containers._keep(die(known.id, 8))
    await docker.runtime.start_container(spec)
    runtime._containers._keep(die(known.id, 9))

    assert (await docker.ended(spec.key)).exit_code == 3


async def test_what_a_returned_engine_tells_again_does_not_count(docker: Lab) -> None:
    """Docker 20.10 tells 255 of what it does not find any more."""
    await hears(docker)
    runtime = runtime_of(docker)
    key = (await docker.run(exits(3))).key
    known = await runtime._known.find(key)
    assert known
    async with asyncio.timeout(PATIENCE):
        while runtime._files.exit_code(key) is None:  # noqa: ASYNC110 - it may be seen before it is told
            await asyncio.sleep(0.01)
    runtime._containers._keep(die(known.id, 255))

    assert runtime._files.exit_code(key) == 3


def die(id_: str, code: int) -> dict[str, Any]:
    return {"Action": "die", "Actor": {"ID": id_, "Attributes": {"exitCode": str(code)}}, "timeNano": time.time_ns()}


async def test_what_the_engine_cannot_have_begun_is_made_anew(docker: Lab, engine: Dockerd) -> None:
    await docker.runtime.info()
    spec = await made(docker, says("once"))
    known = await runtime_of(docker)._known.find(spec.key)
    assert known
    engine.kill()
    with pytest.raises(ConnectionError):
        await runtime_of(docker)._start(spec.key, known)
    await back(docker, engine)
    await docker.restart()
    assert [status.state for status in await docker.runtime.list()] == ["created"]

    with pytest.raises(ConnectionError, match="made anew"):
        await docker.runtime.start_container(spec)
    await docker.runtime.start_container(spec)
    assert raw(await docker.log((await docker.ended(a_key())).key)) == b"once\n"


async def test_what_the_engine_and_the_agent_died_over_is_not_started_again(docker: Lab, engine: Dockerd) -> None:
    spec = await made(docker, says("perhaps"))
    runtime_of(docker)._files.begin(spec.key)
    assert [status.state for status in await docker.runtime.list()] == ["created"]
    engine.kill()
    await docker.restart()
    await back(docker, engine)
    await docker.runtime.start_container(spec)

    found = await docker.runtime.list()
    assert [(one.state, one.exit_code, one.reason) for one in found] == [("exited", None, "ContainerStatusUnknown")]


async def test_what_an_agent_died_over_is_started_by_the_next(docker: Lab) -> None:
    spec = await made(docker, exits(3))
    runtime_of(docker)._files.begin(spec.key)
    await docker.restart()
    await docker.runtime.start_container(spec)

    assert (await docker.ended(spec.key)).exit_code == 3


async def test_what_began_although_the_engine_died_is_killed_unless_it_knows(
    docker: Lab, engine: Dockerd, tmp_path: Path
) -> None:
    key = await docker.start(FOREVER)
    runtime = runtime_of(docker)
    known = await runtime._known.find(key)
    assert known
    config, forgot = engine.config(known.id), tmp_path / "config"
    forgot.write_text('{"State": {"Running": false}}', encoding="utf-8")
    await runtime._containers.recovery.settle_start(key, known.id, config)
    assert (await docker.runtime.status(key)).state == "running"  # type: ignore[union-attr]
    await runtime._containers.recovery.settle_start(key, known.id, forgot)

    assert (await docker.ended(key)).exit_code == 137
    assert not runtime._files.is_void(key)


async def test_a_container_that_was_never_started_leaves_no_bundle(docker: Lab, dockerd: Dockerd) -> None:
    spec = await made(docker, FOREVER)
    runtime = runtime_of(docker)
    known = await runtime._known.find(spec.key)
    assert known
    runtime._diversion.divert(spec.key, known.id)
    await docker.runtime.remove_sandbox("pod-1")

    assert not [each for each in dockerd.pods() if known.id in each]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param("failed to start shim: mkdir /run/x: file exists: unknown", True, id="half made"),
        pytest.param("Conflict. id already in use", True, id="known already"),
        pytest.param('OCI runtime create failed: exec: "x": not found', False, id="no such program"),
    ],
)
def test_what_an_earlier_start_left_is_told_by_the_engine_s_words(message: str, *, expected: bool) -> None:
    assert docker_recovery.was_cut_short(message) is expected
