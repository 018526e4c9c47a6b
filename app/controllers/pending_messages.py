"""Reasons that pods are still to be told: they changed too soon after the last word. The scheduler's controller asks."""

from collections.abc import Iterable
from datetime import datetime

from app.controllers.preemption_writes import sayable_at
from app.kinds.pod.pod import KIND as PODS
from app.plans.plan import earliest
from app.scheduler.scheduling_round import Verdict
from app.store import Key


class Unsaid:
    """A pod whose time has come is looked at again, though nothing has happened since: what holds then it is told."""

    def __init__(self) -> None:
        self._at: dict[Key, datetime] = {}

    def note(self, verdicts: Iterable[Verdict], now: datetime) -> None:
        for verdict in verdicts:
            at = sayable_at(verdict.pod, verdict.why, now)
            if at is not None:
                meta = verdict.pod.metadata
                self._at[Key(PODS.resource, meta.namespace, meta.name)] = at

    def due(self, now: datetime) -> list[Key]:
        """Each is answered once."""
        found = [key for key, at in self._at.items() if at <= now]
        for key in found:
            del self._at[key]
        return found

    def again_at(self) -> datetime | None:
        return earliest(self._at.values())
