"""Node shutdown: ends the node's pods within their grace period, and reports it, before the agent ends.

As the kubelet's graceful node shutdown: the node says that it is not ready, ordinary pods go first, critical ones when
these have gone. Called by the agent when it is told to end and was given time for this; else containers simply go on.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from app.agent.clock import Clock
from app.agent.node.node import Nodes
from app.agent.pods.pods import Pods
from app.kinds.pod.pod import Pod
from app.plans.kubelet.node_pressure_eviction import is_critical
from app.plans.kubelet.pod_status import Evicted
from app.structured_logging import Logger

MESSAGE = "Pod was terminated in response to imminent node shutdown."
LOOK = 0.1
TELL = 2.0  # seconds beyond the grace, to report the last ends

logger = Logger(__name__)


@dataclass(frozen=True)
class Graces:
    """How long all of it may take, and how much of that is kept for critical pods. Nothing: there is no such shutdown."""

    whole: timedelta = timedelta()
    critical: timedelta = timedelta()

    @property
    def ordinary(self) -> timedelta:
        return max(timedelta(), self.whole - self.critical)


async def shut_down(pods: Pods, nodes: Nodes, graces: Graces, clock: Clock) -> None:
    """Returns when nothing runs any more, or time is up."""
    logger.warning("node is shutting down; stopping its pods", seconds=graces.whole.total_seconds())
    pods.starts.is_closed = True
    telling = asyncio.create_task(nodes.shut_down())
    try:
        await _end(pods, lambda pod: not is_critical(pod), graces.ordinary, clock)
        await _end(pods, is_critical, graces.critical, clock)
    finally:
        await asyncio.wait([telling], timeout=TELL)
        telling.cancel()


async def _end(pods: Pods, wanted: Callable[[Pod], bool], grace: timedelta, clock: Clock) -> None:
    """Those for which nobody looks after any more have ended, and the API has taken note."""
    ends_at = clock.elapsed() + grace.total_seconds() + TELL
    while left := [pod for pod in pods.all() if wanted(pod)]:
        for pod in left:
            pods.oust(pod.metadata.uid, Evicted("Terminated", MESSAGE, grace, MESSAGE), None)
        if clock.elapsed() >= ends_at:
            logger.warning("pods have not ended in time; shutting down without them", count=len(left))
            return
        await clock.sleep(LOOK)
