"""Very many nodes: how late their leases are, whether one of them is falsely lost, and how soon all are back.

One agent process simulates all nodes, each with watches and a lease of its own. It shares the cores with the service, so
the figures are those of both.
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster, answers
from benchmarks.figures import Figure, percentile
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled
from benchmarks.watched_copy import WatchedCopy, find_differences, followed
from benchmarks.wire import RefusedError

NODES, STEADY_SECONDS = 5_000, 120.0
KEPT_PODS, MORE_PODS, BACK_PATIENCE = 20_000, 2_000, 300.0
BURST_NODES, BURST_PODS, BURST_PATIENCE = 1_000, 50_000, 600.0
RENEWAL_SECONDS = 10.0  # between renewals of an agent that nothing delays
LOOK_SECONDS = 1.0
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_WATCHES = re.compile(r'^apiserver_longrunning_requests{verb="WATCH".*?,resource="pods".*?} (\S+)$', re.MULTILINE)
LOST = "/api/v1/events?fieldSelector=reason=NodeNotReady&limit=500"


class Leases:
    """The ages of all leases, in seconds, looked at again and again. While the API is away there is nothing to see."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.ages: list[float] = []

    async def follow(self) -> None:
        """Look until cancelled."""
        while True:
            self.ages += [time.time() - renewed for renewed in await renewals(self._cluster)]
            await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def _watched(cluster: Cluster) -> AsyncIterator[Leases]:
    leases = Leases(cluster)
    following = asyncio.create_task(leases.follow())
    try:
        yield leases
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def renewals(cluster: Cluster) -> list[float]:
    """When each lease was renewed last, in seconds of the epoch; none if the API does not answer."""
    try:
        async with cluster.client.connection() as connection:
            items = (await connection.read(LEASES))["items"]
    except (OSError, RefusedError):
        return []
    return [_seconds(each["spec"]["renewTime"]) for each in items]


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


async def _lost(cluster: Cluster) -> int:
    """How many nodes have been declared lost, as events tell it."""
    async with cluster.client.connection() as connection:
        items: list[dict[str, Any]] = (await connection.read(LOST))["items"]
    return len({each["involvedObject"]["name"] for each in items})


async def steady(checkout: Checkout, scale: float) -> list[Figure]:
    """Nothing but nodes."""
    nodes = scaled(NODES, scale)
    async with checkout.up(nodes=nodes, settle=30.0) as cluster:
        before, began = cluster.cpu(), time.monotonic()
        async with _watched(cluster) as leases:
            await asyncio.sleep(STEADY_SECONDS)
        took = time.monotonic() - began
        spent = await cluster.spent_since(before)
        lost = await _lost(cluster)
    late = percentile(leases.ages, 99) - RENEWAL_SECONDS
    note = ", ".join(f"{role} {used / took:.2f}" for role, used in sorted(spent.items()) if used / took >= 0.01)
    return [
        Figure(name="lease late by, p99", value=max(0.0, late), unit="s", target=2),
        Figure(name="nodes falsely NotReady", value=lost, unit="nodes", target=0),
        Figure(name="cores used", value=sum(spent.values()) / took, unit="cores", note=note),
    ]


async def back(checkout: Checkout, scale: float) -> list[Figure]:
    """The API is killed under a Job whose pods fill the nodes."""
    nodes, pods = scaled(NODES, scale), scaled(KEPT_PODS, scale)
    async with checkout.up(nodes=nodes, settle=30.0) as cluster:
        async with cluster.client.connection() as connection:
            await connection.post(JOBS, _long(pods))
        await _until(cluster, "long", "ready", pods)
        await cluster.settle(60.0)
        async with followed(WatchedCopy(cluster.client, PODS)) as copy:
            before, killed = cluster.cpu(), time.time()
            os.kill(cluster.pid_of("api"), signal.SIGKILL)
            seconds, watching = await asyncio.gather(
                _until_renewed(cluster, killed, nodes), _until_watching(cluster, killed, nodes)
            )
            spent = await cluster.spent_since(before)
            lost_at_first = await _lost(cluster)
            await _kill_under_pods(cluster, scaled(MORE_PODS, scale))
            differences = await find_differences(copy, cluster.client, PODS, BACK_PATIENCE)
        await asyncio.sleep(60.0)  # longer than a node may be silent
        lost = await _lost(cluster)
    return [
        Figure(name="every lease renewed after", value=seconds, unit="s", target=20),
        Figure(name="every node watches after", value=watching, unit="s", target=20),
        Figure(
            name="nodes falsely NotReady", value=lost, unit="nodes", target=0, note=f"{lost_at_first} by the first kill"
        ),
        Figure(name="CPU until then", value=sum(spent.values()), unit="s", note=_shares(spent)),
        Figure(name="a watch of all pods lost", value=differences, unit="pods", target=0, note=_story(copy)),
    ]


