"""The order in which pods are served. Pure; for the queue, and for the pods of a gang among themselves."""

from datetime import datetime

from app.kinds.pod.pod import Pod
from app.scheduler.pod_info import PodInfo

Order = tuple[int, float, bytes, str, str]
"""Priority, the highest first; then time of creation, class, namespace and name."""


def order_of(pod: Pod, info: PodInfo) -> Order:
    meta = pod.metadata
    return -(pod.spec.priority or 0), _seconds(meta.creation_timestamp), info.key, meta.namespace, meta.name


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else 0.0
