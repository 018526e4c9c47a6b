"""Pod sync: for one pod look, plan, act, again whenever something may have changed. Called by `pods`, as the kubelet's syncPod.

Each pod has at most one task at a time, and that task alone starts containers and decides; stops take as long as they take,
beside it. A pod's last log bytes are with the API before its end is reported.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent.logs import LogShipper
from app.agent.pods.container_checks import Checks
from app.agent.pods.container_config import Host, find_container, run_of
from app.agent.pods.images import ImageManager
from app.agent.pods.lease_expiry import LeaseExpiry
from app.agent.pods.lifecycle_hooks import LifecycleHooks
from app.agent.pods.pod_termination import Stops
from app.agent.pods.pod_worker import PodWorker
from app.agent.pods.probes import ProbeManager
from app.agent.pods.pulled_images import FILE, PulledImages
from app.agent.pods.starts import Starts
from app.agent.pods.status_reports import StatusReporter
from app.agent.pods.termination_message import falls_back_to_log, message_from_log
from app.agent.tasks import Pace, Tasks
from app.client.protocol import StatusReport
from app.kinds.pod.pod import PodStatus
from app.kinds.pod.pod_state import has_ended
from app.plans.kubelet import sync_pod as pod_plan
from app.plans.kubelet.container_history import Run
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import is_only_starting
from app.plans.kubelet.sync_pod import Key, PodPlan
from app.runtimes.base import ContainerKey, ContainerStatus
from app.structured_logging import Logger

STARTING_REPORTED_AFTER = timedelta(seconds=1)  # most pods have started by then, and one report is enough
# Of programs of the machine: quick ones have ended by then, and one report is enough.
RUNNING_REPORTED_AFTER = timedelta(seconds=0.01)
TROUBLE_RETRY = 5.0
AWAY_RETRY = 1.0  # of a runtime that does not answer
PLANS = 8  # in one round of the event loop; a plan takes about a millisecond

logger = Logger(__name__)


class PodSync:
    """For all pods of the agent. `at_once`: how many may be starting.

    images: of the node, unless they mean nothing to the runtime.
    """

    def __init__(
        self,
        host: Host,
        reporter: StatusReporter,
        logs: LogShipper,
        lease_expiry: LeaseExpiry,
        tasks: Tasks,
        at_once: int,
    ) -> None:
        self._host, self._runtime, self._clock = host, host.runtime, host.clock
        self._reporter, self._logs, self._lease_expiry, self._tasks = reporter, logs, lease_expiry, tasks
        self._pace = Pace(PLANS)
        self._checks = checks = Checks(self._runtime, self._clock)
        self._probes = ProbeManager(checks, self._clock, host.ip, self._record_event_and_sync, self.wake_changed)
        self._hooks = hooks = LifecycleHooks(checks, self._clock, host.ip, self.record_event, self.wake_changed)
        self.images = (
            ImageManager(
                self._runtime,
                host.lookup,
                self._clock,
                self.record_event,
                self.wake_changed,
                PulledImages(host.state_dir / FILE),
            )
            if host.info.images
            else None
        )
        self.starts = Starts(host, self.images, hooks, at_once, self.record_event)
        self._stops = Stops(self._runtime, self._clock, hooks, self.record_event, tasks.spawn, self.wake)

    def wake(self, worker: PodWorker) -> None:
        """Sync it, if it is due."""
        if worker.is_due and worker.task is None:
            worker.task = self._tasks.spawn(self._sync_until_clean(worker))

    def wake_changed(self, worker: PodWorker) -> None:
        worker.changed = True
        self.wake(worker)

    def wake_later(self, worker: PodWorker, seconds: float) -> None:
        self._clock.call_later(seconds, lambda: self.wake_changed(worker))

    async def _sync_until_clean(self, worker: PodWorker) -> None:
        try:
            while worker.is_due:
                await self._pace.turn()
                if worker.is_due:
                    await self._sync(worker)
        except ConnectionError as error:
            logger.warning("cannot sync a pod; retrying", **worker.log_fields, error=error)
            self.wake_later(worker, AWAY_RETRY)
        except Exception as error:
            logger.error("unexpected error; cannot sync a pod", **worker.log_fields, traceback_of=error)
            self.wake_later(worker, TROUBLE_RETRY)
        finally:
            worker.task = None

    async def _sync(self, worker: PodWorker) -> None:
        if not await self._inspect_runs(worker) and not worker.changed:
            return
        worker.changed = False
        now = self._clock.now()
        worker.sandbox_lost = worker.sandbox_lost and worker.is_live
        plan = pod_plan.plan(
            worker.pod, worker.runs.values(), now, worker.place(self._host, self._lease_expiry.time_left(worker))
        )
        if plan.status != worker.pod.status:
            worker.pod = replace(worker.pod, status=plan.status)
        for note in plan.notes:
            worker.recorder.record(note, now)
        self._probes.follow(worker)
        self._schedule(worker, plan.again_at, now)
        for stop in plan.stop:
            self._stops.stop(worker, stop)
        await self._report_plan(worker, plan)
        if plan.start:
            await self.starts.start(worker, plan.start)

    async def _inspect_runs(self, worker: PodWorker) -> bool:
        news = False
        while worker.look:
            key = worker.look.pop()
            try:
                status = await self._runtime.status(ContainerKey(worker.uid, *key))
                run = await self._run_of(worker, status) if status else None
            except BaseException:
                worker.look.add(key)
                raise
            if run is None or run.state == "exited":
                worker.mark_ended(key)
            news |= worker.update_run(key, run)
        return news

    async def _run_of(self, worker: PodWorker, status: ContainerStatus) -> Run:
        run = run_of(status)
        if status.state != "exited" or not falls_back_to_log(
            status, find_container(worker.pod, run.name).termination_message_policy
        ):
            return run
        known = worker.runs.get(Key(status.key.name, status.key.attempt))
        if known is not None and known.state == "exited":
            return run._replace(message=known.message)
        words = await message_from_log(self._runtime, status.key, self._logs.position(status.key))
        return run._replace(message=words or run.message)

    def _schedule(self, worker: PodWorker, at: datetime | None, now: datetime) -> None:
        if worker.alarm is not None:
            worker.alarm.cancel()
        seconds = (at - now).total_seconds() if at else 0
        worker.alarm = self._clock.call_later(seconds, lambda: self.wake_changed(worker)) if at else None

    async def _report_plan(self, worker: PodWorker, plan: PodPlan) -> None:
        if plan.remove:
            self._host.devices.release(worker.uid)  # once its end is reported, other pods may get them
            await self._logs.finish(worker.keys, worker.owner)
        elif has_ended(plan.status):
            return  # the API knows that it has ended; it will know the rest when nothing runs any more
        elif is_only_starting(plan.status) and self._clock.now() - worker.seen_at < STARTING_REPORTED_AFTER:
            self._clock.call_later(STARTING_REPORTED_AFTER.total_seconds(), lambda: self._report_starting(worker))
            return
        elif self._may_end_at_once(worker, plan.status):
            self._clock.call_later(RUNNING_REPORTED_AFTER.total_seconds(), lambda: self._report_running(worker))
            return
        self._report(worker, gone=plan.remove and worker.pod.metadata.deletion_timestamp is not None)

    def _may_end_at_once(self, worker: PodWorker, status: PodStatus) -> bool:
        """Return whether the news is that the pod has begun to run, on a runtime where it may be over in a moment."""
        was_running = worker.reported is not None and worker.reported[0].phase == "Running"
        return self._host.info.host_programs and status.phase == "Running" and not was_running

    def _report_starting(self, worker: PodWorker) -> None:
        if is_only_starting(worker.pod.status):
            self._report(worker, gone=False)

    def _report_running(self, worker: PodWorker) -> None:
        if not has_ended(worker.pod.status):
            self._report(worker, gone=False)

    def _report(self, worker: PodWorker, *, gone: bool) -> None:
        """The newest status, unless it is what was reported last."""
        status, events = worker.pod.status, worker.recorder.take()
        if worker.orphaned or (worker.reported == (status, gone) and not events):
            return
        worker.reported = (status, gone)
        meta = worker.pod.metadata
        report = StatusReport(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            status=status,
            gone=gone,
            events=events,
            peak_memory=dict(worker.peak_memory) if has_ended(status) else {},
        )
        self._reporter.put(report)

    def record_event(self, worker: PodWorker, note: Note) -> None:
        """Event to send with the next status."""
        worker.recorder.record(note, self._clock.now())

    def _record_event_and_sync(self, worker: PodWorker, note: Note) -> None:
        """Event to send now: no other change may follow it."""
        worker.recorder.record(note, self._clock.now())
        self.wake_changed(worker)

    def forget(self, worker: PodWorker) -> None:
        """Nothing of the pod is looked at any more."""
        if worker.alarm is not None:
            worker.alarm.cancel()
        self._probes.forget(worker.uid)

    async def close(self) -> None:
        for part in (self._probes, self._hooks, self.images, self._checks):
            if part is not None:
                await part.close()
