"""Rollout: how many pods each ReplicaSet of a Deployment should have next. Pure numbers.

`deployment` calls it whenever a ReplicaSet has changed, and so the next step follows from what became of the last one.
Invariants of RollingUpdate, which the tests check by simulation: never more than replicas + maxSurge pods are asked for, and no
pod is taken away that replicas - maxUnavailable needs.
"""

from collections.abc import Sequence

import msgspec

from app.kinds.apps.deployment import RECREATE, Deployment
from app.machinery.base import IntOrString


class Limits(msgspec.Struct, frozen=True):
    """How many pods there should be, and by how many there may be more or fewer while they are replaced."""

    replicas: int
    surge: int
    unavailable: int


class Amount(msgspec.Struct, frozen=True):
    """A ReplicaSet in numbers: how many pods it should have, how many of them are available."""

    wanted: int
    available: int


def limits_of(deployment: Deployment) -> Limits:
    """Percentages are of the replicas: the surge is rounded up, the unavailable down. Not both are zero."""
    replicas, steps = deployment.spec.replicas or 0, deployment.spec.strategy.rolling_update
    if deployment.spec.strategy.type == RECREATE or steps is None:
        return Limits(replicas, 0, 0)
    surge = _resolve(steps.max_surge, replicas, round_up=True)
    unavailable = min(_resolve(steps.max_unavailable, replicas, round_up=False), replicas)
    return Limits(replicas, surge, unavailable if surge or unavailable else min(1, replicas))


def _resolve(amount: IntOrString | None, whole: int, *, round_up: bool) -> int:
    if isinstance(amount, str):
        parts = int(amount.removesuffix("%")) * whole
        return -(-parts // 100) if round_up else parts // 100
    return amount or 0


def roll(limits: Limits, new: Amount, old: Sequence[Amount]) -> tuple[int, list[int]]:
    """Wanted pods of the new ReplicaSet and of each old one, the oldest first, after one step of a rolling update."""
    room = limits.replicas + limits.surge - new.wanted - sum(each.wanted for each in old)
    wanted = min(limits.replicas, new.wanted + max(0, room))
    available = min(new.available, wanted)
    surplus = sum(each.wanted for each in old) + available - (limits.replicas - limits.unavailable)
    left = _take_unavailable(old, surplus)
    taken = sum(each.wanted for each in old) - sum(left)
    healthy = available + sum(min(each.available, count) for each, count in zip(old, left, strict=True))
    spare = min(surplus - taken, healthy - (limits.replicas - limits.unavailable))
    return wanted, _take(left, spare)


def _take_unavailable(old: Sequence[Amount], most: int) -> list[int]:
    """What is left of each when pods are taken away that serve nobody."""
    left = []
    for each in old:
        count = max(0, min(most, each.wanted - each.available))
        most -= count
        left.append(each.wanted - count)
    return left


def _take(counts: Sequence[int], most: int) -> list[int]:
    left = []
    for count in counts:
        taken = max(0, min(most, count))
        most -= taken
        left.append(count - taken)
    return left


def pause(limits: Limits, new: int | None, old: Sequence[int]) -> tuple[int | None, list[int]]:
    """Wanted pods while nothing is replaced: only what was scaled meanwhile is given to the newest that has pods.

    `new` is None if there is no ReplicaSet of the newest template.
    """
    counts = [*old, *([] if new is None else [new])]
    total, active = sum(counts), [place for place, count in enumerate(counts) if count]
    most = limits.replicas + (limits.surge if len(active) > 1 else 0)
    if total > most:
        counts = _take(counts, total - most)
    elif total < limits.replicas and counts:
        place = active[-1] if active else len(counts) - 1
        counts[place] += limits.replicas - total
    return (None, counts) if new is None else (counts[-1], counts[:-1])
