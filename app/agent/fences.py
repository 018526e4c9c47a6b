"""Which pods must not run for now, because their node has not been heard for too long. Kept by `pods`.

When that is says `app.plans.fencing`. What was stopped stays so until the API, heard again, has listed the node's pods: only
then is it known that a pod is still there, and was not replaced elsewhere.
"""

from datetime import timedelta
from typing import NamedTuple

from app.agent.clock import Clock
from app.agent.work import Work
from app.plans import fencing


class Silence(NamedTuple):
    """A node has lost its lease. `since`: when the last renewal was sent that went through, on the clock that nobody sets.

    for_good: it will not be heard again, as its credential is no longer good. No pod has a reason to wait for that.
    """

    node: str
    since: float
    for_good: bool = False


class Fences:
    """Around pods of silent nodes. `lease` is how long a lease lasts."""

    def __init__(self, lease: timedelta, clock: Clock) -> None:
        self._lease, self._clock = lease, clock
        self._silent: dict[str, Silence] = {}

    def silent(self, silence: Silence) -> None:
        self._silent[silence.node] = silence

    def heard(self, node: str) -> None:
        self._silent.pop(node, None)

    def close(self, work: Work) -> bool:
        """Around the pod, if its time has come. True if that is news."""
        silence = self._silent.get(work.node)
        if silence is None or work.over_at is not None:
            return False
        borne = timedelta() if silence.for_good else fencing.bears(work.pod)
        if borne is None:
            return False
        begins_at = silence.since + fencing.stop_after(work.pod, borne, self._lease).total_seconds()
        if self._clock.elapsed() < begins_at:
            return False
        work.over_at = silence.since + fencing.over_after(borne, self._lease).total_seconds()
        return True

    def open(self, work: Work) -> bool:
        """The API has told of the pod, which is still there. True if that is news."""
        if work.over_at is None or work.node in self._silent:
            return False
        work.over_at = None
        return True

    def left(self, work: Work) -> timedelta | None:
        """Within what time the pod has to be over, if there is a fence around it."""
        return None if work.over_at is None else timedelta(seconds=max(0.0, work.over_at - self._clock.elapsed()))
