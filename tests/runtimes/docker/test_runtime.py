"""What is particular to a Docker Engine: its logs on disk, its names of images, and what it is told."""

import asyncio
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runtimes import make_runtime
from app.runtimes.base import ContainerKey, ContainerStatus, CreateError, Mount, Port, Security
from app.runtimes.docker import config as docker_config
from app.runtimes.docker import images as docker_images
from app.runtimes.docker.exec_attach import DockerStreamSession
from app.runtimes.docker.logs import LocalLog
from app.runtimes.engine.recovery import kill_processes
from tests.runtimes.conftest import FOREVER, PATIENCE, Behaviour, Lab, a_key, raw, script
from tests.runtimes.dockers import Dockerd
from tests.runtimes.images import IMAGE, built

NANOSECONDS = 1_800_000_000_123_456_789
WHEN = b"2027-01-15T08:00:00.123456789Z"


def number(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def entry(line: bytes, stream: bytes = b"stdout", piece: bytes = b"") -> bytes:
    """As Docker's `local` driver writes it."""
    body = b"\x0a" + number(len(stream)) + stream + b"\x10" + number(NANOSECONDS)
    body += (b"\x1a" + number(len(line)) + line if line else b"") + piece
    return struct.pack(">I", len(body)) + body + struct.pack(">I", len(body))


PIECE, LAST_PIECE = b"\x20\x01\x2a\x05\x12\x01i\x18\x01", b"\x20\x01\x2a\x07\x08\x01\x12\x01i\x18\x02"


@pytest.mark.parametrize(
    ("written", "record"),
    [
        pytest.param(entry(b"text"), b"stdout F text", id="a line"),
        pytest.param(entry(b"", b"stderr"), b"stderr F ", id="an empty line"),
        pytest.param(entry(b"\xff\x00\r"), b"stdout F \xff\x00\r", id="any bytes"),
        pytest.param(entry(b"x", piece=PIECE), b"stdout P x", id="a piece of a line"),
        pytest.param(entry(b"x", piece=LAST_PIECE), b"stdout F x", id="the last piece of a line"),
    ],
)
def test_an_entry_is_a_record(tmp_path: Path, written: bytes, record: bytes) -> None:
    (tmp_path / "log").write_bytes(written)

    assert LocalLog(tmp_path / "log").read(0, 1000) == WHEN + b" " + record + b"\n"


@given(st.lists(st.binary(max_size=50).filter(lambda line: b"\n" not in line)), st.integers(1, 200), st.data())
def test_a_log_reads_the_same_from_anywhere(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], limit: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_bytes(b"".join(map(entry, lines)))
    whole = b"".join(WHEN + b" stdout F " + line + b"\n" for line in lines)
    log = LocalLog(path)
    for at in data.draw(st.lists(st.integers(0, len(whole) + 10), max_size=5)):
        assert log.read(at, limit) == whole[at : at + limit]


def test_an_entry_that_is_only_half_there_is_waited_for(tmp_path: Path) -> None:
    path, log = tmp_path / "log", LocalLog(tmp_path / "log")
    assert log.read(0, 1000) == b""
    whole = entry(b"one") + entry(b"two")
    for end in range(len(entry(b"one")), len(whole)):
        path.write_bytes(whole[:end])
        assert log.read(0, 1000).endswith(b" one\n")
    path.write_bytes(whole)

    assert log.read(0, 1000).endswith(b" two\n")


def test_what_is_no_such_log_is_said(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'\0\0\0\2{}\0\0\0\7{"log": "..."}')

    with pytest.raises(ValueError, match="local"):
        LocalLog(tmp_path / "log").read(0, 1000)


def test_a_large_log_is_read_where_it_was_left(tmp_path: Path) -> None:
    path, log = tmp_path / "log", LocalLog(tmp_path / "log")
    path.write_bytes(entry(b"x" * 16_000) * 200)
    at = 0
    while data := log.read(at, 100_000):
        at += len(data)

    assert at == 200 * (16_000 + len(WHEN) + len(" stdout F \n"))
    assert len(log._marks) == 4  # one in each megabyte


@pytest.fixture
async def apart(docker: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """An agent that does not see Docker's folder."""
    monkeypatch.setattr("app.runtimes.docker.logs.is_seen", lambda _: False)
    monkeypatch.setattr("app.runtimes.docker.recovery.Bundles.learn", lambda *_: None)
    return docker


@pytest.mark.parametrize("tty", [False, True], ids=["without a terminal", "with a terminal"])
async def test_logs_of_a_folder_that_is_not_seen_are_copied(apart: Lab, tty: bool) -> None:
    words = "printf 'a\\377\\n\\n'; head -c 40000 /dev/zero | tr '\\0' x; echo; printf end"
    log = await apart.log((await apart.run(script(words), tty=tty)).key)
    end = b"\r\n" if tty else b"\n"

    assert raw(log) == b"a\xff" + end + end + b"x" * 40_000 + end + b"end"
    assert max(map(len, log.split(b"\n"))) < 17_000


@pytest.mark.parametrize("tty", [False, True], ids=["without a terminal", "with a terminal"])
async def test_what_is_written_last_is_copied(apart: Lab, tty: bool) -> None:
    key = await apart.start(script("echo ready; sleep 0.2; printf end"), tty=tty)
    await apart.logged(key, b"ready")  # it is followed
    await apart.ended(key)

    assert raw(await apart.log(key)) == (b"ready\r\nend" if tty else b"ready\nend")


async def test_a_copy_is_gone_on_with_by_the_next_agent(apart: Lab, tmp_path: Path) -> None:
    text = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i; sleep 0.01; done"
    key = await apart.start(script(text))
    await apart.logged(key, b"line 20\n")
    await apart.restart()
    await apart.logged(key, b"line 150\n")
    await apart.restart()
    with (tmp_path / "state/docker/pod-1/main/0.log").open("ab") as file:
        file.write(b"half a rec")
    await apart.ended(key)

    assert raw(await apart.log(key)) == b"".join(b"line %d\n" % number for number in range(1, 301))


async def test_a_copy_is_made_of_what_ended_without_an_agent(apart: Lab) -> None:
    key = await apart.start(script("sleep 0.2; echo word"))
    await apart.runtime.close()
    await asyncio.sleep(0.5)
    await apart.restart()
    await apart.ended(key)

    assert raw(await apart.log(key)) == b"word\n"


async def test_the_names_of_images_are_whole(docker: Lab, dockerd: Dockerd) -> None:
    dockerd("tag", IMAGE, "short:2")
    try:
        found = [image for image in await docker.runtime.images() if "docker.io/library/short:2" in image.names]
        assert len(found) == 1
    finally:
        dockerd("rmi", "short:2")


async def test_keys_by_which_docker_leaves_a_terminal_are_passed_on(docker: Lab) -> None:
    """Ctrl-P Ctrl-Q."""
    key = await docker.start(script("stty raw -echo; echo ready; head -c 2 | od -An -tx1"), stdin=True, tty=True)
    await docker.logged(key, b"ready")
    session = await docker.runtime.attach(key)
    assert isinstance(session, DockerStreamSession)
    await session.write(b"\x10\x11")

    assert b"10 11" in await docker.logged(key, b"10 11")
    await session.close()


async def test_an_image_s_stop_signal_is_kept(docker: Lab, dockerd: Dockerd) -> None:
    dockerd.load("localhost/jobplane/stop:1", built(StopSignal="SIGUSR1"))
    text = "trap 'exit 5' USR1; echo ready; while :; do sleep 0.02; done"
    key = await docker.start(script(text), image="localhost/jobplane/stop:1")
    await docker.logged(key, b"ready")

    assert (await docker.stop(key, 100)).exit_code == 5


def test_names_are_such_as_docker_takes() -> None:
    assert docker_config.name("node-1.example", "uid", "main", 0) == "jobplane_node-1.example_uid_main_0"
    assert docker_config.name("a/ü", "uid") == "jobplane_a___uid"


async def _run_when_back(lab: Lab, does: Behaviour, key: ContainerKey) -> ContainerStatus:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await lab.run(does, key)
            except ConnectionError:
                await asyncio.sleep(0.05)


async def _gone(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        while path.exists():  # noqa: ASYNC110 - a file announces itself to nobody
            await asyncio.sleep(0.02)


async def test_255_of_what_ended_without_the_engine_is_unknown_and_else_what_it_is(
    docker: Lab, dockerd: Dockerd, tmp_path: Path
) -> None:
    before = await docker.run(script("exit 255"), a_key(name="before"))
    until_told = script("until [ -e /shared/go ]; do sleep 0.05; done; rm /shared/go; exit 255")
    shared = Mount(source=tmp_path, target="/shared")
    during = await docker.start(until_told, a_key(name="during"), mounts=[shared])
    dockerd.kill()
    (tmp_path / "go").touch()
    await _gone(tmp_path / "go")
    await asyncio.to_thread(dockerd.ensure)
    after = await _run_when_back(docker, script("exit 255"), a_key(name="after"))

    assert (before.exit_code, before.reason) == (after.exit_code, after.reason) == (255, "Error")
    status = await docker.ended(during)
    # Unless the engine tells of it when it is back, and we listen again by then.
    assert (status.exit_code, status.reason) in [(None, "ContainerStatusUnknown"), (255, "Error")]


async def test_nobody_takes_255_for_how_it_ended_if_engine_and_agent_were_away(
    docker: Lab, dockerd: Dockerd, tmp_path: Path
) -> None:
    shared = Mount(source=tmp_path, target="/shared")
    until_told = script("until [ -e /shared/go ]; do sleep 0.05; done; rm /shared/go; exit 3")
    during = await docker.start(until_told, a_key(name="during"), mounts=[shared])
    (running,) = await docker.runtime.list()
    await docker.runtime.close()
    dockerd.kill()
    (tmp_path / "go").touch()
    await _gone(tmp_path / "go")
    dockerd.lose_end(running.id)
    await asyncio.to_thread(dockerd.ensure)
    await docker.restart()
    after = await docker.run(script("exit 255"), a_key(name="after"))
    await docker.restart()

    assert (await docker.ended(during)).reason == "ContainerStatusUnknown"
    again = await docker.runtime.status(after.key)
    assert again
    assert (again.exit_code, again.reason) == (255, "Error")


async def test_for_a_port_of_the_node_that_somebody_has_a_pod_waits_and_leaves_nothing(
    docker: Lab, dockerd: Dockerd
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:  # at every address, as a pod would have it
        ports = [Port("TCP", 80, taken.getsockname()[1])]
        for _ in range(2):
            with pytest.raises(CreateError, match="address already in use"):
                await docker.sandbox(ports=ports)
    assert dockerd("ps", "-a", "-q").stdout == ""
    await docker.sandbox(ports=ports)


async def test_what_an_engine_does_not_know_to_run_is_killed_with_its_pod(docker: Lab) -> None:
    key = await docker.start(FOREVER)
    id_ = (await docker.runtime.list())[0].id
    kill_processes(id_)

    assert (await docker.ended(key)).exit_code == 137


@pytest.mark.parametrize(
    ("wanted", "of_image", "user"),
    [
        pytest.param(Security(), "worker:staff", "", id="whom the image says"),
        pytest.param(Security(user=5), "worker", "5", id="a user"),
        pytest.param(Security(user=5, group=6), "worker", "5:6", id="a user and a group"),
        pytest.param(Security(group=6), "worker:staff", "worker:6", id="the image's user in another group"),
        pytest.param(Security(group=6), "", "0:6", id="root in another group"),
    ],
)
def test_it_runs_as(wanted: Security, of_image: str, user: str) -> None:
    assert docker_config.user_of(wanted, of_image) == user


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("docker.io/library/busybox:1", ("docker.io/library/busybox", ":", "1")),
        ("host:5000/a@sha256:" + "0" * 64, ("host:5000/a", "@", "sha256:" + "0" * 64)),
    ],
)
def test_a_name_is_taken_apart(name: str, parts: tuple[str, ...]) -> None:
    assert docker_images.parts(name) == parts


async def test_an_address_that_is_not_spoken_to_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ssh"):
        make_runtime("docker", tmp_path, lambda: None, "ssh://somewhere")  # type: ignore[arg-type, return-value]


def test_labels_tell_the_container() -> None:
    labels = {"jobplane.dev/pod-uid": "uid", "jobplane.dev/container": "main", "jobplane.dev/attempt": "3"}
    assert docker_config.key(labels) == ContainerKey("uid", "main", 3)
