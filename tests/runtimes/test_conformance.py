"""What every runtime promises. A test is skipped only where the runtime declares that it cannot."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from app.runtimes.base import ContainerSpec, StartError, Unsupported
from tests.runtimes.conftest import (
    CAPABILITIES,
    FOREVER,
    MISSING,
    PATIENCE,
    STUBBORN,
    Lab,
    Made,
    a_key,
    exits,
    raw,
    says,
    script,
)
from tests.runtimes.images import IMAGE

AGENT = """
import asyncio, json, sys
from pathlib import Path
from app.runtimes.base import ContainerKey, ContainerSpec, Mount, SandboxSpec
from tests.runtimes.conftest import Made

async def main():
    told = json.loads(sys.argv[1])
    made = Made(told["name"], Path(told["state"]), told["endpoint"], told["node"], told["namespace_uid"])
    runtime = made()
    await runtime.run_sandbox(SandboxSpec(pod_uid="pod-1", namespace="default", name="pod-1", namespace_uid=made.namespace_uid))
    mounts = [Mount(source=Path(each), target=each) for each in told["mounts"]]
    for name, command in told["commands"].items():
        key = ContainerKey("pod-1", name, 0)
        spec = ContainerSpec(key=key, image=told["image"], command=["sh", "-c", command], env={}, mounts=mounts)
        await runtime.start_container(spec)
    print("started", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (1, "Error"), (7, "Error"), (255, "Error")])
async def test_an_exit_code_is_told(lab: Lab, code: int, reason: str) -> None:
    status = await lab.run(exits(code))

    assert (status.exit_code, status.reason, status.state) == (code, reason, "exited")


@pytest.mark.needs("runs_commands")
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV], ids=lambda n: n.name
)
async def test_a_signal_is_128_and_its_number(lab: Lab, number: signal.Signals) -> None:
    # As the first process of a PID namespace it could not be killed from within.
    status = await lab.run(script(f"kill -{int(number)} $$; sleep 100"), pod={"share_pid": True})

    assert (status.exit_code, status.reason) == (128 + number, "Error")


async def test_times_are_whole_seconds_in_order(lab: Lab) -> None:
    status = await lab.run(exits(0))

    assert status.started_at
    assert status.finished_at
    assert status.started_at <= status.finished_at
    assert status.started_at.microsecond == status.finished_at.microsecond == 0
    assert status.started_at.utcoffset() == timedelta()


async def test_one_that_has_ended_can_be_forgotten_and_the_others_stay(lab: Lab) -> None:
    first, second = a_key(), a_key(attempt=1)
    await lab.run(exits(1), first)
    await lab.run(exits(1), second)
    await lab.runtime.remove_container(first)
    await lab.runtime.remove_container(first)

    assert await lab.runtime.status(first) is None
    assert [status.key for status in await lab.runtime.list()] == [second]
    assert await lab.log(first) == b""


@pytest.mark.needs("images")
async def test_the_disk_of_images_is_told(lab: Lab) -> None:
    assert Path((await lab.runtime.info()).store).is_dir()


@pytest.mark.needs("survives_agent")
async def test_what_was_forgotten_is_not_found_again(lab: Lab) -> None:
    await lab.run(exits(1), a_key())
    await lab.run(exits(1), a_key(attempt=1))
    await lab.runtime.remove_container(a_key())
    await lab.restart()

    assert [status.key for status in await lab.runtime.list()] == [a_key(attempt=1)]


