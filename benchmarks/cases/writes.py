"""Throughput of plain writes to the API."""

import time
from typing import Any

from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, cpu_each, percentile
from benchmarks.load import post_all, scaled

COUNT, POSTERS = 5_000, 16
PATH = "/api/v1/namespaces/default/configmaps"


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up() as cluster, cluster.client.connections(POSTERS) as posters:
        await post_all(posters, PATH, (_config_map(f"warm-{number}") for number in range(POSTERS * 4)))
        before, began, own = cluster.cpu(), time.perf_counter(), time.process_time()
        took = await post_all(posters, PATH, (_config_map(f"write-{number}") for number in range(count)))
        seconds, own = time.perf_counter() - began, time.process_time() - own
        spent = await cluster.spent_since(before)
    note = f"client's own CPU {own * 1000 / count:.2f} ms a request"
    return [
        Figure(name="throughput", value=count / seconds, unit="req/s", higher_is_better=True, note=note),
        cpu_each("request", spent, count),
        Figure(name="POST, p50", value=percentile(took, 50), unit="ms"),
        Figure(name="POST, p99", value=percentile(took, 99), unit="ms"),
    ]


def _config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}


CASE = Case(name="writes", about="POST of 5,000 small ConfigMaps over 16 connections", run=run)
