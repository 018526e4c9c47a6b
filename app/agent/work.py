"""What the agent knows of one pod. It lives in memory only: another agent finds the same in the API and the runtime."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent.clock import Alarm
from app.agent.logs import Owner
from app.kinds.pod import Pod, PodStatus
from app.plans import pod_status
from app.plans.pod import Key
from app.plans.pod_status import Held
from app.plans.restarts import Run
from app.runtimes.base import ContainerKey


class Work:
    """One pod's.

    pod:      as the API last gave it, but with our own newest status.
    runs:     of its containers, as the runtime last told them.
    look:     runs to ask the runtime about.
    changed:  something else than its runs makes it worth a new plan.
    held:     containers that cannot be set up for now.
    stopping: runs that are being stopped, and with what grace.
    told:     what was last reported: the status, and whether it is gone.
    dropped:  it is no longer ours; what still runs for it must start nothing.
    """

    __slots__ = (
        "alarm",
        "changed",
        "dropped",
        "held",
        "look",
        "pod",
        "runs",
        "seen_at",
        "stopping",
        "task",
        "told",
    )

    def __init__(self, pod: Pod, now: datetime, look: Iterable[Key] = ()) -> None:
        self.pod = pod
        self.seen_at = now
        self.runs: dict[Key, Run] = {}
        self.look = set(look)
        self.changed = True
        self.held: dict[str, Held] = {}
        self.stopping: dict[Key, timedelta] = {}
        self.told: tuple[PodStatus, bool] | None = None
        self.task: asyncio.Task[None] | None = None
        self.alarm: Alarm | None = None
        self.dropped = False

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def node(self) -> str:
        return self.pod.spec.node_name

    @property
    def owner(self) -> Owner:
        meta = self.pod.metadata
        return Owner(self.node, meta.namespace, meta.name)

    @property
    def is_due(self) -> bool:
        return (self.changed or bool(self.look)) and not self.dropped

    @property
    def keys(self) -> list[ContainerKey]:
        return [ContainerKey(self.uid, *key) for key in self.runs]

    def hear(self, pod: Pod) -> None:
        """Take over what the API says; mark it changed only if a plan could differ."""
        old, status = self.pod, pod_status.merged(self.pod.status, pod.status)
        meta, before = pod.metadata, old.metadata
        self.changed |= (
            meta.deletion_timestamp != before.deletion_timestamp
            or meta.deletion_grace_period_seconds != before.deletion_grace_period_seconds
            or status.phase != old.status.phase
            or pod.spec != old.spec
        )
        self.pod = replace(pod, status=status)

    def saw(self, key: Key, run: Run | None) -> bool:
        """Take over what the runtime says of a run (None: nothing). True if that is news."""
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
