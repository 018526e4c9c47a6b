"""Bindings that are committed without their events: these follow once there is time. The scheduler's controller asks."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from app.controllers.gang_writes import scheduled
from app.controllers.planned_write import PlannedWrite
from app.kinds.pod.pod import Pod
from app.plans.plan import Plan
from app.store import Key

EVENTS = Key("scheduler", "", "events")
MOST = 20_000  # bindings without their events: more do not wait until there is time
SOON = timedelta(seconds=1)  # until it is seen whether there is time


class Untold:
    """A binding may be refused: what has been seen since, with its node, is told of."""

    def __init__(self) -> None:
        self._assumed: set[str] = set()  # UIDs
        self._bound: list[Pod] = []

    def defer(self, pods: Iterable[Pod]) -> None:
        """They are about to be bound."""
        self._assumed.update(pod.metadata.uid for pod in pods)

    def comes_true(self, pod: Pod) -> list[Key]:
        """It has been seen on a node; returns what there is to do about it, if anything."""
        if pod.metadata.uid not in self._assumed:
            return []
        self._assumed.remove(pod.metadata.uid)
        self._bound.append(pod)
        return [EVENTS]

    def take_back(self) -> None:
        """What has not been seen by now did not happen."""
        self._assumed.clear()

    def told(self, now: datetime, together: int, *, is_busy: bool) -> list[PlannedWrite]:
        """As write sets of so many each. While others wait for their bindings, events wait."""
        if is_busy and len(self._bound) < MOST:
            return [PlannedWrite(Plan(again_at=now + SOON))]
        emits = scheduled((pod, pod.spec.node_name) for pod in self._bound)
        self._bound.clear()
        return [PlannedWrite(Plan(emits[n : n + together])) for n in range(0, len(emits), together)]
