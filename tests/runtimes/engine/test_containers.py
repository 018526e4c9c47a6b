"""What is kept of an engine's containers, whichever engine it is: here one that has just begun."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.engine import containers as engine_containers
from app.runtimes.engine.containers import ListedContainer, TrackedContainer
from app.runtimes.engine.errors import EngineError
from tests.log_lines import lines
from tests.runtimes.conftest import PATIENCE, a_key


class Beginning(engine_containers.Containers):
    """An engine that tells of ends already, and refuses the first two questions. One container has ended meanwhile."""

    refusals = 2

    async def rows(self, pod_uid: str = "") -> Sequence[ListedContainer]:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("not yet")
        return [ListedContainer(a_key(), "id", is_running=False)]

    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        return ContainerStatus(key=key, state="exited", id=id_, exit_code=3)

    async def remove(self, key: ContainerKey, known: TrackedContainer) -> None: ...

    async def ends(self) -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    def log_path(self, key: ContainerKey) -> Path | None:
        return None


async def test_what_ended_before_it_was_heard_is_looked_for_until_the_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.runtimes.engine.containers.AGAIN", 0.01)
    containers = Beginning(tmp_path, set())
    events = containers.events.read()
    watching = asyncio.create_task(containers.watch())
    async with asyncio.timeout(PATIENCE):
        assert await anext(events) == a_key()
    watching.cancel()
    await asyncio.wait([watching])
    await containers.close()

    assert containers.is_over(a_key())


class Failing(Beginning):
    """An engine of which the first answers come to errors."""

    refusals = 0

    def __init__(self, root: Path, *errors: Exception) -> None:
        super().__init__(root, set())
        self.errors, self.asked_again = [*errors], asyncio.Event()

    async def ends(self) -> AsyncIterator[str]:
        if self.errors:
            raise self.errors.pop()
        self.asked_again.set()
        async for each in super().ends():
            yield each


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(EngineError("Unknown", "too busy", "Error response from daemon: too busy"), id="a refusal"),
        pytest.param(KeyError("Actor"), id="nonsense"),
    ],
)
async def test_an_engine_that_does_not_tell_of_ends_is_asked_again_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    monkeypatch.setattr("app.runtimes.engine.containers.AGAIN", 0.01)
    containers = Failing(tmp_path, error, error)
    watching = asyncio.create_task(containers.watch())
    async with asyncio.timeout(PATIENCE):
        await containers.asked_again.wait()
    assert containers.is_over(a_key())  # it was looked for meanwhile
    watching.cancel()
    await asyncio.wait([watching])
    await containers.close()

    (line,) = lines(caplog, logging.WARNING)
    assert "cannot watch the container engine's events" in line
