"""Back-off delay: how long a Job waits before it starts pods again after some have failed.

The count and the time of the last failure are kept in the Job's annotation `jobplane.dev/backoff`, `<failures>;<time>`.
They cannot be derived from pods, which anybody may delete, nor be held in memory, since any replica may plan next. A
Job without failures never carries the annotation, and it goes with the first success or with the end of the Job.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod, condition
from app.machinery.durations import after as moment_after
from app.plans import annotation_state

ANNOTATION = "jobplane.dev/backoff"
BASE = timedelta(seconds=10)
LONGEST = timedelta(seconds=600)


class Backoff(msgspec.Struct, frozen=True):
    """Failures since the last success, and when the last of them ended."""

    failures: int = 0
    last_at: datetime | None = None

    @property
    def retry_at(self) -> datetime | None:
        """Before this moment, nothing is started."""
        return self.last_at + delay(self.failures) if self.last_at and self.failures else None


def delay(failures: int) -> timedelta:
    """10 s after the first failure, then twice as long each time, up to ten minutes."""
    return min(BASE * 2 ** min(failures - 1, 10), LONGEST) if failures > 0 else timedelta()


def remembered(job: Job, now: datetime) -> Backoff:
    """What the Job says of earlier failures; what somebody garbled counts as nothing."""
    return Backoff(*(annotation_state.read(job.metadata.annotations, ANNOTATION, now) or ()))


def noted(annotations: dict[str, str], backoff: Backoff) -> dict[str, str]:
    """The annotations with the back-off in them, or without if there is none; the same dict if nothing changes."""
    mark = annotation_state.text(backoff.failures, backoff.last_at) if backoff.failures and backoff.last_at else None
    return annotation_state.noted(annotations, ANNOTATION, mark)


def after(backoff: Backoff, succeeded: Sequence[Pod], failed: Sequence[Pod], now: datetime) -> Backoff:
    """The back-off once these pods, which ended since the last look, are known."""
    if not failed:
        return Backoff() if succeeded else backoff
    ends = [ended_at(pod, now) for pod in failed]
    if not succeeded:
        return Backoff(backoff.failures + len(ends), max([*ends, backoff.last_at or ends[0]]))
    success_at = max(ended_at(pod, now) for pod in succeeded)
    later = [end for end in ends if end > success_at]
    return Backoff(len(later), max(later)) if later else Backoff()


def ended_at(pod: Pod, now: datetime) -> datetime:
    """When the pod ended, as well as its status tells. Never after now: a node's clock may be ahead of ours."""
    return min(_containers_ended_at(pod) or _unready_at(pod) or _deleted_at(pod) or now, now)


def _containers_ended_at(pod: Pod) -> datetime | None:
    states = [status.state for status in pod.status.container_statuses]
    ends = [state.terminated.finished_at for state in states if state and state.terminated]
    known = [end for end in ends if end]
    return max(known) if known and len(known) == len(states) else None


def _unready_at(pod: Pod) -> datetime | None:
    ready = condition(pod.status.conditions, "Ready")
    return ready.last_transition_time if ready and ready.status == "False" else None


def _deleted_at(pod: Pod) -> datetime | None:
    """When deletion was asked for; for a pod that nobody deleted, all that is left is when it was created."""
    meta = pod.metadata
    if not meta.deletion_timestamp:
        return meta.creation_timestamp
    return moment_after(meta.deletion_timestamp, -(meta.deletion_grace_period_seconds or 0))
