"""Memory peaks: what an agent says of the most memory that containers used, when their pod has ended."""

import asyncio

import pytest

from app.agent.pods.memory_peaks import EVERY, MOST_OF_TIME, MemoryPeaks
from app.runtimes.base import ContainerUsage
from tests.agent.fake_clock import FakeClock
from tests.agent.fake_runtime import FakeRuntime
from tests.agent.scene import Scene


async def looks(scene: Scene, memory: int) -> None:
    """All containers use so much, and everybody who looks has seen it."""
    scene.runtime.memory = memory
    enough = scene.runtime.looks + 60  # more than the others who look do in half a minute
    await scene.api.until(lambda: scene.runtime.looks > enough, scene.tick)


async def test_the_most_that_was_seen_is_told_with_the_end(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    for memory in (10, 50, 20):
        await looks(scene, memory)
    assert scene.api.peaks["u-1"] == {}

    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert scene.api.peaks["u-1"] == {"main": 50}


async def test_a_container_that_was_restarted_has_one_peak(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    await looks(scene, 50)
    scene.runtime.exit(1)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1), scene.tick)
    await looks(scene, 20)

    scene.runtime.exit(0, attempt=1)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")

    assert scene.api.peaks["u-1"] == {"main": 50}


class SlowRuntime(FakeRuntime):
    """Takes its time to say what containers use."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        super().__init__(clock.now)
        self._clock, self._seconds = clock, seconds

    async def usage(self) -> list[ContainerUsage]:
        self.looks += 1
        await self._clock.sleep(self._seconds)
        return []


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, EVERY), (0.02, EVERY), (2.0, 2.0 / MOST_OF_TIME)])
async def test_looking_takes_a_small_part_of_the_time(seconds: float, pause: float) -> None:
    clock = FakeClock()
    runtime = SlowRuntime(clock, seconds)
    running = asyncio.ensure_future(MemoryPeaks(runtime, lambda _: None, clock).run())

    async def passes(span: float) -> int:
        clock.advance(span)
        for _ in range(10):
            await asyncio.sleep(0)
        return runtime.looks

    seen = [await passes(each) for each in (0, seconds, pause - 0.001, 0.002)]
    running.cancel()

    assert seen == [1, 1, 1, 2]
