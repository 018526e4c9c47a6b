"""Latency of a Job on a service that has nothing else to do, with real processes."""

import time
from pathlib import Path

from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, spread
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled

COUNT = 50


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    started, completed_after = [], []
    async with (
        checkout.up("process") as cluster,
        completions(cluster.client) as completed,
        cluster.client.connection() as connection,
    ):
        for number in range(scaled(COUNT, scale)):
            name, file = f"quick-{number}", cluster.folder / f"started-{number}"
            posted = time.time_ns()
            await connection.post(JOBS, job(name, _telling(file)))
            await completed.reach(number + 1)
            started.append((int(file.read_text()) - posted) / 1e6)
            completed_after.append((completed.at[name] - posted) / 1e6)
    return [
        *spread("POST to running", started, "ms", 100, note="the moment that the container itself writes down"),
        *spread("POST to Complete", completed_after, "ms"),
    ]


def _telling(file: Path) -> list[str]:
    return ["/bin/sh", "-c", f"date +%s%N > {file}"]


CASE = Case(name="pod-start", about="50 Jobs one after the other, idle, process runtime", run=run)
