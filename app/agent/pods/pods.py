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

from app.agent.logs import Logs
from app.agent.pace import Pace
from app.agent.pods.container_checks import Checks
from app.agent.pods.container_config import Host, named, run_of
from app.agent.pods.images import Images
from app.agent.pods.last_reports import Ends
from app.agent.pods.lease_expiry import Fences
from app.agent.pods.lifecycle_hooks import Hooks
from app.agent.pods.pod_cleanup import PodCleanup
from app.agent.pods.pod_worker import PodWorker
from app.agent.pods.probes import Probes
from app.agent.pods.starts import Starts
from app.agent.pods.status_reports import Report, Reports
from app.agent.pods.stops import Stops
from app.agent.pods.termination_message import last_words, wants_them
from app.agent.tasks import Tasks
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
STARTING_TOLD_AFTER = timedelta(seconds=1)  # most pods have started by then, and nobody needs to be told twice
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
    _of:       the works of each node: an agent may have a thousand nodes, and twenty thousand pods.
    _over:     pods of each node that have ended for the API, while its watch may still tell what they were before.
    """

    def __init__(
        self, host: Host, nodes: Iterable[str], reports: Reports, logs: Logs, fences: Fences, starts: int
    ) -> None:
        self._host, self._runtime, self._clock = host, host.runtime, host.clock
        self._reports, self._logs, self._fences = reports, logs, fences
        self._works: dict[str, PodWorker] = {}
        self._of: defaultdict[str, dict[str, PodWorker]] = defaultdict(dict)
        self._unlisted = set(nodes)
        self._found: dict[str, list[ContainerStatus]] = {}
        self._ips: dict[str, str] = {}
        self._tasks = Tasks()
        self._pace = Pace(PLANS)
        self._over: defaultdict[str, set[str]] = defaultdict(set)
        self._ends = Ends()
        self._clearing = PodCleanup(host, self._tasks.spawn)
        self._checks = checks = Checks(self._runtime, self._clock)
        self._probes = Probes(checks, self._clock, host.ip, self._tell_at_once, self._wake_changed)
        self._hooks = hooks = Hooks(checks, self._clock, host.ip, self._note, self._wake_changed)
        self.images = (
            Images(self._runtime, host.lookup, self._clock, self._note, self._wake_changed)
            if host.info.images
            else None
        )
        self.starts = Starts(host, self.images, hooks, starts, self._note)
        self._stops = Stops(self._runtime, self._clock, hooks, self._note, self._tasks.spawn, self._wake)

    # What the API says

    def listed(self, node: str, pods: Sequence[Pod]) -> None:
        """These are all the pods of the node."""
        present = {pod.metadata.uid for pod in pods}
        for pod in pods:
            self.seen(pod)
            if pod.metadata.uid in self._over[node] and (report := self._ends.again(pod)):
                self._reports.put(report)
        for worker in list(self._of[node].values()):
            if worker.uid not in present:
                self._lost(worker)
            elif self._fences.open(worker):
                self._wake_changed(worker)
        self._over[node] &= present
        if node in self._unlisted:
            self._unlisted.discard(node)
            if not self._unlisted:
                self._sweep()

    def seen(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        worker = self._works.get(uid)
        if worker is not None:
            worker.hear(pod)
            self._wake(worker)
        elif uid not in self._over[pod.spec.node_name] or is_terminal(pod):
            self._over[pod.spec.node_name].discard(uid)
            if report := self._ends.again(pod):
                self._over[pod.spec.node_name].add(uid)
                self._reports.put(report)
            else:
                self._take(pod, self._found.pop(uid, []))

    def _take(self, pod: Pod, found: Sequence[ContainerStatus]) -> None:
        if is_terminal(pod) and pod.metadata.deletion_timestamp is None and not found:
            return  # history: nothing will ever be done about it
        worker = PodWorker(pod, self._clock.now(), [_key(status.key) for status in found])
        self._works[worker.uid] = self._of[worker.node][worker.uid] = worker
        self._fences.close(worker)
        if worker.uid in self._ips:
            worker.ip, worker.sandbox_ready = self._ips.pop(worker.uid), True
            self._host.hosts.seen(pod, worker.ip)
        else:
            worker.lose()
        for status in found:
            self._logs.grew(status.key, worker.owner)  # it may have written while no agent was there
        self._wake(worker)

    def gone(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if uid in self._works:
            self._lost(self._works[uid])
        self._over[pod.spec.node_name].discard(uid)

    def heard(self, report: Report, code: int) -> None:
        """The API has answered a report."""
        if code == 200:
            self._ends.keep(report)
        worker = self._works.get(report.uid)
        if worker is None:
            if code == 409 and has_ended(report.status):
                self._clock.call_later(CONFLICT_RETRY, lambda: self._repeat(report))
            return
        if code == 404:
            self._lost(worker)
        elif code != 200:
            worker.telling.untold(report.events if code == 409 else ())
            worker.told = None  # 409: something changed meanwhile; anything else is for people to mend
            self._wake_later(worker, CONFLICT_RETRY if code == 409 else TROUBLE_RETRY)
        elif has_ended(report.status):
            if report.gone or worker.pod.metadata.deletion_timestamp is None:
                self._lost(worker)
            else:
                self._wake_changed(worker)

    def _repeat(self, report: Report) -> None:
        """The pod is over here, so nothing else would say it again."""
        if report.uid not in self._works:
            self._reports.put(report)

    def log_fields(self, uid: str) -> PodFields:
        """Fields of the log lines about a pod; none if it is not known."""
        worker = self._works.get(uid)
        return worker.log_fields if worker else {}

    def node_of(self, uid: str) -> str:
        """The node of a pod that is looked after; empty if it is not."""
        worker = self._works.get(uid)
        return worker.node if worker else ""

    def all(self) -> list[Pod]:
        """Those that are looked after, as they are known."""
        return [worker.pod for worker in self._works.values()]

    def works(self) -> list[PodWorker]:
        return list(self._works.values())

    def oust(self, uid: str, why: Evicted, note: Note | None) -> None:
        """The node cannot have it any longer: it fails."""
        worker = self._works.get(uid)
        if worker is not None and worker.evicted is None:
            worker.evicted = why
            if note is not None:
                self._note(worker, note)
            self._wake_changed(worker)

    # What the lease says

    def silent(self, node: str) -> None:
        """A node without its lease runs no pod for longer than the pod bears it. Said again and again."""
        for worker in self._of[node].values():
            if self._fences.close(worker):
                self._wake_changed(worker)

    # What the runtime says

    async def adopt(self) -> None:
        """Before anything else: what earlier agents have left running."""
        for status in await self._runtime.list():
            self._found.setdefault(status.key.pod_uid, []).append(status)
        self._ips = {sandbox.pod_uid: sandbox.ip for sandbox in await self._runtime.sandboxes()}

    async def follow_events(self) -> None:
        async for key in self._runtime.events():
            worker = self._works.get(key.pod_uid)
            if worker is not None:
                worker.look.add(_key(key))
                self._wake(worker)

    async def follow_logs(self) -> None:
        async for key in self._runtime.logged():
            worker = self._works.get(key.pod_uid)
            if worker is not None:
                self._logs.grew(key, worker.owner)

    async def relist(self) -> None:
        """Hints get lost; this finds what they missed."""
        while True:
            await self._clock.sleep(RELIST)
            stood = [worker for worker in self._works.values() if worker.sandbox_ready]
            standing = {sandbox.pod_uid for sandbox in await self._runtime.sandboxes()}
            for worker in stood:
                if worker.uid not in standing:
                    self._torn(worker)
            self._compare(await self._runtime.list())
            if not self._unlisted:
                self._clearing.tidy(standing, self._works.keys())

    def _torn(self, worker: PodWorker) -> None:
        """The pod's sandbox is gone: whatever is left in it makes way for a new one."""
        if worker.orphaned or not worker.sandbox_ready or has_ended(worker.pod.status):
            return
        worker.sandbox_ready, worker.sandbox_lost = False, True
        worker.lose()
        worker.look |= worker.runs.keys()
        self._note(worker, pod_events.sandbox_changed())
        self._wake_changed(worker)

    def _compare(self, statuses: Iterable[ContainerStatus]) -> None:
        """The list may be older than what is known by now: where they differ, look again."""
        found: dict[str, dict[Key, ContainerStatus]] = defaultdict(dict)
        for status in statuses:
            found[status.key.pod_uid][_key(status.key)] = status
        for worker in list(self._works.values()):
            listed = found.pop(worker.uid, {})
            worker.look |= {key for key, status in listed.items() if worker.runs.get(key) != run_of(status)}
            worker.look |= worker.runs.keys() - listed.keys()
            self._wake(worker)
        if not self._unlisted:
            for uid, left in found.items():
                self._clearing.clear(uid, _running(left.values()))

    def _sweep(self) -> None:
        """Every node's pods are known: what is left of the first list belongs to nobody."""
        for uid, left in self._found.items():
            self._clearing.clear(uid, _running(left))
        self._found, self._ips = {}, {}
        for uid in self._clearing.left() - self._works.keys():
            self._clearing.clear(uid, ())

    async def thin(self) -> None:
        """Little stays of runs that others have followed."""
        if not self._unlisted:
            await asyncio.gather(*map(self._thin, self.works()))

    async def _thin(self, worker: PodWorker) -> None:
        for run in list(image_gc.dead(worker.runs.values())):
            key = ContainerKey(worker.uid, run.name, run.attempt)
            await self._logs.finish([key], worker.owner)
            await self._runtime.remove_container(key)
            worker.look.add(_key(key))
        self._wake(worker)

    # One pod

    def _wake(self, worker: PodWorker) -> None:
        if worker.is_due and worker.task is None:
            worker.task = self._tasks.spawn(self._tend(worker))

    def _wake_changed(self, worker: PodWorker) -> None:
        worker.changed = True
        self._wake(worker)

    def _wake_later(self, worker: PodWorker, seconds: float) -> None:
        self._clock.call_later(seconds, lambda: self._wake_changed(worker))

    async def _tend(self, worker: PodWorker) -> None:
        try:
            while worker.is_due:
                await self._pace.turn()
                if worker.is_due:
                    await self._once(worker)
        except ConnectionError as error:
            logger.warning("cannot sync a pod; retrying", **worker.log_fields, error=error)
            self._wake_later(worker, AWAY_RETRY)
        except Exception as error:
            logger.error("unexpected error; cannot sync a pod", **worker.log_fields, traceback_of=error)
            self._wake_later(worker, TROUBLE_RETRY)
        finally:
            worker.task = None

    async def _once(self, worker: PodWorker) -> None:
        if not await self._look(worker) and not worker.changed:
            return
        worker.changed = False
        now = self._clock.now()
        worker.sandbox_lost = worker.sandbox_lost and worker.is_live
        plan = pod_plan.plan(worker.pod, worker.runs.values(), now, worker.place(self._host, self._fences.left(worker)))
        if plan.status != worker.pod.status:
            worker.pod = replace(worker.pod, status=plan.status)
        for note in plan.notes:
            worker.telling.tell(note, now)
        self._probes.follow(worker)
        self._set_alarm(worker, plan.again_at, now)
        for stop in plan.stop:
            self._stops.stop(worker, stop)
        await self._tell(worker, plan)
        if plan.start:
            await self.starts.start(worker, plan.start)

    async def _look(self, worker: PodWorker) -> bool:
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
                worker.ended(key)
            news |= worker.saw(key, run)
        return news

    async def _run_of(self, worker: PodWorker, status: ContainerStatus) -> Run:
        run = run_of(status)
        if status.state != "exited" or not wants_them(status, named(worker.pod, run.name).termination_message_policy):
            return run
        known = worker.runs.get(_key(status.key))
        if known is not None and known.state == "exited":
            return run._replace(message=known.message)
        words = await last_words(self._runtime, status.key, self._logs.position(status.key))
        return run._replace(message=words or run.message)

    def _set_alarm(self, worker: PodWorker, at: datetime | None, now: datetime) -> None:
        if worker.alarm is not None:
            worker.alarm.cancel()
        seconds = (at - now).total_seconds() if at else 0
        worker.alarm = self._clock.call_later(seconds, lambda: self._wake_changed(worker)) if at else None

    async def _tell(self, worker: PodWorker, plan: PodPlan) -> None:
        if plan.remove:
            self._host.devices.release(worker.uid)  # once its end is told, others may be given them
            await self._logs.finish(worker.keys, worker.owner)
        elif has_ended(plan.status):
            return  # the API knows that it has ended; it will know the rest when nothing runs any more
        elif is_only_starting(plan.status) and self._clock.now() - worker.seen_at < STARTING_TOLD_AFTER:
            self._clock.call_later(STARTING_TOLD_AFTER.total_seconds(), lambda: self._report_starting(worker))
            return
        self._report(worker, gone=plan.remove and worker.pod.metadata.deletion_timestamp is not None)

    def _report_starting(self, worker: PodWorker) -> None:
        if is_only_starting(worker.pod.status):
            self._report(worker, gone=False)

    def _report(self, worker: PodWorker, *, gone: bool) -> None:
        """The newest status, unless it was the last thing said."""
        status, events = worker.pod.status, worker.telling.take()
        if worker.orphaned or (worker.told == (status, gone) and not events):
            return
        worker.told = (status, gone)
        meta = worker.pod.metadata
        self._reports.put(Report(meta.uid, meta.namespace, meta.name, status, gone, events))

    def _note(self, worker: PodWorker, note: Note) -> None:
        """To be told with the next status."""
        worker.telling.tell(note, self._clock.now())

    def _tell_at_once(self, worker: PodWorker, note: Note) -> None:
        """Nothing else may come of it, so nothing else is waited for."""
        worker.telling.tell(note, self._clock.now())
        self._wake_changed(worker)

    def _lost(self, worker: PodWorker) -> None:
        """The API no longer has this pod, or no longer needs us for it."""
        self._logs.forget(worker.keys)
        worker.orphaned = True
        del self._works[worker.uid], self._of[worker.node][worker.uid]
        self._over[worker.node].add(worker.uid)
        if worker.alarm is not None:
            worker.alarm.cancel()
        self._probes.forget(worker.uid)
        live = [key for key, run in worker.runs.items() if run.state == "running"]
        self._clearing.clear(worker.uid, [ContainerKey(worker.uid, *key) for key in live], worker.task)

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
