"""Runs the pods of this agent's nodes: for each one look, plan, act, again whenever something may have changed.

Level-triggered: the API, the runtime, alarms and the lease only say "look at this pod". Each pod has at most one task
at a time, and that task alone starts containers and decides; stops take as long as they take, beside it.

Nothing has to be remembered across a restart: attempts, exit codes and times are in the runtime's list and in the
pod's status. A pod's last log bytes are with the API before its end is reported, and its sandbox goes only after the
API has taken note. What the runtime runs for pods that the API does not know is stopped and removed, once every node's
pods have been listed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent.logs import LogShipper
from app.agent.pods.container_checks import Checks
from app.agent.pods.container_config import Host, named, run_of
from app.agent.pods.images import ImageManager
from app.agent.pods.lease_expiry import LeaseExpiry
from app.agent.pods.lifecycle_hooks import LifecycleHooks
from app.agent.pods.pod_termination import PodCleanup, Stops
from app.agent.pods.pod_worker import PodWorker
from app.agent.pods.probes import ProbeManager
from app.agent.pods.starts import Starts
from app.agent.pods.status_reports import LastReports, StatusReporter
from app.agent.pods.termination_message import falls_back_to_log, message_from_log
from app.agent.tasks import Pace, Tasks
from app.client.protocol import StatusReport
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.pod.pod_state import has_ended
from app.plans.kubelet import image_gc, pod_events
from app.plans.kubelet import sync_pod as pod_plan
from app.plans.kubelet.container_history import Run
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import Evicted, is_only_starting
from app.plans.kubelet.sync_pod import Key, PodPlan
from app.runtimes.base import ContainerKey, ContainerStatus
from app.structured_logging import Logger, PodFields

RELIST = 10.0
STARTING_REPORTED_AFTER = timedelta(seconds=1)  # most pods have started by then, and one report is enough
CONFLICT_RETRY = 1.0
TROUBLE_RETRY = 5.0
AWAY_RETRY = 1.0  # of a runtime that does not answer
PLANS = 8  # in one round of the event loop; a plan takes about a millisecond

logger = Logger(__name__)


class Pods:
    """All pods of the agent. `starts`: how many may be starting at once.

    images:    of the node, unless they mean nothing to the runtime.
    _found:    what the runtime listed at the start, by pod, until the API tells whose it is. `_ips`: of the sandboxes.
    _unlisted: nodes whose pods the API has not listed yet.
    _workers_of: the pod workers of each node: an agent may have a thousand nodes, and twenty thousand pods.
    _ended:    pods of each node that have ended for the API, while its watch may still tell what they were before.
    """

    def __init__(
        self,
        host: Host,
        nodes: Iterable[str],
        reporter: StatusReporter,
        logs: LogShipper,
        lease_expiry: LeaseExpiry,
        starts: int,
    ) -> None:
        self._host, self._runtime, self._clock = host, host.runtime, host.clock
        self._reporter, self._logs, self._lease_expiry = reporter, logs, lease_expiry
        self._workers: dict[str, PodWorker] = {}
        self._workers_of: defaultdict[str, dict[str, PodWorker]] = defaultdict(dict)
        self._unlisted = set(nodes)
        self._found: dict[str, list[ContainerStatus]] = {}
        self._ips: dict[str, str] = {}
        self._tasks = Tasks()
        self._pace = Pace(PLANS)
        self._ended: defaultdict[str, set[str]] = defaultdict(set)
        self._last_reports = LastReports()
        self._cleanup = PodCleanup(host, self._tasks.spawn)
        self._checks = checks = Checks(self._runtime, self._clock)
        self._probes = ProbeManager(checks, self._clock, host.ip, self._record_event_and_sync, self._wake_changed)
        self._hooks = hooks = LifecycleHooks(checks, self._clock, host.ip, self._record_event, self._wake_changed)
        self.images = (
            ImageManager(self._runtime, host.lookup, self._clock, self._record_event, self._wake_changed)
            if host.info.images
            else None
        )
        self.starts = Starts(host, self.images, hooks, starts, self._record_event)
        self._stops = Stops(self._runtime, self._clock, hooks, self._record_event, self._tasks.spawn, self._wake)

    # Changes at the API

    def on_pods_listed(self, node: str, pods: Sequence[Pod]) -> None:
        """These are all the pods of the node."""
        present = {pod.metadata.uid for pod in pods}
        for pod in pods:
            self.on_pod_changed(pod)
            if pod.metadata.uid in self._ended[node] and (report := self._last_reports.find(pod)):
                self._reporter.put(report)
        for worker in list(self._workers_of[node].values()):
            if worker.uid not in present:
                self._release(worker)
            elif self._lease_expiry.lift(worker):
                self._wake_changed(worker)
        self._ended[node] &= present
        if node in self._unlisted:
            self._unlisted.discard(node)
            if not self._unlisted:
                self._remove_unknown_pods()

    def on_pod_changed(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update_pod(pod)
            self._wake(worker)
        elif uid not in self._ended[pod.spec.node_name] or is_terminal(pod):
            self._ended[pod.spec.node_name].discard(uid)
            if report := self._last_reports.find(pod):
                self._ended[pod.spec.node_name].add(uid)
                self._reporter.put(report)
            else:
                self._add_worker(pod, self._found.pop(uid, []))

    def _add_worker(self, pod: Pod, found: Sequence[ContainerStatus]) -> None:
        if is_terminal(pod) and pod.metadata.deletion_timestamp is None and not found:
            return  # history: nothing will ever be done about it
        worker = PodWorker(pod, self._clock.now(), [_key(status.key) for status in found])
        self._workers[worker.uid] = self._workers_of[worker.node][worker.uid] = worker
        self._lease_expiry.impose(worker)
        if worker.uid in self._ips:
            worker.ip, worker.sandbox_ready = self._ips.pop(worker.uid), True
            self._host.hosts.seen(pod, worker.ip)
        else:
            worker.mark_sandbox_lost()
        for status in found:
            self._logs.grew(status.key, worker.owner)  # it may have written while no agent was there
        self._wake(worker)

    def on_pod_deleted(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid in self._workers:
            self._release(self._workers[uid])
        self._ended[pod.spec.node_name].discard(uid)

    def on_report_answered(self, report: StatusReport, code: int) -> None:
        """The API has answered a report."""
        if code == 200:
            self._last_reports.keep(report)
        worker = self._workers.get(report.uid)
        if worker is None:
            if code == 409 and has_ended(report.status):
                self._clock.call_later(CONFLICT_RETRY, lambda: self._repeat(report))
            return
        if code == 404:
            self._release(worker)
        elif code != 200:
            worker.recorder.put_back(report.events if code == 409 else ())
            worker.reported = None  # 409: changed meanwhile; anything else needs an administrator
            self._wake_later(worker, CONFLICT_RETRY if code == 409 else TROUBLE_RETRY)
        elif has_ended(report.status):
            if report.gone or worker.pod.metadata.deletion_timestamp is None:
                self._release(worker)
            else:
                self._wake_changed(worker)

    def _repeat(self, report: StatusReport) -> None:
        """The pod has ended here, so nothing else would report it again."""
        if report.uid not in self._workers:
            self._reporter.put(report)

    def log_fields(self, uid: str) -> PodFields:
        """Fields of the log lines about a pod; none if it is not known."""
        worker = self._workers.get(uid)
        return worker.log_fields if worker else {}

    def node_of(self, uid: str) -> str:
        """The node of a pod that is looked after; empty if it is not."""
        worker = self._workers.get(uid)
        return worker.node if worker else ""

    def all(self) -> list[Pod]:
        """Those that are looked after, as they are known."""
        return [worker.pod for worker in self._workers.values()]

    def workers(self) -> list[PodWorker]:
        return list(self._workers.values())

    def images_in_use(self) -> set[str]:
        """Ids."""
        return {image for worker in self._workers.values() for image in worker.images.values()}

    def evict(self, uid: str, why: Evicted, note: Note | None) -> None:
        """The pod fails."""
        worker = self._workers.get(uid)
        if worker is not None and worker.evicted is None:
            worker.evicted = why
            if note is not None:
                self._record_event(worker, note)
            self._wake_changed(worker)

    # The node's lease

    def on_lease_expired(self, node: str) -> None:
        """A node without its lease runs no pod for longer than the pod tolerates. Called every second until it has one again."""
        for worker in self._workers_of[node].values():
            if self._lease_expiry.impose(worker):
                self._wake_changed(worker)

    # Changes in the runtime

    async def adopt(self) -> None:
        """Before anything else: what earlier agents have left running."""
        for status in await self._runtime.list():
            self._found.setdefault(status.key.pod_uid, []).append(status)
        self._ips = {sandbox.pod_uid: sandbox.ip for sandbox in await self._runtime.sandboxes()}

    async def follow_events(self) -> None:
        async for key in self._runtime.events():
            worker = self._workers.get(key.pod_uid)
            if worker is not None:
                worker.look.add(_key(key))
                self._wake(worker)

    async def follow_logs(self) -> None:
        async for key in self._runtime.logged():
            worker = self._workers.get(key.pod_uid)
            if worker is not None:
                self._logs.grew(key, worker.owner)

    async def relist(self) -> None:
        """Events get lost; this finds what they missed."""
        while True:
            await self._clock.sleep(RELIST)
            stood = [worker for worker in self._workers.values() if worker.sandbox_ready]
            standing = {sandbox.pod_uid for sandbox in await self._runtime.sandboxes()}
            for worker in stood:
                if worker.uid not in standing:
                    self._on_sandbox_lost(worker)
            self._compare(await self._runtime.list())
            if not self._unlisted:
                self._cleanup.clear_unknown(standing, self._workers.keys())

    def _on_sandbox_lost(self, worker: PodWorker) -> None:
        """The pod's sandbox is gone: whatever is left in it makes way for a new one."""
        if worker.orphaned or not worker.sandbox_ready or has_ended(worker.pod.status):
            return
        worker.sandbox_ready, worker.sandbox_lost = False, True
        worker.mark_sandbox_lost()
        worker.look |= worker.runs.keys()
        self._record_event(worker, pod_events.sandbox_changed())
        self._wake_changed(worker)

    def _compare(self, statuses: Iterable[ContainerStatus]) -> None:
        """The list may be older than what is known by now: where they differ, look again."""
        found: dict[str, dict[Key, ContainerStatus]] = defaultdict(dict)
        for status in statuses:
            found[status.key.pod_uid][_key(status.key)] = status
        for worker in list(self._workers.values()):
            listed = found.pop(worker.uid, {})
            worker.look |= {key for key, status in listed.items() if worker.runs.get(key) != run_of(status)}
            worker.look |= worker.runs.keys() - listed.keys()
            self._wake(worker)
        if not self._unlisted:
            for uid, left in found.items():
                self._cleanup.clear(uid, _running(left.values()))

    def _remove_unknown_pods(self) -> None:
        """Every node's pods are known: what is left of the first list belongs to no pod."""
        for uid, left in self._found.items():
            self._cleanup.clear(uid, _running(left))
        self._found, self._ips = {}, {}
        for uid in self._cleanup.uids_with_files() - self._workers.keys():
            self._cleanup.clear(uid, ())

    async def remove_old_runs(self) -> None:
        """Remove containers of runs that later ones have followed."""
        if not self._unlisted:
            await asyncio.gather(*map(self._remove_old_runs, self.workers()))

    async def _remove_old_runs(self, worker: PodWorker) -> None:
        for run in list(image_gc.dead(worker.runs.values())):
            key = ContainerKey(worker.uid, run.name, run.attempt)
            await self._logs.finish([key], worker.owner)
            await self._runtime.remove_container(key)
            worker.look.add(_key(key))
        self._wake(worker)

    # One pod

    def _wake(self, worker: PodWorker) -> None:
        if worker.is_due and worker.task is None:
            worker.task = self._tasks.spawn(self._sync_until_clean(worker))

    def _wake_changed(self, worker: PodWorker) -> None:
        worker.changed = True
        self._wake(worker)

    def _wake_later(self, worker: PodWorker, seconds: float) -> None:
        self._clock.call_later(seconds, lambda: self._wake_changed(worker))

    async def _sync_until_clean(self, worker: PodWorker) -> None:
        try:
            while worker.is_due:
                await self._pace.turn()
                if worker.is_due:
                    await self._sync(worker)
        except ConnectionError as error:
            logger.warning("cannot sync a pod; retrying", **worker.log_fields, error=error)
            self._wake_later(worker, AWAY_RETRY)
        except Exception as error:
            logger.error("unexpected error; cannot sync a pod", **worker.log_fields, traceback_of=error)
            self._wake_later(worker, TROUBLE_RETRY)
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
            status, named(worker.pod, run.name).termination_message_policy
        ):
            return run
        known = worker.runs.get(_key(status.key))
        if known is not None and known.state == "exited":
            return run._replace(message=known.message)
        words = await message_from_log(self._runtime, status.key, self._logs.position(status.key))
        return run._replace(message=words or run.message)

    def _schedule(self, worker: PodWorker, at: datetime | None, now: datetime) -> None:
        if worker.alarm is not None:
            worker.alarm.cancel()
        seconds = (at - now).total_seconds() if at else 0
        worker.alarm = self._clock.call_later(seconds, lambda: self._wake_changed(worker)) if at else None

    async def _report_plan(self, worker: PodWorker, plan: PodPlan) -> None:
        if plan.remove:
            self._host.devices.release(worker.uid)  # once its end is reported, other pods may get them
            await self._logs.finish(worker.keys, worker.owner)
        elif has_ended(plan.status):
            return  # the API knows that it has ended; it will know the rest when nothing runs any more
        elif is_only_starting(plan.status) and self._clock.now() - worker.seen_at < STARTING_REPORTED_AFTER:
            self._clock.call_later(STARTING_REPORTED_AFTER.total_seconds(), lambda: self._report_starting(worker))
            return
        self._report(worker, gone=plan.remove and worker.pod.metadata.deletion_timestamp is not None)

    def _report_starting(self, worker: PodWorker) -> None:
        if is_only_starting(worker.pod.status):
            self._report(worker, gone=False)

    def _report(self, worker: PodWorker, *, gone: bool) -> None:
        """The newest status, unless it is what was reported last."""
        status, events = worker.pod.status, worker.recorder.take()
        if worker.orphaned or (worker.reported == (status, gone) and not events):
            return
        worker.reported = (status, gone)
        meta = worker.pod.metadata
        report = StatusReport(
            uid=meta.uid, namespace=meta.namespace, name=meta.name, status=status, gone=gone, events=events
        )
        self._reporter.put(report)

    def _record_event(self, worker: PodWorker, note: Note) -> None:
        """Event to send with the next status."""
        worker.recorder.record(note, self._clock.now())

    def _record_event_and_sync(self, worker: PodWorker, note: Note) -> None:
        """Event to send now: no other change may follow it."""
        worker.recorder.record(note, self._clock.now())
        self._wake_changed(worker)

    def _release(self, worker: PodWorker) -> None:
        """The API no longer has this pod, or needs no agent for it any more."""
        self._logs.forget(worker.keys)
        worker.orphaned = True
        del self._workers[worker.uid], self._workers_of[worker.node][worker.uid]
        self._ended[worker.node].add(worker.uid)
        if worker.alarm is not None:
            worker.alarm.cancel()
        self._probes.forget(worker.uid)
        live = [key for key, run in worker.runs.items() if run.state == "running"]
        self._cleanup.clear(worker.uid, [ContainerKey(worker.uid, *key) for key in live], worker.task)

    async def close(self) -> None:
        """Stop deciding. Containers run on, for the next agent."""
        await self._tasks.close()
        for part in (self._probes, self._hooks, self.images, self._checks):
            if part is not None:
                await part.close()


def _key(key: ContainerKey) -> Key:
    return Key(key.name, key.attempt)


def _running(statuses: Iterable[ContainerStatus]) -> list[ContainerKey]:
    return [status.key for status in statuses if status.state == "running"]
