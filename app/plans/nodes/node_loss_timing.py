"""Node-loss timing: when an agent without a lease must have stopped a pod, and when the pod may be replaced. Pure.

Agent and node controller compute with the same figures, each on its own clock, from the same renewal of the node's lease.
The agent counts from when it sent the renewal: nothing of the pod runs any more after `stopped_after`. The node controller
counts from when it saw it: the node is lost after `lost_after`, and the pod is failed, which lets its Job replace it, when
its toleration (`tolerated_loss`) ends after that. So the pod has always ended before. A pod that tolerates the taint for ever is
neither stopped nor replaced.
"""

from datetime import timedelta

from app.kinds.core.node import UNREACHABLE, Taint
from app.kinds.pod.pod import Pod
from app.machinery.durations import span
from app.plans.nodes.tolerations import tolerates

SLACK = timedelta(seconds=10)  # between lease expiry and loss of the node: pods without a toleration end within it
MARGIN = timedelta(seconds=2)  # of that, for slow kills, and for controllers whose clocks differ
DRIFT = 1000  # two clocks differ by less than one part in so many

_UNREACHABLE = Taint(key=UNREACHABLE, effect="NoExecute")
_GRACE = timedelta(seconds=30)


def lost_after(lease: timedelta | None, grace: timedelta) -> timedelta:
    """Time without a renewal after which a node is lost. `lease`: as its agent has it; `grace`: the least."""
    return grace if lease is None else max(grace, lease + SLACK)


def tolerated_loss(pod: Pod) -> timedelta | None:
    """Return how long the pod tolerates the unreachable taint; None: for ever."""
    tolerations = [each for each in pod.spec.tolerations if tolerates(each, _UNREACHABLE)]
    if not tolerations:
        return timedelta()
    seconds = [each.toleration_seconds for each in tolerations if each.toleration_seconds is not None]
    return span(max(0, min(seconds))) if seconds else None


def stopped_after(tolerated: timedelta, lease: timedelta) -> timedelta:
    """Time without a renewal after which nothing of a pod with this toleration may run."""
    whole = lease + SLACK + tolerated
    return whole - MARGIN - whole / DRIFT


def stop_after(pod: Pod, tolerated: timedelta, lease: timedelta) -> timedelta:
    """Time without a renewal after which the pod is stopped: early enough for its grace period, but not within the lease."""
    seconds = pod.spec.termination_grace_period_seconds
    grace = _GRACE if seconds is None else span(max(0, seconds))
    return max(lease, stopped_after(tolerated, lease) - grace)
