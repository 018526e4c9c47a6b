"""Node-loss timing: how long a node that is cut off may go on with a pod, and when the pod may be replaced. Pure.

Two sides reckon with the same figures, each on its own clock, from the same renewal of the node's lease. The agent counts
from when it sent it: nothing of the pod runs any more after `over_after`. The node controller counts from when it saw it:
the node is lost after `lost_after`, and the pod is failed, which lets its Job replace it, after what it `bears` on top.
So the pod has always ended before. A pod that bears it for ever is neither stopped nor replaced.
"""

from datetime import timedelta

from app.kinds.core.node import UNREACHABLE, Taint
from app.kinds.pod.pod import Pod
from app.machinery.durations import span
from app.plans.nodes.tolerations import tolerates

SLACK = timedelta(
    seconds=10
)  # what the controllers wait when a lease has run out: pods without any toleration end in it
MARGIN = timedelta(seconds=2)  # of that, for a kill that takes its time, and for controllers whose clocks differ
DRIFT = 1000  # two clocks count the same span, but for one part in so many

_UNREACHABLE = Taint(key=UNREACHABLE, effect="NoExecute")
_GRACE = timedelta(seconds=30)


def lost_after(lease: timedelta | None, grace: timedelta) -> timedelta:
    """How long a node is silent before it counts as lost. `lease` is what its agent reckons with, `grace` the least."""
    return grace if lease is None else max(grace, lease + SLACK)


def bears(pod: Pod) -> timedelta | None:
    """How long the pod stays with a node that is lost; None: for ever."""
    tolerations = [each for each in pod.spec.tolerations if tolerates(each, _UNREACHABLE)]
    if not tolerations:
        return timedelta()
    seconds = [each.toleration_seconds for each in tolerations if each.toleration_seconds is not None]
    return span(max(0, min(seconds))) if seconds else None


def over_after(borne: timedelta, lease: timedelta) -> timedelta:
    """Of silence, after which nothing of a pod that bears so much may run."""
    whole = lease + SLACK + borne
    return whole - MARGIN - whole / DRIFT


def stop_after(pod: Pod, borne: timedelta, lease: timedelta) -> timedelta:
    """Of silence, after which it is told to stop: with its whole grace, if that leaves it the time of the lease."""
    seconds = pod.spec.termination_grace_period_seconds
    grace = _GRACE if seconds is None else span(max(0, seconds))
    return max(lease, over_after(borne, lease) - grace)
