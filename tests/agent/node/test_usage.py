"""What an agent says of the use of its nodes: between two looks, of what was there both times."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from app.agent.node import usage
from app.agent.node.usage import UsageReporter, batches, parse, rate, simulated_usage
from app.client.api import Api
from app.client.protocol import NodeUsage, ResourceUsage
from app.runtimes.base import ContainerSpec, RuntimeInfo
from tests.agent.fake_api import FakeApi
from tests.agent.fake_clock import FakeClock
from tests.agent.fake_runtime import FakeRuntime

STAT = "cpu  10 1 5 1000 50 2 3 4 7 0\ncpu0 1 2 3\nintr 5\n"
MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    400 kB\nHugePages_Total:       0\n"


class Scene:
    def __init__(self, *nodes: str, runs_commands: bool = True) -> None:
        self.clock, self.api = FakeClock(), FakeApi()
        self.runtime = FakeRuntime(self.clock.now)
        self.homes = {"u-1": nodes[0], "u-2": nodes[-1], "u-3": ""}
        info = RuntimeInfo(name="fake", version="1", survives_agent=True, runs_commands=runs_commands)
        api = Api("http://api", transport=self.api)
        usages = UsageReporter(api, self.runtime, info, nodes, lambda uid: self.homes.get(uid, ""), self.clock)
        self._run = asyncio.create_task(usages.run())

    async def start(self, uid: str) -> None:
        key = self.runtime.key(uid=uid)
        await self.runtime.start_container(ContainerSpec(key=key, image="i", command=(), env={}))

    async def told(self, reports: int) -> list[NodeUsage]:
        """The reports, once there are so many; time goes by meanwhile."""
        await self.api.until(lambda: len(self.api.usage) >= reports, lambda: self.clock.advance(1))
        return self.api.usage

    async def end(self) -> None:
        self._run.cancel()
        with suppress(asyncio.CancelledError):
            await self._run


@pytest.fixture
async def scenes() -> AsyncIterator[list[Scene]]:
    made: list[Scene] = []
    yield made
    for scene in made:
        await scene.end()


async def test_a_container_s_share_is_told_by_pod_and_name(scenes: list[Scene]) -> None:
    scenes.append(scene := Scene("n1"))
    await scene.start("u-1")
    (report,) = await scene.told(1)

    assert report.node == "n1"
    assert report.window == usage.FIRST
    assert report.pods == {"u-1": {"main": ResourceUsage(cpu=500_000_000, memory=1 << 20)}}


async def test_pods_that_are_not_here_are_not_spoken_of(scenes: list[Scene]) -> None:
    scenes.append(scene := Scene("n1"))
    await scene.start("u-3")
    await scene.start("u-9")

    assert (await scene.told(1))[0].pods == {}


async def test_what_has_ended_is_not_spoken_of(scenes: list[Scene]) -> None:
    scenes.append(scene := Scene("n1"))
    await scene.start("u-1")
    await scene.told(1)
    scene.runtime.exit(0)

    assert (await scene.told(2))[1].pods == {}


async def test_a_fleet_speaks_of_all_its_nodes_at_once(scenes: list[Scene]) -> None:
    scenes.append(scene := Scene("n1", "n2", "n3", runs_commands=False))
    await scene.start("u-1")
    await scene.start("u-2")
    reports = {each.node: each for each in await scene.told(3)}

    assert [list(each.pods) for each in reports.values()] == [["u-1"], [], ["u-2"]]
    assert reports["n1"].used.cpu == reports["n2"].used.cpu + 500_000_000
    assert scene.api.requests == ["POST /apis/agents.jobplane.dev/v1/nodes/-/usage"]


async def test_an_api_that_is_away_is_told_the_next_time(scenes: list[Scene]) -> None:
    scenes.append(scene := Scene("n1"))
    await scene.start("u-1")
    scene.api.down = True
    await asyncio.sleep(0)
    scene.clock.advance(usage.FIRST)
    await asyncio.sleep(0)
    scene.api.down = False

    assert (await scene.told(1))[0].pods


def test_a_rate_is_in_nanocores() -> None:
    assert rate(1_000_000_000, 4_000_000_000, 2.0) == 1_500_000_000


def test_a_count_that_shrank_is_no_negative_rate() -> None:
    assert rate(5, 4, 1.0) == 0


def test_a_machine_s_use_is_what_is_neither_idle_nor_free() -> None:
    assert parse(STAT, MEMINFO) == ResourceUsage(cpu=25 * 10_000_000, memory=600 * 1024)


def test_a_pretended_node_uses_more_than_its_containers() -> None:
    empty, busy = simulated_usage({}), simulated_usage({"u": {"main": ResourceUsage(cpu=7, memory=9)}})

    assert (busy.cpu - empty.cpu, busy.memory - empty.memory) == (7, 9)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([], [], id="nothing to say is no request"),
        pytest.param([1, 2, 3], [[1, 2, 3]], id="what fits goes together"),
        pytest.param([usage.MOST - 1, 5], [[usage.MOST - 1], [5]], id="the rest goes in another request"),
        pytest.param([usage.MOST * 2, 5], [[usage.MOST * 2], [5]], id="one that is too large goes alone"),
    ],
)
def test_requests_are_of_a_decent_size(sizes: list[int], expected: list[list[int]]) -> None:
    used = ResourceUsage()
    reports = [NodeUsage(node="n", pods={"u": {str(n): used for n in range(size)}}) for size in sizes]

    assert [[len(each.pods["u"]) for each in batch] for batch in batches(reports)] == expected
