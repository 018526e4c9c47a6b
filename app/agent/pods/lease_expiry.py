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
    """A node's lease expired. `since`: when the last renewal that succeeded was sent, on the monotonic clock.

    for_good: it cannot be renewed, as the credential is no longer good. No pod has a reason to wait for that.
    """

    node: str
    since: float
    for_good: bool = False


class LeaseExpiry:
    """Deadlines of pods on nodes whose lease expired. `lease`: how long a lease lasts."""

    def __init__(self, lease: timedelta, clock: Clock) -> None:
        self._lease, self._clock = lease, clock
        self._expired: dict[str, LeaseExpired] = {}

    def on_expired(self, expired: LeaseExpired) -> None:
        self._expired[expired.node] = expired

    def on_renewed(self, node: str) -> None:
        self._expired.pop(node, None)

    def impose(self, worker: PodWorker) -> bool:
        """Set the pod's deadline, if it has to stop by now. True if that is news."""
        expired = self._expired.get(worker.node)
        if expired is None or worker.deadline is not None:
            return False
        tolerated = timedelta() if expired.for_good else node_loss_timing.tolerated_loss(worker.pod)
        if tolerated is None:
            return False
        stop_at = expired.since + node_loss_timing.stop_after(worker.pod, tolerated, self._lease).total_seconds()
        if self._clock.elapsed() < stop_at:
            return False
        worker.deadline = expired.since + node_loss_timing.stopped_after(tolerated, self._lease).total_seconds()
        return True

    def lift(self, worker: PodWorker) -> bool:
        """The API has listed the pod, which is still there. True if that is news."""
        if worker.deadline is None or worker.node in self._expired:
            return False
        worker.deadline = None
        return True

    def time_left(self, worker: PodWorker) -> timedelta | None:
        """Time within which the pod has to end, if its lease expired."""
        return None if worker.deadline is None else timedelta(seconds=max(0.0, worker.deadline - self._clock.elapsed()))
