"""The scheduler: which node each pending pod goes to. Pure: the same nodes, pods and order give the same bindings.

What belongs here: the cache of nodes, filters and scores, affinity and spreading, the scheduling queue, gangs, preemption,
quotas of LocalQueues. `PodInfos` makes classes of alike pods, `Cluster` knows what is where, `schedule` places a list of pods.

May import: `app.plans`, `app.kinds`, `app.machinery`. Called by: `app.controllers.scheduler`.
Start reading: `scheduling_round`, `scheduling_queue`, `cache`, `filters`, `scores`, `preemption`, `quota_admission`.
"""

from app.scheduler.cache import Cluster, Trial
from app.scheduler.filters import Refusal
from app.scheduler.node_info import NodeInfo, Placed
from app.scheduler.placement import Outcome, Pending, schedule
from app.scheduler.pod_info import PodInfo, PodInfos, pod_info_of
from app.scheduler.scores import DEFAULT, Settings

__all__ = [
    "DEFAULT",
    "Cluster",
    "NodeInfo",
    "Outcome",
    "Pending",
    "Placed",
    "PodInfo",
    "PodInfos",
    "Refusal",
    "Settings",
    "Trial",
    "pod_info_of",
    "schedule",
]
