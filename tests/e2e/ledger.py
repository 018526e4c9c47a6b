"""What really ran: a file to which every container of a Job appends a line when it begins and one when it ends.

It knows whatever the processes of Jobplane forget, and tells how far a Job has come whichever of them is dead.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx

from app.client.api import Api
from app.kinds.batch.job import Job, condition
from tests.e2e.cluster import until
from tests.e2e.manifests import a_job, from_field

JOBS = "/apis/batch/v1/namespaces/default/jobs"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class Ledger:
    """For one Job at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def job(
        self, name: str, mode: str, *, pods: int, at_once: int, work: str = "sleep 0.2", last: str = ":"
    ) -> dict[str, Any]:
        """A Job of many short pods that keep this ledger: `work` while they do, `last` once they have said that they end."""
        line = f'echo "$POD $INDEX %s" >> {self.path}'
        env = [from_field("POD", "metadata.uid"), *([from_field("INDEX", _INDEX)] if mode == "Indexed" else [])]
        script = f"{line % 'begins'}; {work}; {line % 'ends'}; {last}"
        return a_job(name, script, env=env, completions=pods, parallelism=at_once, completionMode=mode)

    def lines(self, word: str) -> list[tuple[str, str]]:
        """(UID, index) of every line that ends in the word."""
        whole, _, _ = self.path.read_text().rpartition("\n")  # the last line may be on its way
        found = [line.split(" ") for line in whole.splitlines()]
        return [(uid, index) for uid, index, said in found if said == word]

    def begun(self) -> int:
        return len(self.lines("begins"))


async def completed(api: Api, job: dict[str, Any], meanwhile: Callable[[], None], seconds: float) -> Job:
    """The Job once it is over. `meanwhile` is called when it has been made."""
    try:
        await api.request("POST", JOBS, job)
        done = asyncio.create_task(_finished(api, job["metadata"]["name"]))
        async with asyncio.timeout(seconds):
            await asyncio.to_thread(meanwhile)
            return await done
    finally:
        await api.close()


async def _finished(api: Api, name: str) -> Job:
    """The Job once it is over; the watch goes on through any trouble."""
    async for event in api.list_and_watch(JOBS, Job, {"fieldSelector": f"metadata.name={name}"}):
        for job in event.items if event.object is None else [event.object]:
            if condition(job, "Complete") or condition(job, "Failed"):
                return job
    raise AssertionError("the watch has ended")


def pods_of(client: httpx.Client, job: Job) -> list[dict[str, Any]]:
    labels = {"labelSelector": f"batch.kubernetes.io/controller-uid={job.metadata.uid}"}
    found: list[dict[str, Any]] = client.get("/api/v1/pods", params=labels).raise_for_status().json()["items"]
    return found


def delete(client: httpx.Client, job: Job, seconds: float) -> None:
    """With its pods, which take their time."""
    client.request("DELETE", f"{JOBS}/{job.metadata.name}", json={"propagationPolicy": "Background"}).raise_for_status()
    until(lambda: not pods_of(client, job), seconds, "the pods go with their Job")


def is_exact(
    job: Job, pods: list[dict[str, Any]], ledger: Ledger, *, killed: bool = False, forgotten: Collection[str] = ()
) -> bool:
    """What the Job says, what its pods say and what really ran agree, and no pod has run twice.

    killed:    containers may have been killed in the middle, which makes their pods fail.
    forgotten: failed pods, by their UID, that may have come to their end.
    """
    succeeded, failed = _in_phase(pods, "Succeeded"), _in_phase(pods, "Failed")
    begun = ledger.lines("begins")
    ended = [(uid, index) for uid, index in ledger.lines("ends") if uid not in forgotten]
    assert failed.issuperset(forgotten)
    assert condition(job, "Complete")
    assert (job.status.succeeded, job.status.failed, job.status.active) == (job.spec.completions, len(failed), 0)
    assert len(pods) == len(succeeded) + len(failed), "a pod has not ended"
    assert len(succeeded) == job.spec.completions
    assert [pod["metadata"]["name"] for pod in pods if pod["metadata"].get("finalizers")] == []
    assert [uid for uid, times in Counter(uid for uid, _ in begun).items() if times > 1] == []
    assert {uid for uid, _ in ended} == succeeded
    cut_off = {uid for uid, _ in begun} - succeeded
    assert cut_off <= (failed if killed else set()), "a pod that began was not counted"
    if job.spec.completion_mode == "Indexed":
        assert job.status.completed_indexes == f"0-{job.spec.completions - 1}"
        assert sorted(int(index) for _, index in ended) == list(range(job.spec.completions))
    return True


def _in_phase(pods: list[dict[str, Any]], phase: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] == phase}
