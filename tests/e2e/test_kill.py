"""kill -9 of any one process in the middle of a Job, twenty times: nothing is lost, nothing runs twice, nothing stays behind.

Every container writes a line when it begins and one when it ends, so the ledger knows what really ran. It also tells
how far the Job has come, whichever process is dead at that moment.
"""

import asyncio
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.client.api import Api
from app.kinds.job import Job, condition
from tests.e2e import processes
from tests.e2e.cluster import Cluster, until
from tests.e2e.manifests import a_job, from_field

PODS = 200
AT_ONCE = 20
DONE_SECONDS = 90
GONE_SECONDS = 30
PHASES = ("Succeeded", "Failed")
JOBS = "/apis/batch/v1/namespaces/default/jobs"

# Every kind of process four times, in company that changes.
KILLS = (
    ("api", "controllers", "agent"),
    ("postgres", "up", "api"),
    ("controllers", "postgres", "agent"),
    ("up", "api", "controllers"),
    ("agent", "up", "postgres"),
    ("api", "agent", "up"),
    ("postgres", "controllers"),
)


def test_the_plan_kills_twenty_times_and_each_process_at_least_three() -> None:
    times = Counter(name for names in KILLS for name in names)
    assert sum(times.values()) == 20
    assert set(times) == {"api", "controllers", "agent", "postgres", "up"}
    assert min(times.values()) >= 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of our own: it is not treated well."""
    with Cluster(tmp_path_factory.mktemp("killed") / "data") as running:
        yield running
    assert running.surprises() == []


class Ledger:
    """A file to which every container appends its pod's UID and index, and what it has come to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def script(self) -> str:
        line = f'echo "$POD $INDEX %s" >> {self.path}'
        return f"{line % 'begins'}; sleep 0.2; {line % 'ends'}"

    def lines(self, word: str) -> list[tuple[str, str]]:
        """(UID, index) of every line that ends in the word."""
        found = [line.split(" ") for line in self.path.read_text().splitlines()]
        return [(uid, index) for uid, index, said in found if said == word]


def a_big_job(name: str, mode: str, ledger: Ledger) -> dict[str, Any]:
    env = [from_field("POD", "metadata.uid")]
    if mode == "Indexed":
        env.append(from_field("INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']"))
    how_many = {"completions": PODS, "parallelism": AT_ONCE, "completionMode": mode}
    return a_job(name, ledger.script(), env=env, **how_many)


@pytest.mark.parametrize(
    ("number", "names"),
    [pytest.param(number, names, id="-".join(names)) for number, names in enumerate(KILLS)],
)
async def test_a_job_completes_exactly_once_despite_kills(
    cluster: Cluster, tmp_path: Path, number: int, names: tuple[str, ...]
) -> None:
    mode = ("Indexed", "NonIndexed")[number % 2]
    seed = secrets.randbits(32)
    print(f"seed {seed}: {mode}, kill {', '.join(names)}")
    ledger = Ledger(tmp_path / "ledger")
    job = a_big_job(f"killed-{number}", mode, ledger)
    api = cluster.api()
    try:
        await api.request("POST", JOBS, job)
        done = asyncio.create_task(_finished(api, job["metadata"]["name"]))
        async with asyncio.timeout(DONE_SECONDS):
            await asyncio.to_thread(_kill, cluster, ledger, names, random.Random(seed))
            finished = await done
    finally:
        await api.close()
    with cluster.client() as client:
        pods = _pods(client, finished)
        _is_exact(finished, pods, ledger)
        assert cluster.containers() == []
        client.request("DELETE", f"{JOBS}/{finished.metadata.name}", json={"propagationPolicy": "Background"})
        until(lambda: not _pods(client, finished), GONE_SECONDS, "the pods go with their Job")
    until(lambda: not _kept(cluster), GONE_SECONDS, "the agent forgets the pods")


async def _finished(api: Api, name: str) -> Job:
    """The Job once it is over; the watch goes on through any trouble."""
    async for event in api.list_and_watch(JOBS, Job, {"fieldSelector": f"metadata.name={name}"}):
        for job in event.items if event.object is None else [event.object]:
            if condition(job, "Complete") or condition(job, "Failed"):
                return job
    raise AssertionError("the watch has ended")


def _kill(cluster: Cluster, ledger: Ledger, names: tuple[str, ...], chance: random.Random) -> None:
    """Kill one after the other, each a moment after so many containers have begun."""
    moments = sorted(chance.sample(range(1, PODS - AT_ONCE), len(names)))
    for name, moment in zip(names, moments, strict=True):
        until(lambda moment=moment: len(ledger.lines("begins")) >= moment, DONE_SECONDS, f"{moment} pods")
        time.sleep(chance.uniform(0, 0.1))
        print(f"kill -9 {name} after {len(ledger.lines('begins'))} pods have begun")
        if name == "up":
            cluster.kill()
            cluster.start()
        else:
            processes.kill(cluster.pid_of(name))


def _pods(client: httpx.Client, job: Job) -> list[dict[str, Any]]:
    labels = {"labelSelector": f"batch.kubernetes.io/controller-uid={job.metadata.uid}"}
    found: list[dict[str, Any]] = client.get("/api/v1/pods", params=labels).raise_for_status().json()["items"]
    return found


def _is_exact(job: Job, pods: list[dict[str, Any]], ledger: Ledger) -> None:
    """What the Job says, what its pods say, and what really ran agree."""
    assert condition(job, "Complete")
    assert (job.status.succeeded, job.status.active) == (PODS, 0)
    uids = {phase: {p["metadata"]["uid"] for p in pods if p["status"]["phase"] == phase} for phase in PHASES}
    begun, ended = ledger.lines("begins"), ledger.lines("ends")
    assert [uid for uid, times in Counter(uid for uid, _ in begun).items() if times > 1] == []
    assert {uid for uid, _ in ended} - uids["Failed"] == uids["Succeeded"]
    assert (len(uids["Succeeded"]), len(uids["Failed"])) == (PODS, job.status.failed)
    assert len(pods) == PODS + job.status.failed, "a pod has not ended"
    assert [pod["metadata"]["name"] for pod in pods if pod["metadata"].get("finalizers")] == []
    if job.spec.completion_mode == "Indexed":
        assert job.status.completed_indexes == f"0-{PODS - 1}"
        assert sorted(int(index) for uid, index in ended if uid in uids["Succeeded"]) == list(range(PODS))
    _only_cut_short(job, pods, {uid for uid, _ in begun})


def _only_cut_short(job: Job, pods: list[dict[str, Any]], begun: set[str]) -> None:
    """An agent that dies in the middle of a start leaves a pod that never ran, and that is told as failed."""
    failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
    for pod in failed:
        print(f"failed: {pod['status']}")
    assert job.status.failed <= 2
    assert begun.isdisjoint(pod["metadata"]["uid"] for pod in failed)


def _kept(cluster: Cluster) -> list[Path]:
    """What the agent remembers of containers."""
    return list((cluster.folder / "agent").rglob("spec.json"))
