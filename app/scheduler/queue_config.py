"""Queue configuration: a LocalQueue in the numbers that the scheduler counts in; and back, in the words of the queue."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from app.kinds.pod.pod_resources import Amounts, amount
from app.kinds.scheduling.localqueue import ANY, COHORT, LocalQueue
from app.machinery.quantity import canonical, plus


@dataclass(frozen=True, slots=True, eq=False)
class QueueConfig:
    queue: LocalQueue
    weight: int
    nominal: Amounts
    limit: Mapping[str, int]  # of what may be borrowed
    cohort: str
    reclaims: bool

    def most(self, resource: str) -> float:
        """With all that may be borrowed."""
        return self.nominal[resource] + self.limit.get(resource, math.inf)

    def shown(self, resource: str, count: int) -> str:
        """An amount, written as the quota is."""
        unit = "m" if resource == "cpu" else ""
        if not self.nominal.get(resource):
            return canonical(f"{count}{unit}")
        return plus(self.queue.spec.nominal_quota[resource], f"{self.nominal[resource] - count}{unit}", -1)


def queue_config_of(queue: LocalQueue) -> QueueConfig:
    spec = queue.spec
    return QueueConfig(
        queue=queue,
        weight=spec.weight or 1,
        nominal={name: amount(name, each) for name, each in spec.nominal_quota.items()},
        limit={name: amount(name, each) for name, each in spec.borrowing_limit.items()},
        cohort=spec.cohort or COHORT,
        reclaims=spec.preemption is not None and spec.preemption.reclaim_within_cohort == ANY,
    )


def limited(terms: QueueConfig, needs: Amounts) -> Iterator[str]:
    """What is limited, and asked for."""
    return (name for name in terms.nominal if needs.get(name))


_NOTHING: Mapping[str, int] = {}


class NamespaceUsage:
    def __init__(self) -> None:
        self._used: dict[str, Amounts] = {}

    def count(self, namespace: str, needs: Amounts, sign: int) -> None:
        used = self._used.setdefault(namespace, {})
        for name, count in needs.items():
            used[name] = used.get(name, 0) + sign * count

    def of(self, namespace: str) -> Mapping[str, int]:
        return self._used.get(namespace, _NOTHING)
