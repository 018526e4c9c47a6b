"""Pods of this agent's nodes: which there are, and what makes them sync: changes at the API, in the runtime, of the lease.

Level-triggered: a change only wakes a pod's worker (`pod_sync`). Nothing has to be remembered across a restart: attempts, exit
codes and times are in the runtime's list and in the pod's status. A pod's sandbox is removed only after the API has accepted the
report of its end. What the runtime runs for pods that the API does not know is stopped and removed, once every node's pods have
been listed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

from app.agent.logs import LogShipper
from app.agent.pods.container_config import Host, run_of
from app.agent.pods.lease_expiry import LeaseExpiry
from app.agent.pods.pod_sync import TROUBLE_RETRY, PodSync
from app.agent.pods.pod_termination import PodCleanup, lingers
from app.agent.pods.pod_worker import PodWorker
from app.agent.pods.status_reports import LastReports, StatusReporter
from app.agent.tasks import Tasks
from app.client.protocol import NamespaceLevel, StatusReport
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.pod.pod_state import has_ended
from app.plans.kubelet import image_gc, pod_events
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import Evicted
from app.plans.kubelet.sync_pod import Key
from app.runtimes.base import ContainerKey, ContainerStatus, Sandbox
from app.structured_logging import PodFields

RELIST = 10.0
CONFLICT_RETRY = 1.0


class Pods:
    """All pods of the agent. `starts`: how many may be starting at once.

    _found:    what the runtime listed at the start, by pod, until the API has listed its pod. `_sandboxes`: likewise.
    _unlisted: nodes whose pods the API has not listed yet.
    _workers_of: the pod workers of each node: an agent may have a thousand nodes, and twenty thousand pods.
    _ended:    pods of each node that have ended for the API, while its watch may still show them as they were before.
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
        self._sandboxes: dict[str, Sandbox] = {}
        self._tasks = Tasks()
        self._ended: defaultdict[str, set[str]] = defaultdict(set)
        self._last_reports = LastReports()
        self._cleanup = PodCleanup(host, self._tasks.spawn)
        self.sync = PodSync(host, reporter, logs, lease_expiry, self._tasks, starts)

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
                self.sync.wake_changed(worker)
        self._ended[node] &= present
        if node in self._unlisted:
            self._unlisted.discard(node)
            if not self._unlisted:
                self._remove_unknown_pods()

    def on_pod_changed(self, pod: Pod, level: NamespaceLevel | None = None) -> None:
        """`level`: of the pod's namespace, if it came with the pod."""
        uid = pod.metadata.uid
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update_pod(pod)
            self.sync.wake(worker)
        elif uid not in self._ended[pod.spec.node_name] or is_terminal(pod):
            self._ended[pod.spec.node_name].discard(uid)
            if report := self._last_reports.find(pod):
                self._ended[pod.spec.node_name].add(uid)
                self._reporter.put(report)
            else:
                self._add_worker(pod, self._found.pop(uid, []), level)

    def _add_worker(self, pod: Pod, found: Sequence[ContainerStatus], level: NamespaceLevel | None) -> None:
        if is_terminal(pod) and pod.metadata.deletion_timestamp is None and not found:
            return  # history: nothing will ever be done about it
        worker = PodWorker(pod, self._clock.now(), [_key(status.key) for status in found], self._clock.elapsed())
        worker.level_from_watch = level
        self._workers[worker.uid] = self._workers_of[worker.node][worker.uid] = worker
        self._lease_expiry.impose(worker)
        if worker.uid in self._sandboxes:
            worker.sandbox, worker.sandbox_ready = self._sandboxes.pop(worker.uid), True
            self._host.volumes.set_owner(worker.sandbox)
            self._host.hosts.write(pod, worker.ip)
        else:
            worker.mark_sandbox_lost()
        for status in found:
            self._logs.grew(status.key, worker.owner)  # it may have written while no agent was there
        self.sync.wake(worker)

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
            self.sync.wake_later(worker, CONFLICT_RETRY if code == 409 else TROUBLE_RETRY)
        elif has_ended(report.status):
            if report.gone or worker.pod.metadata.deletion_timestamp is None:
                self._release(worker)
            else:
                self.sync.wake_changed(worker)

    def _repeat(self, report: StatusReport) -> None:
        """The pod has ended here, so nothing else would report it again."""
        if report.uid not in self._workers:
            self._reporter.put(report)

    def log_fields(self, uid: str) -> PodFields:
        """Fields of the log lines about a pod; none if it is not known."""
        worker = self._workers.get(uid)
        return worker.log_fields if worker else {}

    def worker_of(self, uid: str) -> PodWorker | None:
        """The worker of a pod, if it is looked after."""
        return self._workers.get(uid)

    def node_of(self, uid: str) -> str:
        """The node of a pod that is looked after; empty if it is not."""
        worker = self._workers.get(uid)
        return worker.node if worker else ""

    def has_address(self, address: str) -> bool:
        """Return whether a pod that is looked after has this address for itself."""
        return any(worker.ip == address for worker in self._workers.values())

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
                self.sync.record_event(worker, note)
            self.sync.wake_changed(worker)

    # The node's lease

    def on_lease_expired(self, node: str) -> None:
        """A node without its lease runs no pod for longer than the pod tolerates. Called every second until it has one again."""
        for worker in self._workers_of[node].values():
            if self._lease_expiry.impose(worker):
                self.sync.wake_changed(worker)

    # Changes in the runtime

    async def adopt(self) -> None:
        """Before anything else: what earlier agents have left running."""
        for status in await self._runtime.list():
            self._found.setdefault(status.key.pod_uid, []).append(status)
        self._sandboxes = {sandbox.pod_uid: sandbox for sandbox in await self._runtime.sandboxes()}

    async def follow_events(self) -> None:
        async for key in self._runtime.events():
            worker = self._workers.get(key.pod_uid)
            if worker is not None:
                worker.look.add(_key(key))
                self.sync.wake(worker)

    async def follow_logs(self) -> None:
        async for key in self._runtime.log_events():
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
        self.sync.record_event(worker, pod_events.sandbox_changed())
        self.sync.wake_changed(worker)

    def _compare(self, statuses: Iterable[ContainerStatus]) -> None:
        """The list may be older than what is known by now: where they differ, look again."""
        found: dict[str, dict[Key, ContainerStatus]] = defaultdict(dict)
        for status in statuses:
            found[status.key.pod_uid][_key(status.key)] = status
        for worker in list(self._workers.values()):
            listed = found.pop(worker.uid, {})
            worker.look |= {key for key, status in listed.items() if worker.runs.get(key) != run_of(status)}
            worker.look |= worker.runs.keys() - listed.keys()
            self.sync.wake(worker)
        if not self._unlisted:
            for uid, left in found.items():
                self._cleanup.clear(uid, _running(left.values()))

    def _remove_unknown_pods(self) -> None:
        """Every node's pods are known: what is left of the first list belongs to no pod."""
        for uid, left in self._found.items():
            self._cleanup.clear(uid, _running(left))
        self._found, self._sandboxes = {}, {}
        for uid in self._cleanup.uids_with_files() - self._workers.keys():
            self._cleanup.clear(uid, ())

    async def remove_old_runs(self) -> None:
        """Remove containers of runs that later ones have followed."""
        if not self._unlisted:
            await asyncio.gather(*map(self._remove_old_runs, self.workers()))

    async def _remove_old_runs(self, worker: PodWorker) -> None:
        for run in list(image_gc.removable_runs(worker.runs.values())):
            key = ContainerKey(worker.uid, run.name, run.attempt)
            await self._logs.finish([key], worker.owner)
            await self._runtime.remove_container(key)
            worker.look.add(_key(key))
        self.sync.wake(worker)

    def _release(self, worker: PodWorker) -> None:
        """The API no longer has this pod, or needs no agent for it any more."""
        self._logs.forget(worker.keys)
        worker.orphaned = True
        del self._workers[worker.uid], self._workers_of[worker.node][worker.uid]
        self._ended[worker.node].add(worker.uid)
        self.sync.forget(worker)
        live = [key for key, run in worker.runs.items() if run.state == "running"]
        running = [ContainerKey(worker.uid, *key) for key in live]
        self._cleanup.clear(worker.uid, running, worker.task, lingers=lingers(worker))

    async def close(self) -> None:
        """Stop deciding. Containers run on, for the next agent."""
        await self._tasks.close()
        await self.sync.close()


def _key(key: ContainerKey) -> Key:
    return Key(key.name, key.attempt)


def _running(statuses: Iterable[ContainerStatus]) -> list[ContainerKey]:
    return [status.key for status in statuses if status.state == "running"]
