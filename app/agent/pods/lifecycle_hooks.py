"""Lifecycle hooks: postStart right after a container's start, preStop before its stop signal.

A container whose postStart hook fails is stopped, by way of its health. A preStop hook has what the container has: the
grace, from which its time is taken.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from app.agent.clock import Clock
from app.agent.pods.container_checks import CheckResult, Checks, CheckTarget
from app.agent.pods.container_config import find_container
from app.agent.pods.pod_worker import PodWorker
from app.agent.tasks import Tasks
from app.kinds.pod.container import Container
from app.kinds.pod.probe import LifecycleHandler
from app.plans.kubelet import pod_events
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.probes import Health, Unhealthy
from app.plans.kubelet.sync_pod import LEAST_GRACE, Key
from app.runtimes.base import ContainerKey
from app.structured_logging import Logger

logger = Logger(__name__)


class LifecycleHooks:
    """Hooks of all pods of an agent. `record_event` sends an event, `wake` has a pod synced."""

    def __init__(
        self,
        checks: Checks,
        clock: Clock,
        ip: str,
        record_event: Callable[[PodWorker, Note], None],
        wake: Callable[[PodWorker], None],
    ) -> None:
        self._checks, self._clock, self._ip = checks, clock, ip
        self._record_event, self._wake = record_event, wake
        self._tasks = Tasks()
        self._before: dict[ContainerKey, asyncio.Task[None]] = {}

    def after_start(self, worker: PodWorker, key: Key) -> None:
        """Until it is through, the container counts as one that is about to start."""
        container = find_container(worker.pod, key.name)
        handler = container.lifecycle.post_start if container.lifecycle else None
        if handler is not None:
            worker.post_start_pending.add(key)
            self._tasks.spawn(self._after_start(worker, key, container, handler))

    async def _after_start(self, worker: PodWorker, key: Key, container: Container, handler: LifecycleHandler) -> None:
        answer = await self._run(worker, key, container, handler)
        if answer.ok:
            worker.post_start_pending.discard(key)
        else:
            logger.info(
                "hook of a container failed",
                **worker.log_fields,
                container=key.name,
                handler="postStart",
                error=answer.output,
            )
            self._record_event(worker, pod_events.hook_failed(worker.pod, key.name, "PostStart"))
            worker.health[key] = Health(unwell=Unhealthy("FailedPostStartHook"))
        self._wake(worker)

    async def before_stop(self, worker: PodWorker, key: Key, grace: timedelta) -> timedelta:
        """Return what is left of the grace after the hook, if there is one; it is run once, however often a stop is asked for."""
        container = find_container(worker.pod, key.name)
        handler = container.lifecycle.pre_stop if container.lifecycle else None
        if handler is None or grace <= timedelta():
            return grace
        whole = ContainerKey(worker.uid, *key)
        hook = self._before.get(whole)
        if hook is None:
            hook = self._before[whole] = self._tasks.spawn(self._before_stop(worker, key, container, handler))
        began = self._clock.elapsed()
        await self._within(hook, grace)
        return max(grace - timedelta(seconds=self._clock.elapsed() - began), min(LEAST_GRACE, grace))

    async def _within(self, hook: asyncio.Task[None], grace: timedelta) -> None:
        over = asyncio.ensure_future(self._clock.sleep(grace.total_seconds()))
        try:
            await asyncio.wait([hook, over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()

    def on_stopped(self, worker: PodWorker, key: Key) -> None:
        """The container has ended, and with it whatever its hook still does."""
        hook = self._before.pop(ContainerKey(worker.uid, *key), None)
        if hook is not None:
            hook.cancel()

    async def _before_stop(self, worker: PodWorker, key: Key, container: Container, handler: LifecycleHandler) -> None:
        answer = await self._run(worker, key, container, handler)
        if not answer.ok:
            logger.info(
                "hook of a container failed",
                **worker.log_fields,
                container=key.name,
                handler="preStop",
                error=answer.output,
            )
            self._record_event(worker, pod_events.hook_failed(worker.pod, key.name, "PreStop"))

    async def _run(self, worker: PodWorker, key: Key, container: Container, handler: LifecycleHandler) -> CheckResult:
        target = CheckTarget(ContainerKey(worker.uid, *key), container, worker.ip or self._ip)
        try:
            return await self._checks.hook(handler, target)
        except Exception as error:
            logger.error(
                "unexpected error in a hook", **worker.log_fields, container=key.name, error=error, traceback_of=error
            )
            return CheckResult(False, str(error))

    async def close(self) -> None:
        await self._tasks.close()