async def test_one_that_runs_is_not_forgotten(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    await lab.logged(key, b"ready")
    await lab.runtime.remove_container(key)

    assert (await lab.stop(key, 1000)).exit_code == 143


async def test_stop_ends_it_by_sigterm_long_before_the_grace_is_over(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    await lab.logged(key, b"ready")

    assert (await lab.stop(key, 1000)).exit_code == 143


async def test_stop_kills_what_ignores_sigterm_but_not_before_the_grace_is_over(lab: Lab) -> None:
    key = await lab.start(STUBBORN)
    await lab.logged(key, b"ready")
    loop = asyncio.get_running_loop()
    before = loop.time()

    assert (await lab.stop(key, 0.3)).exit_code == 137
    assert 0.29 <= loop.time() - before < PATIENCE / 2


async def test_stop_without_grace_kills_at_once(lab: Lab) -> None:
    assert (await lab.stop(await lab.start(FOREVER), 0)).exit_code == 137


async def test_a_second_stop_with_less_grace_wins(lab: Lab) -> None:
    key = await lab.start(STUBBORN)
    await lab.logged(key, b"ready")
    async with asyncio.TaskGroup() as group:
        group.create_task(lab.stop(key, 1000))
        group.create_task(lab.stop(key, 0.05))

    assert (await lab.ended(key)).exit_code == 137


async def test_stop_right_after_the_start_ends_it(lab: Lab) -> None:
    """The first process of a PID namespace does not hear a signal that it does not handle yet: then only SIGKILL helps.

    SIGTERM that meets runc's own init, before it becomes the container's program, ends it with 2
    (opencontainers/runc pull request 5189). Kubernetes reports what the runtime says, and so do we.
    """
    images = (await lab.runtime.info()).images
    ends = (143, 137, 2) if images else (143, 137)
    assert (await lab.stop(await lab.start(FOREVER), 1 if images else 1000)).exit_code in ends


async def test_what_has_ended_or_never_was_can_be_stopped(lab: Lab) -> None:
    status = await lab.run(exits(3))

    for key in (status.key, status.key, a_key("nobody")):
        await lab.runtime.stop_container(key, timedelta(seconds=1000))
    assert await lab.runtime.status(status.key) == status


async def test_remove_kills_and_forgets_and_may_be_repeated(lab: Lab) -> None:
    key = await lab.start(STUBBORN)
    await lab.start(exits(1), a_key("pod-2"))

    for _ in range(2):
        await lab.runtime.remove_sandbox("pod-1")
    assert {status.key.pod_uid for status in await lab.runtime.list()} == {"pod-2"}
    assert await lab.runtime.status(key) is None
    assert (await lab.runtime.read_log(key, 0, 100)).data == b""


async def test_a_start_error_is_raised_and_listed(lab: Lab) -> None:
    with pytest.raises(StartError) as raised:
        await lab.start(MISSING)

    (status,) = await lab.runtime.list()
    assert (status.state, status.reason, status.message) == ("exited", "StartError", str(raised.value))
    assert status.exit_code == raised.value.exit_code > 125


async def test_what_could_not_start_is_not_tried_again(lab: Lab) -> None:
    with pytest.raises(StartError):
        await lab.start(MISSING)
    await lab.start(exits(0))

    assert (await lab.ended(a_key())).reason == "StartError"


async def test_nothing_starts_without_a_sandbox(lab: Lab) -> None:
    key = await lab.start(exits(0))
    await lab.runtime.remove_sandbox(key.pod_uid)

    with pytest.raises(StartError):
        await lab.runtime.start_container(ContainerSpec(key=key, image=IMAGE, command=["true"], env={}))


async def test_a_repeated_start_runs_once(lab: Lab) -> None:
    first = await lab.run(says("once"))
    await lab.start(says("once"))

    assert await lab.runtime.list() == [first]
    assert raw(await lab.log(first.key)) == b"once\n"


async def test_each_attempt_and_container_runs_by_itself(lab: Lab) -> None:
    keys = [a_key(), a_key(attempt=1), a_key(name="other")]
    for key in keys:
        await lab.run(exits(4), key)

    assert {status.key for status in await lab.runtime.list()} == set(keys)


async def test_a_dozen_starts_at_once_keep_their_codes_apart(lab: Lab) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(lab.start(exits(code), a_key(f"pod-{code}"))) for code in range(12)]
    codes = {(await lab.ended(run.result())).exit_code for run in runs}

    assert codes == set(range(12))


async def test_start_and_end_are_told_to_each_subscriber(lab: Lab) -> None:
    other = lab.runtime.events()
    key = await lab.start(FOREVER)
    async with asyncio.timeout(PATIENCE):
        assert await anext(lab.events) == await anext(other) == key
        await lab.runtime.stop_container(key, timedelta())
        assert await anext(lab.events) == await anext(other) == key


async def test_close_ends_the_subscriptions(lab: Lab) -> None:
    logged = lab.runtime.log_events()
    await lab.restart()

    assert [key async for key in logged] == []


async def test_an_unknown_container_has_no_status_and_no_log(lab: Lab) -> None:
    assert await lab.runtime.status(a_key("nobody")) is None
    assert (await lab.runtime.read_log(a_key("nobody"), 5, 100)) == (5, b"")


async def test_a_log_reads_the_same_in_pieces_of_any_size(lab: Lab) -> None:
    key = (await lab.run(says("one\ntwo\n\nthree"))).key
    whole = await lab.log(key)

    assert raw(whole) == b"one\ntwo\n\nthree\n"
    assert await lab.log(key, limit=7) == whole
    assert (await lab.runtime.read_log(key, 10, 20)) == (10, whole[10:30])


async def test_a_running_container_s_log_is_told(lab: Lab) -> None:
    key = await lab.start(FOREVER)

    assert raw(await lab.logged(key, b"ready")) == b"ready\n"


@pytest.mark.needs("runs_commands")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(r"\377\376\000binary\n", id="invalid UTF-8 and zero bytes"),
        pytest.param(r"one\nno end", id="no final newline"),
        pytest.param(r"\n\n\n", id="empty lines"),
        pytest.param(r"50%%\r100%%\n", id="carriage returns"),
        pytest.param(r"50%%\033[31m\n", id="escape codes"),
    ],
)
async def test_log_bytes_come_back_as_they_were_written(lab: Lab, text: str) -> None:
    key = (await lab.run(script(f"printf '{text}'; printf '{text}' >&2"))).key
    log = await lab.log(key)

    written = text.replace("%%", "%").encode().decode("unicode_escape").encode("latin-1")
    assert raw(log, b"stdout") == raw(log, b"stderr") == written


