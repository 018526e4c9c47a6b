"""CronJobs that are all due in the same minute: how late the last of them makes its Job."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, cpu_each, percentile
from benchmarks.jobs import created, job
from benchmarks.load import post_all, scaled

COUNT, POSTERS, NODES = 2_000, 16, 50
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
AHEAD = timedelta(seconds=40)  # time enough to post them, and for what that brings to settle


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=NODES) as cluster, created(cluster.client) as seen:
        due = _minute_after(datetime.now(UTC) + AHEAD)
        async with cluster.client.connections(POSTERS) as posters:
            await post_all(posters, CRON_JOBS, (_cron_job(f"cron-{number}", due) for number in range(count)))
        left = (due - datetime.now(UTC)).total_seconds() - 1
        if left < 0:
            raise RuntimeError(f"posting {count} CronJobs took until {-left:.0f} s after they were due")
        await asyncio.sleep(left)
        before = cluster.cpu()
        await seen.reach(count)
        late = [(at / 1e9 - due.timestamp()) for at in seen.at.values()]
        spent = await cluster.spent_since(before)
    return [
        Figure(name="last Job created", value=max(late), unit="s", target=10, note="after the minute began"),
        Figure(name="Job created, p50", value=percentile(late, 50), unit="s"),
        cpu_each("CronJob", spent, count),
    ]


def _minute_after(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0) + timedelta(minutes=1)


def _cron_job(name: str, due: datetime) -> dict[str, Any]:
    template = {"spec": job(name)["spec"]}
    spec = {"schedule": f"{due.minute} {due.hour} * * *", "timeZone": "Etc/UTC", "jobTemplate": template}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


CASE = Case(
    name="cron-minute",
    about="2,000 CronJobs that fire in the same minute, on 50 simulated nodes: until each has created its Job",
    run=run,
)
