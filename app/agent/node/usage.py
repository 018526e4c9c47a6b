"""Usage reports: every 15 seconds, what nodes and their containers have used since the last report. Run by `agent`.

A report that cannot be sent is dropped: the next one is better.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from app.agent.clock import Clock
from app.agent.tasks import level_of
from app.client.api import Api
from app.client.protocol import NodeUsage, ResourceUsage, UsageReports, node_segment, usage_path
from app.machinery.errors import ApiError
from app.runtimes.base import ContainerKey, ContainerUsage, Runtime, RuntimeInfo
from app.structured_logging import Logger

EVERY = 15.0
FIRST = 5.0  # the first report comes sooner
MOST = 5_000  # containers in one request
_SIMULATED = 50_000_000, 256 << 20  # what a simulated node uses beside its containers: nanocores, bytes

logger = Logger(__name__)


class Sample(NamedTuple):
    """Readings at a moment: CPU times in nanoseconds, which only grow, and bytes."""

    at: float
    machine: ResourceUsage
    containers: Mapping[ContainerKey, ContainerUsage]


NodeOf = Callable[[str], str]


class UsageReporter:
    """One for all of an agent's nodes. `node_of` gives the node of a pod's UID; empty if it is not (or no longer) here."""

    def __init__(
        self, api: Api, runtime: Runtime, info: RuntimeInfo, nodes: Sequence[str], node_of: NodeOf, clock: Clock
    ) -> None:
        self._api, self._runtime, self._info, self._clock = api, runtime, info, clock
        self._nodes, self._node_of = nodes, node_of
        self._path = usage_path(node_segment(nodes))

    async def run(self) -> None:
        before, pause = await self._sample(), FIRST
        while True:
            await self._clock.sleep(pause)
            now, pause = await self._sample(), EVERY
            if now.at > before.at:
                await self._report(self._between(before, now))
            before = now

    async def _sample(self) -> Sample:
        used = await self._runtime.usage()
        return Sample(self._clock.elapsed(), read_machine(), {each.key: each for each in used})

    def _between(self, before: Sample, now: Sample) -> list[NodeUsage]:
        """One report a node. A container counts once it was there both times."""
        seconds = now.at - before.at
        pods: dict[str, dict[str, dict[str, ResourceUsage]]] = {node: {} for node in self._nodes}
        for key, each in now.containers.items():
            old = before.containers.get(key)
            node = pods.get(self._node_of(key.pod_uid))
            if old is not None and node is not None:
                node.setdefault(key.pod_uid, {})[key.name] = ResourceUsage(
                    cpu=rate(old.cpu, each.cpu, seconds), memory=each.memory
                )
        own = ResourceUsage(cpu=rate(before.machine.cpu, now.machine.cpu, seconds), memory=now.machine.memory)
        return [
            NodeUsage(
                node=node, window=seconds, used=own if self._info.runs_commands else simulated_usage(used), pods=used
            )
            for node, used in pods.items()
        ]

    async def _report(self, reports: Sequence[NodeUsage]) -> None:
        try:
            for batch in batches(reports):
                await self._api.request("POST", self._path, UsageReports(items=tuple(batch)))
        except (ApiError, OSError) as error:
            logger.at(
                level_of(error),
                "cannot report the usage of nodes; dropping the report",
                count=len(reports),
                error=error,
            )


def rate(before: int, now: int, seconds: float) -> int:
    """Nanocores: CPU time in nanoseconds over seconds. What seems to have shrunk has lost children that it counted."""
    return int(max(0, now - before) / seconds)


def simulated_usage(pods: Mapping[str, Mapping[str, ResourceUsage]]) -> ResourceUsage:
    """Usage of a simulated node."""
    used = [each for containers in pods.values() for each in containers.values()]
    cpu, memory = _SIMULATED
    return ResourceUsage(cpu=cpu + sum(each.cpu for each in used), memory=memory + sum(each.memory for each in used))


def batches(reports: Sequence[NodeUsage]) -> list[list[NodeUsage]]:
    """Reports in requests of a decent size."""
    found: list[list[NodeUsage]] = []
    room = 0
    for report in reports:
        size = 1 + sum(map(len, report.pods.values()))
        if size > room:
            found.append([])
            room = MOST
        found[-1].append(report)
        room -= size
    return found


def read_machine() -> ResourceUsage:
    """CPU time that this machine has spent on anything, and memory that is not free to have. Nothing where there is no /proc."""
    try:
        stat = Path("/proc/stat").read_text(encoding="ascii")
        memory = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return ResourceUsage()
    return parse(stat, memory)


def parse(stat: str, meminfo: str) -> ResourceUsage:
    # user, nice, system, idle, iowait, irq, softirq, steal; what guests use is in user and nice.
    ticks = [int(each) for each in stat.split("\n", 1)[0].split()[1:9]]
    busy = sum(ticks) - sum(ticks[3:5])
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in meminfo.splitlines())}
    return ResourceUsage(cpu=busy * 10_000_000, memory=(sizes["MemTotal"] - sizes["MemAvailable"]) * 1024)
