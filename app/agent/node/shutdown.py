"""Node shutdown: ends the node's pods within their grace period, and reports it, before the agent ends.

As the kubelet's graceful node shutdown: the node is reported as not ready, ordinary pods go first, critical ones when these
have gone. Called by the agent when it is told to end and has a grace period for this; else containers go on.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from app.agent.clock import Clock
from app.agent.config import AgentConfig
from app.agent.node.node import Nodes
from app.agent.pods.pods import Pods
from app.kinds.pod.pod import Pod
from app.plans.kubelet.node_pressure_eviction import is_critical
from app.plans.kubelet.pod_status import Evicted
from app.structured_logging import Logger

MESSAGE = "Pod was terminated in response to imminent node shutdown."
LOOK = 0.1
REPORT_SECONDS = 2.0  # seconds beyond the grace, to report the last ends

logger = Logger(__name__)


async def shut_down(pods: Pods, nodes: Nodes, config: AgentConfig, clock: Clock) -> None:
    """Returns when nothing runs any more, or time is up."""
    grace, critical = config.shutdown_grace_period, config.shutdown_grace_period_critical_pods
    logger.warning("node is shutting down; stopping its pods", seconds=grace.total_seconds())
    pods.sync.starts.is_closed = True
    reporting = asyncio.create_task(nodes.shut_down())
    try:
        await _end(pods, lambda pod: not is_critical(pod), max(timedelta(), grace - critical), clock)
        await _end(pods, is_critical, critical, clock)
    finally:
        await asyncio.wait([reporting], timeout=REPORT_SECONDS)
        reporting.cancel()


async def _end(pods: Pods, wanted: Callable[[Pod], bool], grace: timedelta, clock: Clock) -> None:
    """A pod that is no longer listed has ended, and the API has accepted its last report."""
    ends_at = clock.elapsed() + grace.total_seconds() + REPORT_SECONDS
    while left := [pod for pod in pods.all() if wanted(pod)]:
        for pod in left:
            pods.evict(pod.metadata.uid, Evicted("Terminated", MESSAGE, grace, MESSAGE), None)
        if clock.elapsed() >= ends_at:
            logger.warning("pods have not ended in time; shutting down without them", count=len(left))
            return
        await clock.sleep(LOOK)
