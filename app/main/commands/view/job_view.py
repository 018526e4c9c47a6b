"""One Job and its attempts, kept up to date by two watches. Used by `run`, `watch` and `logs --follow`.

A view outlives its pods: attempts that were seen once stay. `JobView.next_change` waits for what changes.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from app.client.watch import WatchEvent
from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.main.commands.view.attempts import Attempt, attempt_of
from app.main.commands.view.job_words import exit_code, is_over

if TYPE_CHECKING:
    from app.client.api import Api

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"


def jobs_path(namespace: str, name: str = "") -> str:
    return f"/apis/batch/v1/namespaces/{namespace}/jobs" + (f"/{name}" if name else "")


def pods_path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")


class JobView:
    """State of one Job as the watches tell it. `attempts`: all that were seen, by the UID of their pod."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_gone = False
        self.attempts: dict[str, Attempt] = {}
        self._pods: dict[str, Pod] = {}  # that have changed since they were taken
        self._changed = asyncio.Event()
        self._loops: list[asyncio.Future[None]] = []

    @property
    def is_over(self) -> bool:
        return self.is_gone or is_over(self.job)

    def exit_code(self) -> int:
        return exit_code(self.job, list(self.attempts.values()))

    def take_job(self, event: WatchEvent[Job]) -> None:
        """Take what the watch of the Job tells. Another Job of its name means that it is gone."""
        found = event.items[0] if event.items else event.object
        if found is None or found.metadata.uid != self.job.metadata.uid:
            self.is_gone = True
        else:
            self.job, self.is_gone = found, event.type == "DELETED"
        self._changed.set()

    def take_pods(self, event: WatchEvent[Pod]) -> None:
        """Take what the watch of the pods tells."""
        for pod in (*event.items, *([event.object] if event.object else ())):
            self.attempts[pod.metadata.uid] = attempt_of(pod)
            self._pods[pod.metadata.uid] = pod
        self._changed.set()

    def take_changed_pods(self) -> list[Pod]:
        """Return the pods that have changed since the last call."""
        changed, self._pods = list(self._pods.values()), {}
        return changed

    async def next_change(self, seconds: float | None = None) -> None:
        """Wait for a change, or so long. Raises the error that ended a watch."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()
        for loop in self._loops:
            if loop.done():
                loop.result()

    async def complete(self, api: "Api") -> None:
        """List the pods once more: the watch of the Job may be ahead of that of its pods."""
        self.take_pods(WatchEvent("LISTED", items=tuple(await list_pods(api, self.job))))

    @asynccontextmanager
    async def watching(self, api: "Api") -> AsyncGenerator[None]:
        """Keep the view up to date for as long as the context is open."""
        meta = self.job.metadata
        self._loops = [
            asyncio.ensure_future(_follow_job(api, self, meta.namespace, meta.name)),
            asyncio.ensure_future(_follow_pods(api, self, meta.namespace, meta.uid)),
        ]
        for loop in self._loops:
            loop.add_done_callback(lambda _: self._changed.set())
        try:
            yield
        finally:
            for loop in self._loops:
                loop.cancel()
            await asyncio.gather(*self._loops, return_exceptions=True)


@asynccontextmanager
async def open_view(api: "Api", job: Job) -> AsyncGenerator[JobView]:
    """Watch a Job and its pods for as long as the context is open."""
    view = JobView(job)
    async with view.watching(api):
        yield view


async def _follow_job(api: "Api", view: JobView, namespace: str, name: str) -> None:
    async for event in api.list_and_watch(jobs_path(namespace), Job, {"fieldSelector": f"metadata.name={name}"}):
        view.take_job(event)


async def _follow_pods(api: "Api", view: JobView, namespace: str, uid: str) -> None:
    async for event in api.list_and_watch(pods_path(namespace), Pod, {"labelSelector": f"{CONTROLLER_UID}={uid}"}):
        view.take_pods(event)


async def list_attempts(api: "Api", job: Job) -> list[Attempt]:
    """List the attempts of a Job whose pods are there."""
    return [attempt_of(pod) for pod in await list_pods(api, job)]


async def list_pods(api: "Api", job: Job) -> list[Pod]:
    """List the pods of a Job, page by page."""
    query = {"labelSelector": f"{CONTROLLER_UID}={job.metadata.uid}"}
    async with aclosing(api.list_and_watch(pods_path(job.metadata.namespace), Pod, query)) as events:
        return list((await anext(events)).items)
