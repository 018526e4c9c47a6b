"""The scheduler: which node each pending pod goes to. Pure: the same nodes, pods and order give the same bindings.

What belongs here: what kube-scheduler and Kueue decide, under their names; all that is kept between rounds, in memory.
May import: `app.plans`, `app.kinds`, `app.machinery`. Called by: `app.controllers.scheduling.scheduler`.
Start reading: `scheduling_round`, one round from top to bottom, then:
- nodes: `cache` (`Cluster`), `node_info`, `pod_info` (scheduling classes), `filters`, `scores`, `node_ranking`, `placement`;
- other pods: `pod_affinity`, `topology_spread`, on `pod_counts`;
- order: `scheduling_queue`, `fair_sharing` (LocalQueues), `quota_admission`, `reclaim`;
- gangs: `gang_scheduling`, `shared_claims` (volumes of one node);
- eviction: `preemption` (candidates, victims), `gang_preemption`, `eviction_units` (whole PodGroups, disruption budgets).
"""

from app.scheduler.cache import Cluster
from app.scheduler.placement import Pending, PlacementResult, schedule
from app.scheduler.pod_info import PodInfo, PodInfos, pod_info_of
from app.scheduler.scores import DEFAULT, ScoringSettings

__all__ = [
    "DEFAULT",
    "Cluster",
    "Pending",
    "PlacementResult",
    "PodInfo",
    "PodInfos",
    "ScoringSettings",
    "pod_info_of",
    "schedule",
]
