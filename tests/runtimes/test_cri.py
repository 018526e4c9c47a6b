"""What is particular to engines behind CRI: they die and come back, tell events in their own ways, and know agents by label."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from app.runtimes.base import ContainerSpec, CreateError, Mount, StartError
from app.runtimes.cri import CriRuntime
from app.runtimes.cri_events import _fields
from app.runtimes.log_files import LogFiles
from tests.runtimes.conftest import FOREVER, PATIENCE, STUBBORN, Lab, Made, a_key, exits, output_of, raw, says, script
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE


@pytest.fixture
async def engine(containerd: Containerd, cri: Lab) -> AsyncIterator[Containerd]:
    """One that a test may kill."""
    yield containerd
    await back(cri, containerd)


async def back(lab: Lab, engine: Containerd) -> None:
    """Starts the engine again, and waits until it answers."""
    await asyncio.to_thread(engine.ensure)
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await lab.runtime.info()
                await lab.runtime.list()
            except ConnectionError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_an_engine_that_is_away_is_a_connection_error(cri: Lab, engine: Containerd) -> None:
    key = await cri.start(FOREVER)
    engine.kill()

    for call in (
        cri.runtime.info(),
        cri.runtime.list(),
        cri.runtime.status(key),
        cri.sandbox("pod-2"),
        cri.runtime.stop_container(key, timedelta()),
        cri.runtime.remove_sandbox(key.pod_uid),
        cri.runtime.execute(key, ["true"]),
        cri.runtime.pull("localhost/any:1"),
    ):
        with pytest.raises(ConnectionError):
            await call
    await back(cri, engine)
    assert (await cri.stop(key, 0)).exit_code == 137


async def test_what_ends_while_the_engine_is_dead_is_told_when_it_is_back(
    cri: Lab, engine: Containerd, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    shared = await cri.shared(tmp_path)
    waits = "until [ -e {0} ]; do sleep 0.02; done; echo done; touch {0}.seen; exit {1}"
    early = (await cri.run(exits(9), a_key(name="early"))).key
    late = await cri.start(script(waits.format(go, 3)), a_key(name="late"), mounts=shared)
    last = await cri.start(script(waits.format(tmp_path / "then", 4)), a_key(name="last"), mounts=shared)
    events = cri.runtime.events()
    engine.kill()
    go.touch()
    async with asyncio.timeout(PATIENCE):
        while not (tmp_path / "go.seen").exists():  # noqa: ASYNC110 - with the engine the logs stand still
            await asyncio.sleep(0.02)
    await asyncio.to_thread(engine.start)

    async with asyncio.timeout(PATIENCE):
        while await anext(events) != late:
            pass
    statuses = {status.key: status.exit_code for status in await cri.runtime.list()}
    assert statuses == {early: 9, late: 3, last: None}
    (tmp_path / "then").touch()
    assert (await cri.ended(last)).exit_code == 4
    assert raw(await cri.log(last)) == b"done\n"  # what one wrote that ended without an engine, containerd loses


async def test_a_subscriber_goes_on_after_the_engine_was_away(cri: Lab, engine: Containerd) -> None:
    events = cri.runtime.events()
    engine.kill()
    await back(cri, engine)
    key = await cri.start(exits(5))

    async with asyncio.timeout(PATIENCE):
        assert await anext(events) == key
        while (await cri.runtime.status(key)).state != "exited":  # type: ignore[union-attr]
            assert await anext(events) == key


async def test_agents_on_one_engine_do_not_see_each_other_s_pods(
    cri: Lab, containerd: Containerd, tmp_path: Path
) -> None:
    key = await cri.start(FOREVER, a_key("mine"))
    other = Lab(Made("cri", tmp_path / "other", containerd.endpoint, "other-node"))
    try:
        assert await other.runtime.list() == []
        assert [*await other.runtime.sandboxes()] == []
        assert await other.runtime.status(key) is None
        await other.runtime.remove_sandbox("mine")
        assert [status.state for status in await cri.runtime.list()] == ["running"]
    finally:
        await other.close()


async def test_an_agent_that_died_before_the_start_starts_it_the_next_time(cri: Lab) -> None:
    made: CriRuntime = cri.runtime  # type: ignore[assignment]
    await cri.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=says("once").command, env={})
    await made._create(spec)
    await cri.restart()
    assert [status.state for status in await cri.runtime.list()] == ["created"]

    await cri.runtime.start_container(spec)
    assert raw(await cri.log((await cri.ended(a_key())).key)) == b"once\n"


async def test_a_dead_sandbox_is_replaced_and_what_ran_in_it_stays_known(cri: Lab, containerd: Containerd) -> None:
    key = (await cri.run(exits(3))).key
    containerd.end_sandboxes()
    async with asyncio.timeout(PATIENCE):
        while await cri.runtime.sandboxes():  # noqa: ASYNC110 - nothing tells of sandboxes
            await asyncio.sleep(0.05)
    await cri.start(exits(4), a_key(attempt=1))

    assert (await cri.ended(a_key(attempt=1))).exit_code == 4
    assert (await cri.runtime.status(key)).exit_code == 3  # type: ignore[union-attr]
    await cri.runtime.remove_sandbox(key.pod_uid)
    assert await cri.runtime.list() == []


async def test_what_a_pod_left_on_disk_goes_with_it_or_with_the_next_agent(cri: Lab, tmp_path: Path) -> None:
    await cri.run(says("word"))
    kept = tmp_path / "state" / "cri"
    (kept / "pod-0" / "main").mkdir(parents=True)
    await cri.restart()
    await cri.runtime.list()
    assert os.listdir(kept) == ["pod-1"]

    await cri.runtime.remove_sandbox("pod-1")
    assert os.listdir(kept) == []


async def test_a_removed_pod_leaves_no_mount_and_no_shim(cri: Lab, containerd: Containerd) -> None:
    before = containerd.traces()
    await cri.start(STUBBORN)
    assert containerd.traces() != before
    await cri.runtime.remove_sandbox("pod-1")

    async with asyncio.timeout(PATIENCE):
        while containerd.traces() != before:  # noqa: ASYNC110 - nor of what they leave behind
            await asyncio.sleep(0.05)


async def test_an_engine_without_events_is_asked_again_and_again(cri: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.runtimes.cri_events._BY_CONTAINERD", "/no.such.Service/Method")
    await cri.restart()
    key = await cri.start(exits(6))

    assert (await cri.ended(key)).exit_code == 6


async def test_logs_are_polled_where_the_kernel_watches_no_files(cri: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogFiles, "_watch", lambda *_: -1)
    key = await cri.start(FOREVER)

    assert raw(await cri.logged(key, b"ready")) == b"ready\n"


async def test_an_unknown_mount_makes_no_start(cri: Lab, tmp_path: Path) -> None:
    with pytest.raises((StartError, CreateError)):
        await cri.start(exits(0), mounts=[Mount(source=tmp_path / "missing" / "file", target="/proc/none")])


async def test_a_command_that_is_closed_after_its_container_ended_is_harmless(cri: Lab) -> None:
    key = await cri.start(FOREVER)
    session = await cri.runtime.execute(key, ["sleep", "1000"])
    await cri.runtime.stop_container(key, timedelta())

    await output_of(session)
    await session.close()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"\x0a\x01a\x10\x96\x01\x22\x02bc", [(1, b"a"), (4, b"bc")], id="texts between numbers"),
        pytest.param(b"\x09" + bytes(8) + b"\x15" + bytes(4) + b"\x1a\x00", [(3, b"")], id="fixed numbers"),
        pytest.param(b"\x0a\x85", [(1, b"")], id="cut off"),
    ],
)
def test_fields_of_a_message_are_found(message: bytes, expected: list[tuple[int, bytes]]) -> None:
    assert [*_fields(message)] == expected