@pytest.mark.needs("runs_commands")
async def test_a_carriage_return_at_the_end_of_a_line_is_kept(lab: Lab) -> None:
    log = await lab.log((await lab.run(script(r"printf 'one\r\n'"))).key)

    assert raw(log) == b"one\r\n"


@pytest.mark.needs("runs_commands")
async def test_an_overlong_line_comes_in_pieces(lab: Lab) -> None:
    key = (await lab.run(script("head -c 100000 /dev/zero | tr '\\0' x; echo; echo end"))).key
    log = await lab.log(key)

    assert raw(log) == b"x" * 100_000 + b"\nend\n"
    assert max(map(len, log.split(b"\n"))) < 17_000


@pytest.mark.needs("survives_agent")
async def test_a_restarted_agent_reads_the_same_log_at_the_same_offsets(lab: Lab, tmp_path: Path) -> None:
    go = tmp_path / "go"
    wait = script(f"echo one; until [ -e {go} ]; do sleep 0.02; done; printf two")
    key = await lab.start(wait, mounts=await lab.shared(tmp_path))
    before = await lab.logged(key, b"one")
    await lab.restart()
    go.touch()
    await lab.ended(key)
    after = await lab.log(key)
    await lab.restart()

    assert after[: len(before)] == before
    assert raw(after) == b"one\ntwo"
    assert await lab.log(key) == after


@pytest.mark.needs("survives_agent")
async def test_containers_and_their_codes_survive_a_kill_of_the_agent(lab: Lab, made: Made, tmp_path: Path) -> None:
    mounts = [str(mount.source) for mount in await lab.shared(tmp_path)]
    await lab.runtime.close()
    go = tmp_path / "go"
    containers = {"early": "exit 7", "late": f"until [ -e {go} ]; do sleep 0.02; done; echo done; exit 42"}
    await _killed_agent(made, mounts, **containers, stubborn="trap '' TERM; echo ready; exec sleep 1000")
    await lab.restart()

    assert {status.key.name for status in await lab.runtime.list()} == {*containers, "stubborn"}
    go.touch()
    assert (await lab.ended(a_key(name="early"))).exit_code == 7
    assert (await lab.ended(a_key(name="late"))).exit_code == 42
    assert raw(await lab.log(a_key(name="late"))) == b"done\n"
    await lab.logged(a_key(name="stubborn"), b"ready")
    assert (await lab.stop(a_key(name="stubborn"), 0.05)).exit_code == 137


async def _killed_agent(made: Made, mounts: Sequence[str], **commands: str) -> None:
    """Starts containers by an agent of its own process, and kills that with SIGKILL."""
    told = {**vars(made), "state": str(made.state), "image": IMAGE, "mounts": mounts, "commands": commands}
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, json.dumps(told), stdout=asyncio.subprocess.PIPE
    )
    assert agent.stdout
    async with asyncio.timeout(PATIENCE):
        assert await agent.stdout.readline() == b"started\n"
        agent.kill()
        await agent.wait()


async def test_a_runtime_declares_what_it_is_tested_for(lab: Lab, made: Made) -> None:
    info = await lab.runtime.info()

    assert {name for name, value in vars(info).items() if value is True} == CAPABILITIES[made.name]


@pytest.mark.lacks("images")
async def test_who_has_no_images_is_content_with_any(lab: Lab) -> None:
    assert await lab.runtime.pull("any/image") == ""
    assert [*await lab.runtime.images()] == []
    await lab.runtime.remove_image("any")


@pytest.mark.lacks("runs_commands")
async def test_who_only_pretends_has_no_streams(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    for call in (lab.runtime.execute(key, ["true"]), lab.runtime.attach(key), lab.runtime.dial("pod-1", 80)):
        with pytest.raises(Unsupported):
            await call
