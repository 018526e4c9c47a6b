"""What runtimes with an engine promise when it dies and comes back, and when it has pods of others."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from app.runtimes.base import ContainerSpec, CreateError, Mount, StartError
from app.runtimes.engine.runtime import EngineRuntime
from app.runtimes.logs.log_files import LogFiles
from tests.runtimes.conftest import (
    ENGINES,
    FOREVER,
    PATIENCE,
    STUBBORN,
    Lab,
    Made,
    a_key,
    exits,
    output_of,
    raw,
    says,
    script,
)
from tests.runtimes.dockers import Dockerd
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE

Engine = Containerd | Dockerd
pytestmark = pytest.mark.of_engines


@pytest.fixture
async def engine(request: pytest.FixtureRequest, made: Made, lab: Lab) -> AsyncIterator[Engine]:
    """One that a test may kill."""
    found: Engine = request.getfixturevalue(ENGINES[made.name])
    yield found
    await back(lab, found)


async def back(lab: Lab, engine: Engine) -> None:
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


async def test_an_engine_that_is_away_is_a_connection_error(lab: Lab, engine: Engine) -> None:
    key = await lab.start(FOREVER)
    engine.kill()

    for call in (
        lab.runtime.info(),
        lab.runtime.list(),
        lab.runtime.status(key),
        lab.sandbox("pod-2"),
        lab.runtime.stop_container(key, timedelta()),
        lab.runtime.remove_sandbox(key.pod_uid),
        lab.runtime.execute(key, ["true"]),
        lab.runtime.pull("localhost/any:1"),
    ):
        with pytest.raises(ConnectionError):
            await call
    await back(lab, engine)
    assert (await lab.stop(key, 0)).exit_code == 137


async def test_what_ends_while_the_engine_is_dead_is_told_when_it_is_back(
    lab: Lab, engine: Engine, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    shared = await lab.shared(tmp_path)
    waits = "until [ -e {0} ]; do sleep 0.02; done; echo done; touch {0}.seen; exit {1}"
    early = (await lab.run(exits(9), a_key(name="early"))).key
    late = await lab.start(script(waits.format(go, 3)), a_key(name="late"), mounts=shared)
    last = await lab.start(script(waits.format(tmp_path / "then", 4)), a_key(name="last"), mounts=shared)
    events = lab.runtime.events()
    engine.kill()
    go.touch()
    async with asyncio.timeout(PATIENCE):
        while not (tmp_path / "go.seen").exists():  # noqa: ASYNC110 - it is looked at once it has ended
            await asyncio.sleep(0.02)
    await asyncio.to_thread(engine.start)

    async with asyncio.timeout(PATIENCE):
        while await anext(events) != late:
            pass
    statuses = {status.key: status.exit_code for status in await lab.runtime.list()}
    assert statuses == {early: 9, late: 3, last: None}
    (tmp_path / "then").touch()
    assert (await lab.ended(last)).exit_code == 4
    assert raw(await lab.log(last)) == b"done\n"
    assert raw(await lab.log(late)) == b"done\n"


async def test_a_subscriber_goes_on_after_the_engine_was_away(lab: Lab, engine: Engine) -> None:
    events = lab.runtime.events()
    engine.kill()
    await back(lab, engine)
    key = await lab.start(exits(5))

    async with asyncio.timeout(PATIENCE):
        assert await anext(events) == key
        while (await lab.runtime.status(key)).state != "exited":  # type: ignore[union-attr]
            assert await anext(events) == key


async def test_agents_on_one_engine_do_not_see_each_other_s_pods(lab: Lab, made: Made, tmp_path: Path) -> None:
    key = await lab.start(FOREVER, a_key("mine"))
    other = Lab(replace(made, state=tmp_path / "other", node="other-node"))
    try:
        assert await other.runtime.list() == []
        assert [*await other.runtime.sandboxes()] == []
        assert await other.runtime.status(key) is None
        await other.runtime.remove_sandbox("mine")
        assert [status.state for status in await lab.runtime.list()] == ["running"]
    finally:
        await other.close()


async def test_an_agent_that_died_before_the_start_starts_it_the_next_time(lab: Lab) -> None:
    made: EngineRuntime = lab.runtime  # type: ignore[assignment]
    await lab.sandbox("pod-1")
    spec = ContainerSpec(key=a_key(), image=IMAGE, command=says("once").command, env={})
    await made._create(spec)
    await lab.restart()
    assert [status.state for status in await lab.runtime.list()] == ["created"]

    await lab.runtime.start_container(spec)
    assert raw(await lab.log((await lab.ended(a_key())).key)) == b"once\n"


async def test_a_dead_sandbox_is_replaced_and_what_ran_in_it_stays_known(lab: Lab, engine: Engine) -> None:
    key = (await lab.run(exits(3))).key
    engine.end_sandboxes()
    async with asyncio.timeout(PATIENCE):
        while await lab.runtime.sandboxes():  # noqa: ASYNC110 - nothing tells of sandboxes
            await asyncio.sleep(0.05)
    await lab.start(exits(4), a_key(attempt=1))

    assert (await lab.ended(a_key(attempt=1))).exit_code == 4
    assert (await lab.runtime.status(key)).exit_code == 3  # type: ignore[union-attr]
    await lab.runtime.remove_sandbox(key.pod_uid)
    assert await lab.runtime.list() == []


async def test_what_a_pod_left_on_disk_goes_with_it_or_with_the_next_agent(lab: Lab, made: Made) -> None:
    await lab.run(says("word"))
    kept = made.state / made.name
    (kept / "pod-0" / "main").mkdir(parents=True)
    await lab.restart()
    await lab.runtime.list()
    assert os.listdir(kept) == ["pod-1"]

    await lab.runtime.remove_sandbox("pod-1")
    assert os.listdir(kept) == []


async def test_a_removed_pod_leaves_no_mount_and_no_shim(lab: Lab, engine: Engine) -> None:
    before = engine.traces()
    await lab.start(STUBBORN)
    assert engine.traces() != before
    await lab.runtime.remove_sandbox("pod-1")

    async with asyncio.timeout(PATIENCE):
        while engine.traces() != before:  # noqa: ASYNC110 - nor of what they leave behind
            await asyncio.sleep(0.05)


async def test_logs_are_polled_where_the_kernel_watches_no_files(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogFiles, "_watch", lambda *_: -1)
    key = await lab.start(FOREVER)

    assert raw(await lab.logged(key, b"ready")) == b"ready\n"


async def test_an_unknown_mount_makes_no_start(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises((StartError, CreateError)):
        await lab.start(exits(0), mounts=[Mount(source=tmp_path / "missing" / "file", target="/proc/none")])


async def test_a_command_that_is_closed_after_its_container_ended_is_harmless(lab: Lab) -> None:
    key = await lab.start(FOREVER)
    session = await lab.runtime.execute(key, ["sleep", "1000"])
    await lab.runtime.stop_container(key, timedelta())

    await output_of(session)
    await session.close()
