"""Probe loops: check containers again and again, and pass results to the pod's health and to events.

`pods` calls `follow` after each plan. A container without probes costs nothing. Each probe of each run is one task, at
its own pace; the pod's next plan is made whenever the answer changes what is known.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

from app.agent.clock import Clock
from app.agent.pods.container_checks import Checks, CheckTarget
from app.agent.pods.container_config import find_container
from app.agent.pods.pod_worker import PodWorker
from app.kinds.pod.container import Container
from app.kinds.pod.probe import Probe
from app.plans.kubelet import pod_events, probes
from app.plans.kubelet.container_history import Run
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.probes import SORTS, Health, ResultRun, Sort, Unhealthy
from app.plans.kubelet.sync_pod import Key
from app.runtimes.base import ContainerKey
from app.structured_logging import Logger

RecordEvent = Callable[[PodWorker, Note], None]
Wake = Callable[[PodWorker], None]

logger = Logger(__name__)


class _Asked:
    """A run with its probes under way. `running`: by sort; `started` is set once the startup probe is through."""

    __slots__ = ("container", "key", "running", "started", "worker")

    def __init__(self, worker: PodWorker, key: Key, container: Container, *, started: bool) -> None:
        self.worker, self.key, self.container = worker, key, container
        self.running: dict[Sort, asyncio.Task[None]] = {}
        self.started = asyncio.Event()
        if started:
            self.started.set()


class ProbeManager:
    """Probes of all pods of an agent. `record_event` sends an event, `wake` has a pod synced."""

    def __init__(self, checks: Checks, clock: Clock, ip: str, record_event: RecordEvent, wake: Wake) -> None:
        self._checks, self._clock, self._ip = checks, clock, ip
        self._record_event, self._wake = record_event, wake
        self._asked: dict[str, dict[Key, _Asked]] = {}

    def follow(self, worker: PodWorker) -> None:
        """Start probes of containers that run, and end those of others."""
        asked = self._asked.get(worker.uid)
        if asked is None and not worker.has_probes:
            return
        asked = self._asked.setdefault(worker.uid, {})
        live = {
            key: run
            for key, run in worker.runs.items()
            if run.state == "running" and key not in worker.post_start_pending
        }
        for key in asked.keys() - live.keys():
            self._end(asked.pop(key))
            worker.health.pop(key, None)
        for key, run in live.items():
            if key not in asked:
                self._begin(asked, worker, key, run)
        if worker.pod.metadata.deletion_timestamp is not None:
            for each in asked.values():
                self._end(each, but="readiness")
        if not asked:
            del self._asked[worker.uid]

    def forget(self, uid: str) -> None:
        """Its pod is no longer ours."""
        for each in self._asked.pop(uid, {}).values():
            self._end(each)

    def _begin(self, asked: dict[Key, _Asked], worker: PodWorker, key: Key, run: Run) -> None:
        container = find_container(worker.pod, key.name)
        if not probes.has_probes(container):
            return
        status = worker.pod.status
        known = next(
            (each for each in (*status.init_container_statuses, *status.container_statuses) if each.name == key.name),
            None,
        )
        health = worker.health.setdefault(key, probes.initial_health(container, known, key.attempt))
        each = asked[key] = _Asked(worker, key, container, started=health.started)
        for sort in SORTS:
            probe = probes.probe_of(container, sort)
            if probe is not None and not (sort == "startup" and health.started):
                began_at = run.started_at or self._clock.now()
                each.running[sort] = asyncio.create_task(self._probe_loop(each, sort, probe, began_at))

    def _end(self, asked: _Asked, but: Sort | None = None) -> None:
        for sort, task in asked.running.items():
            if sort != but:
                task.cancel()

    async def _probe_loop(self, asked: _Asked, sort: Sort, probe: Probe, began_at: datetime) -> None:
        """Until the probe can change nothing more, or the container ends."""
        if sort != "startup":
            await asked.started.wait()
        at = max(probes.first_at(probe, began_at), self._clock.now())
        tally = ResultRun()
        while True:
            await self._clock.sleep((at - self._clock.now()).total_seconds())
            answer = await self._probe(asked, sort, probe)
            if answer is not None:
                tally = tally.heard(answer)
                word = probes.apply_threshold(tally, probe)
                if word is not None and self._record_result(asked, sort, word):
                    return
            at = max(at + probes.period(probe), self._clock.now())

    async def _probe(self, asked: _Asked, sort: Sort, probe: Probe) -> bool | None:
        worker, name = asked.worker, asked.key.name
        target = CheckTarget(ContainerKey(worker.uid, *asked.key), asked.container, worker.ip or self._ip)
        try:
            answer = await self._checks.probe(probe, target, probes.timeout(probe))
        except Exception as error:
            logger.error(
                "unexpected error in a probe",
                **worker.log_fields,
                container=name,
                handler=sort,
                traceback_of=error,
            )
            return None
        if answer.warning:
            self._record_event(
                worker, pod_events.probe_warning(worker.pod, name, f"{sort.capitalize()} {answer.warning}")
            )
        elif not answer.ok:
            text = probes.failure_message if answer.ok is False else probes.error_message
            self._record_event(worker, pod_events.unhealthy(worker.pod, name, text(sort, answer.output)))
        return answer.ok

    def _record_result(self, asked: _Asked, sort: Sort, word: bool) -> bool:
        """True if this probe has nothing more to say."""
        before = asked.worker.health.get(asked.key, Health())
        after = self._apply_result(before, asked, sort, word)
        if after != before:
            asked.worker.health[asked.key] = after
            self._wake(asked.worker)
        if sort == "startup" and word:
            asked.started.set()
        return sort == "startup" or (sort == "liveness" and not word)

    def _apply_result(self, before: Health, asked: _Asked, sort: Sort, word: bool) -> Health:
        if sort == "readiness":
            return before._replace(ready=word)
        if not word:
            return before._replace(unwell=self._as_unwell(asked, sort))
        return before._replace(started=True)

    def _as_unwell(self, asked: _Asked, sort: Sort) -> Unhealthy:
        spec = asked.worker.pod.spec
        is_init = any(each.name == asked.key.name for each in spec.init_containers)
        return probes.describe_failure(asked.container, sort, is_init=is_init, restarts=spec.restart_policy != "Never")

    async def close(self) -> None:
        tasks = [task for asked in self._asked.values() for each in asked.values() for task in each.running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
