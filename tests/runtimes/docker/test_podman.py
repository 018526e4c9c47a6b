"""The plain path of the docker runtime on Podman, by what every runtime promises. Podman 4 with CNI, as Debian 12 has it.

What needs one runs in `make test-long` only. What Podman does otherwise is told in docs/kubernetes.md.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from app.runtimes.docker import config as docker_config
from app.runtimes.docker import status as docker_status
from app.runtimes.engine.errors import start_code
from tests.runtimes import podmans, test_conformance, test_conformance_streams, test_conformance_surroundings
from tests.runtimes.conftest import FOREVER, PATIENCE, Lab, Made, a_key, exits, raw, script
from tests.runtimes.images import IMAGE, built
from tests.runtimes.podmans import Podman

Promise = Callable[[Lab], Awaitable[None]]


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    yield from podmans.podman()


@pytest.fixture
async def lab(podman: Podman, tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(Made("docker", tmp_path / "state", podman.endpoint, uuid.uuid4().hex))
    yield lab
    await lab.close()


async def a_missing_command(lab: Lab) -> None:
    await test_conformance_streams.test_a_command_that_is_not_there_is_a_start_error(lab, await lab.start(FOREVER))


async def a_command(lab: Lab) -> None:
    await test_conformance_streams.test_a_command_reads_until_its_input_ends(lab, await lab.start(FOREVER))


@pytest.mark.parametrize(
    "promise",
    [
        pytest.param(test_conformance.test_stop_ends_it_by_sigterm_long_before_the_grace_is_over, id="a stop"),
        pytest.param(
            test_conformance.test_stop_kills_what_ignores_sigterm_but_not_before_the_grace_is_over, id="a kill"
        ),
        pytest.param(test_conformance.test_a_start_error_is_raised_and_listed, id="an error of a start"),
        pytest.param(a_command, id="a command"),
        pytest.param(a_missing_command, id="a command that is not there"),
        pytest.param(test_conformance_streams.test_attaching_shows_what_is_written_from_now_on, id="attaching"),
        pytest.param(test_conformance_surroundings.test_what_it_uses_is_told, id="what is used"),
        pytest.param(test_conformance_surroundings.test_the_hostname_is_the_pod_s, id="a hostname"),
    ],
)
async def test_podman_keeps_the_promise_of(promise: Promise, lab: Lab) -> None:
    await promise(lab)


async def test_an_end_is_told_at_once(lab: Lab) -> None:
    """By an event, which has a name of its own there: nothing else would be heard of within the test's patience."""
    status = await lab.run(exits(7))

    assert (status.exit_code, status.reason) == (7, "Error")


async def test_a_port_can_be_dialled(lab: Lab, unused_tcp_port: int) -> None:
    await test_conformance_streams.test_a_port_of_a_pod_can_be_dialled(lab, {}, unused_tcp_port)


async def test_a_volume_and_a_seccomp_profile_are_the_node_s_files(lab: Lab, tmp_path: Path) -> None:
    await test_conformance_surroundings.test_what_is_mounted_can_be_read_and_written(lab, tmp_path)
    await lab.runtime.remove_sandbox("pod-1")
    await test_conformance_surroundings.test_a_seccomp_profile_of_one_s_own_holds(lab, tmp_path)


async def test_an_image_that_is_in_use_is_kept_and_one_of_two_names_is_removed(lab: Lab, podman: Podman) -> None:
    """By force, Podman would end the containers that use it."""
    key = await lab.start(FOREVER)
    used = next(each for each in await lab.runtime.images() if IMAGE in each.names)
    await lab.runtime.remove_image(used.id)
    status = await lab.runtime.status(key)
    assert status
    assert status.state == "running"

    for number in (1, 2):
        podman.load(f"localhost/jobplane/unused:{number}", built(Labels={"test": "unused"}))
    unused = next(each for each in await lab.runtime.images() if "localhost/jobplane/unused:1" in each.names)
    await lab.runtime.remove_image(unused.id)
    assert unused.id not in {each.id for each in await lab.runtime.images()}


async def test_what_ends_while_podman_and_agent_are_away_is_told_with_its_log(
    lab: Lab, podman: Podman, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    wait = script(f"echo one; until [ -e {go} ]; do sleep 0.02; done; echo two; touch {go}.seen; exit 3")
    key = await lab.start(wait, a_key(), mounts=await lab.shared(tmp_path))
    before = await lab.logged(key, b"one")
    podman.kill()
    await lab.runtime.close()
    go.touch()
    async with asyncio.timeout(PATIENCE):
        while not (tmp_path / "go.seen").exists():  # noqa: ASYNC110 - a file announces itself to nobody
            await asyncio.sleep(0.02)
    await asyncio.to_thread(podman.start)
    await lab.restart()

    assert (await lab.ended(key)).exit_code == 3
    log = await lab.log(key)
    assert log.startswith(before)
    assert raw(log) == b"one\ntwo\n"


@pytest.mark.parametrize(
    ("network", "names"),
    [
        pytest.param("bridge", {}, id="a pod has its own"),
        pytest.param("host", {"UTSMode": "host"}, id="one on the node's network has the node's"),
        pytest.param("container:x", {"UTSMode": "container:x"}, id="a container has its pod's"),
    ],
)
def test_of_hostnames(network: str, names: dict[str, str]) -> None:
    body: docker_config.Body = {"HostConfig": {"NetworkMode": network, "SecurityOpt": ["no-new-privileges"]}}
    docker_config.adapt_to_podman(body)

    assert body["HostConfig"] == {"NetworkMode": network, "SecurityOpt": ["no-new-privileges"], **names}


def test_podman_reads_a_seccomp_profile_itself() -> None:
    body: docker_config.Body = {"HostConfig": {"NetworkMode": "bridge", "SecurityOpt": ["a", "seccomp={}"]}}
    docker_config.adapt_to_podman(body, "/profiles/one.json")

    assert body["HostConfig"]["SecurityOpt"] == ["a", "seccomp=/profiles/one.json"]


@pytest.mark.parametrize(("word", "state"), [("stopping", "running"), ("stopped", "exited")])
def test_podman_s_words_for_an_end_are_known(word: str, state: str) -> None:
    times = {"StartedAt": "2026-01-01T00:00:00Z", "FinishedAt": "2026-01-01T00:00:01Z"}
    status = docker_status.status_of(a_key(), {"Id": "x", "State": {"Status": word, "ExitCode": 3, **times}}, "", "")

    assert status.state == state


def test_crun_s_words_for_a_missing_program_are_known() -> None:
    assert start_code("crun: executable file `x` not found in $PATH: No such file or directory") == 127
