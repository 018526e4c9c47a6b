"""Pod worker: state of one pod in the agent. In memory only: another agent finds the same in the API and the runtime."""

import asyncio
import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent.clock import Alarm
from app.agent.logs import LogOwner
from app.agent.pods.container_config import Host
from app.agent.pods.kubelet_events import EventRecorder
from app.client.protocol import NamespaceLevel
from app.kinds.pod.pod import Pod, PodStatus
from app.plans.kubelet import pod_status
from app.plans.kubelet.container_history import Past, Run
from app.plans.kubelet.pod_status import Evicted, PodContext, SetupDelay
from app.plans.kubelet.probes import Health, has_probes
from app.plans.kubelet.sync_pod import Key
from app.runtimes.base import ContainerKey, Sandbox
from app.structured_logging import PodFields

_JOB_NAME = "batch.kubernetes.io/job-name"


class PodWorker:
    """One pod's.

    pod:      as the API last sent it, but with the agent's own newest status.
    runs:     of its containers, as of the runtime's last answer.
    look:     runs to ask the runtime about.
    changed:  something else than its runs makes it worth a new plan.
    held:     containers that cannot be set up for now.
    busy:     containers for which something is under way, such as a pull.
    fetched:  runs whose image is there; `images` has the ids by container, `failed_pulls` counts what went wrong.
    known_since: the clock's seconds at which it was made; infinite if that is not known.
    level_from_watch: Pod Security level of its namespace, as it came with the pod; for the first start.
    sandbox:  as the runtime made it, with the pod's own address, if it has one.
    sandbox_ready: the sandbox has been made. `sandbox_lost`: it is gone again.
    health:   of runs with probes. `post_start_pending`: runs whose postStart hook is not through.
    probe_failed: runs that their probes gave up on. `lost`: by container, the last attempt in a sandbox that is gone.
    stopping: runs that are being stopped, and when each is killed.
    reported: status and deletion as last reported.
    peak_memory: most bytes of memory seen in use, by container.
    recorder: of its events.
    evicted:  reason for which it was evicted.
    deadline: time by which it must have ended, as its node's lease expired (`lease_expiry`); it must start nothing.
    orphaned: the API no longer has it; tasks under way must start nothing.
    """

    __slots__ = (
        "alarm",
        "busy",
        "changed",
        "deadline",
        "evicted",
        "failed_pulls",
        "fetched",
        "has_probes",
        "health",
        "held",
        "images",
        "known_since",
        "level_from_watch",
        "look",
        "lost",
        "orphaned",
        "peak_memory",
        "pod",
        "post_start_pending",
        "probe_failed",
        "recorder",
        "reported",
        "runs",
        "sandbox",
        "sandbox_lost",
        "sandbox_ready",
        "seen_at",
        "stopping",
        "task",
    )

    def __init__(self, pod: Pod, now: datetime, look: Iterable[Key] = (), known_since: float = math.inf) -> None:
        self.pod = pod
        self.known_since = known_since
        self.level_from_watch: NamespaceLevel | None = None
        self.seen_at = now
        self.runs: dict[Key, Run] = {}
        self.look = set(look)
        self.changed = True
        self.held: dict[str, SetupDelay] = {}
        self.busy: set[str] = set()
        self.fetched: set[Key] = set()
        self.images: dict[str, str] = {}
        self.failed_pulls: dict[str, int] = {}
        self.sandbox = Sandbox(pod.metadata.uid)
        self.sandbox_ready = self.sandbox_lost = False
        self.evicted: Evicted | None = None
        self.health: dict[tuple[str, int], Health] = {}
        self.post_start_pending: set[tuple[str, int]] = set()
        self.probe_failed: set[tuple[str, int]] = set()
        self.lost: dict[str, int] = {}
        self.has_probes = any(map(has_probes, (*pod.spec.init_containers, *pod.spec.containers)))
        self.stopping: dict[Key, datetime] = {}
        self.recorder = EventRecorder()
        self.reported: tuple[PodStatus, bool] | None = None
        self.task: asyncio.Task[None] | None = None
        self.alarm: Alarm | None = None
        self.orphaned = False
        self.peak_memory: dict[str, int] = {}
        self.deadline: float | None = None

    @property
    def ip(self) -> str:
        return self.sandbox.ip

    def note_memory(self, container: str, used: int) -> None:
        """Remember how much memory a container uses, if it has never used more."""
        if used > self.peak_memory.get(container, 0):
            self.peak_memory[container] = used

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def node(self) -> str:
        return self.pod.spec.node_name

    @property
    def owner(self) -> LogOwner:
        meta = self.pod.metadata
        return LogOwner(self.node, meta.namespace, meta.name)

    @property
    def log_fields(self) -> PodFields:
        meta = self.pod.metadata
        fields = PodFields(node=self.node, pod=f"{meta.namespace}/{meta.name}", pod_uid=meta.uid)
        if job := meta.labels.get(_JOB_NAME):
            fields["job"] = f"{meta.namespace}/{job}"
        return fields

    @property
    def is_live(self) -> bool:
        return any(run.state == "running" for run in self.runs.values())

    @property
    def is_due(self) -> bool:
        return (self.changed or bool(self.look)) and not self.orphaned

    @property
    def keys(self) -> list[ContainerKey]:
        return [ContainerKey(self.uid, *key) for key in self.runs]

    def place(self, host: Host, cut_off: timedelta | None) -> PodContext:
        """Facts that a plan is made from, beside the runs."""
        return PodContext(
            runtime=host.info.name,
            ip=host.ip,
            pod_ip=self.ip,
            cut_off=cut_off,
            sandbox_lost=self.sandbox_lost,
            evicted=self.evicted,
            held=self.held,
            images=self.images,
            busy=self.busy,
            health=self.health,
            post_start_pending=self.post_start_pending,
            past=Past(probe_failed=self.probe_failed, lost=self.lost),
        )

    def update_pod(self, pod: Pod) -> None:
        """Take over the API's version; mark it changed only if a plan could differ."""
        old, status = self.pod, pod_status.merge_status(self.pod.status, pod.status)
        meta, before = pod.metadata, old.metadata
        self.changed |= (
            meta.deletion_timestamp != before.deletion_timestamp
            or meta.deletion_grace_period_seconds != before.deletion_grace_period_seconds
            or status.phase != old.status.phase
            or pod.spec != old.spec
            or (bool(pod.spec.readiness_gates) and status.conditions != old.status.conditions)
        )
        self.pod = replace(pod, status=status)

    def mark_sandbox_lost(self) -> None:
        """Its sandbox is gone, and with it all that ran so far."""
        reported = (*self.pod.status.init_container_statuses, *self.pod.status.container_statuses)
        begun = [Key(each.name, each.restart_count) for each in reported if each.container_id]
        for name, attempt in (*begun, *self.runs):
            self.lost[name] = max(attempt, self.lost.get(name, 0))

    def mark_ended(self, key: Key) -> None:
        """A run has ended: its health no longer counts."""
        if key in self.health and self.health[key].unwell is not None and key not in self.post_start_pending:
            self.probe_failed.add(key)
        self.post_start_pending.discard(key)
        self.fetched.discard(key)
        self.health.pop(key, None)

    def update_run(self, key: Key, run: Run | None) -> bool:
        """Take over a run as the runtime knows it (None: unknown). True if that is news."""
        known = self.runs.get(key)
        if known == run or (known is not None and known.reason == "StartError" and not _has_ended(run)):
            return False  # runtimes differ in what they list of a container that could not be started
        if run is None:
            del self.runs[key]
        else:
            self.runs[key] = run
        return True


def _has_ended(run: Run | None) -> bool:
    return run is not None and run.state == "exited"