async def _kill_under_pods(cluster: Cluster, pods: int) -> None:
    """Run more pods, and kill the API once some have ended; return when all have."""
    async with cluster.client.connection() as connection:
        await connection.post(JOBS, job("more", parallelism=pods, completions=pods))
    await _until(cluster, "more", "succeeded", 1)
    os.kill(cluster.pid_of("api"), signal.SIGKILL)
    await _until(cluster, "more", "succeeded", pods)


def _shares(spent: dict[str, float]) -> str:
    """Return CPU by role. The kernel has added that of the killed API to its parent, `up`, which spends next to none itself."""
    spent = dict(spent)
    spent["api"] = spent.get("api", 0.0) + spent.pop("up", 0.0)
    return ", ".join(f"{role} {used:.1f}" for role, used in sorted(spent.items()))


def _story(copy: WatchedCopy) -> str:
    return f"{len(copy.versions)} pods, {copy.watches} watches, {copy.lists} lists, {copy.events} events"


def _long(pods: int) -> dict[str, Any]:
    forever = job("long", parallelism=pods, completions=pods)
    forever["spec"]["template"]["metadata"] = {"annotations": {"jobplane.dev/simulate": "seconds=86400"}}
    return forever


async def _until(cluster: Cluster, name: str, count: str, reached: int) -> None:
    """Wait until a count in the Job's status has come so far. The API may be away meanwhile."""
    async with asyncio.timeout(BACK_PATIENCE):
        while True:
            with contextlib.suppress(OSError, RefusedError):
                async with cluster.client.connection() as connection:
                    status = (await connection.read(f"{JOBS}/{name}")).get("status", {})
                if status.get(count, 0) >= reached:
                    return
            await asyncio.sleep(LOOK_SECONDS)


async def _until_renewed(cluster: Cluster, since: float, nodes: int) -> float:
    """Seconds from `since` until so many leases are newer."""
    async with asyncio.timeout(BACK_PATIENCE):
        while sum(renewed > since for renewed in await renewals(cluster)) < nodes:  # noqa: ASYNC110 - as a client sees it
            await asyncio.sleep(LOOK_SECONDS if await answers(cluster) else 0.1)
    return time.time() - since


async def _until_watching(cluster: Cluster, since: float, nodes: int) -> float:
    """Seconds from `since` until so many watches of pods are open."""
    async with asyncio.timeout(BACK_PATIENCE):
        while await _open_watches(cluster) < nodes:  # noqa: ASYNC110 - as an operator sees it
            await asyncio.sleep(LOOK_SECONDS)
    return time.time() - since


async def _open_watches(cluster: Cluster) -> float:
    """Return the number of open watches of pods, as /metrics tells it; 0 while the API does not answer."""
    try:
        async with cluster.client.connection() as connection:
            text = (await connection.get("/metrics")).decode()
    except (OSError, RefusedError):
        return 0.0
    return sum(float(value) for value in _WATCHES.findall(text))


async def burst(checkout: Checkout, scale: float) -> list[Figure]:
    """A Job that keeps every writer busy."""
    nodes, pods = scaled(BURST_NODES, scale), scaled(BURST_PODS, scale)
    async with (
        checkout.up(nodes=nodes, settle=30.0) as cluster,
        completions(cluster.client, BURST_PATIENCE) as completed,
        _watched(cluster) as leases,
    ):
        began = time.time_ns()
        async with cluster.client.connection() as connection:
            await connection.post(JOBS, job("burst", parallelism=pods, completions=pods))
        await completed.reach(1)
        seconds = (completed.at["burst"] - began) / 1e9
        lost = await _lost(cluster)
    return [
        Figure(name="longest gap of a lease", value=max(leases.ages), unit="s", target=15),
        Figure(name="nodes falsely NotReady", value=lost, unit="nodes", target=0),
        Figure(name="throughput", value=pods / seconds, unit="pods/s", higher_is_better=True),
    ]


CASE = Case(name="fleet", about="5,000 simulated nodes that do nothing, for two minutes, on one API", run=steady)
BACK = Case(
    name="fleet-back",
    about="kill -9 of the API, twice, under 5,000 nodes, a Job of 20,000 running pods and a watch of all",
    run=back,
    longest=900.0,
)
BURST = Case(name="fleet-burst", about="a Job of 50,000 pods at once on 1,000 simulated nodes", run=burst)
