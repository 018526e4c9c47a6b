"""Lease expiry: which pods must not run now, because their node's lease expired. Kept by `pods`.

`app.plans.nodes.node_loss_timing` says when. What was stopped stays so until the API, reached again, has listed the node's
pods: only then is it known that a pod is still there, and was not replaced elsewhere.
"""

from datetime import timedelta
from typing import NamedTuple

from app.agent.clock import Clock
from app.agent.pods.pod_worker import PodWorker
from app.plans.nodes import node_loss_timing


class LeaseExpired(NamedTuple):
    """A node has lost its lease. `since`: when the last renewal was sent that went through, on the clock that nobody sets.

    for_good: it will not be heard again, as its credential is no longer good. No pod has a reason to wait for that.
    """

    node: str
    since: float
    for_good: bool = False


class Fences:
    """Around pods of silent nodes. `lease` is how long a lease lasts."""

    def __init__(self, lease: timedelta, clock: Clock) -> None:
        self._lease, self._clock = lease, clock
        self._silent: dict[str, LeaseExpired] = {}

    def silent(self, silence: LeaseExpired) -> None:
        self._silent[silence.node] = silence

    def heard(self, node: str) -> None:
        self._silent.pop(node, None)

    def close(self, worker: PodWorker) -> bool:
        """Around the pod, if its time has come. True if that is news."""
        silence = self._silent.get(worker.node)
        if silence is None or worker.over_at is not None:
            return False
        borne = timedelta() if silence.for_good else node_loss_timing.bears(worker.pod)
        if borne is None:
            return False
        begins_at = silence.since + node_loss_timing.stop_after(worker.pod, borne, self._lease).total_seconds()
        if self._clock.elapsed() < begins_at:
            return False
        worker.over_at = silence.since + node_loss_timing.over_after(borne, self._lease).total_seconds()
        return True

    def open(self, worker: PodWorker) -> bool:
        """The API has told of the pod, which is still there. True if that is news."""
        if worker.over_at is None or worker.node in self._silent:
            return False
        worker.over_at = None
        return True

    def left(self, worker: PodWorker) -> timedelta | None:
        """Within what time the pod has to be over, if there is a fence around it."""
        return None if worker.over_at is None else timedelta(seconds=max(0.0, worker.over_at - self._clock.elapsed()))
