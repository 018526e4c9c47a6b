"""Which node each pending pod goes to. Pure: the same nodes, pods and order give the same bindings.

`Wishes` makes classes of alike pods, `Cluster` knows what is where and what is left, `schedule` places a list of pods. The
scheduler's controller calls; gangs and preemption try out on the cluster what would be.
"""

from app.plans.scheduling.cluster import Cluster, Trial
from app.plans.scheduling.explain import Refusal
from app.plans.scheduling.room import Placed, Room
from app.plans.scheduling.round import Outcome, Pending, schedule
from app.plans.scheduling.scores import DEFAULT, Settings
from app.plans.scheduling.wish import Wish, Wishes, wish

__all__ = [
    "DEFAULT",
    "Cluster",
    "Outcome",
    "Pending",
    "Placed",
    "Refusal",
    "Room",
    "Settings",
    "Trial",
    "Wish",
    "Wishes",
    "schedule",
    "wish",
]
