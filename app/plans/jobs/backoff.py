"""Back-off delay: how long a Job waits before it starts pods again after some have failed.

10 s after the first failure, then twice as long each time, up to ten minutes. The count and the time of the last failure
are kept in the Job's annotation `jobplane.dev/backoff`, `<failures>;<time>`. They cannot be derived from pods, which any
client may delete, nor be kept in memory, since any replica may plan next. A Job without failures never has the annotation;
the first success, or the end of the Job, removes it.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod, condition
from app.machinery.durations import after
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
        """No pod is created before this moment."""
        return self.last_at + delay(self.failures) if self.last_at and self.failures else None


def delay(failures: int) -> timedelta:
    """10 s after the first failure, then twice as long each time, up to ten minutes."""
    return min(BASE * 2 ** min(failures - 1, 10), LONGEST) if failures > 0 else timedelta()


def read(job: Job, now: datetime) -> Backoff:
    """The back-off in the Job's annotation; none if a client wrote something else there."""
    return Backoff(*(annotation_state.read(job.metadata.annotations, ANNOTATION, now) or ()))


def annotate(annotations: dict[str, str], backoff: Backoff) -> dict[str, str]:
    """The annotations with the back-off in them, or without if there is none; the same dict if nothing changes."""
    text = annotation_state.text(backoff.failures, backoff.last_at) if backoff.failures and backoff.last_at else None
    return annotation_state.annotate(annotations, ANNOTATION, text)


def update(backoff: Backoff, succeeded: Sequence[Pod], failed: Sequence[Pod], now: datetime) -> Backoff:
    """The back-off after these pods, which ended since the last plan."""
    if not failed:
        return Backoff() if succeeded else backoff
    ends = [ended_at(pod, now) for pod in failed]
    if not succeeded:
        return Backoff(backoff.failures + len(ends), max([*ends, backoff.last_at or ends[0]]))
    success_at = max(ended_at(pod, now) for pod in succeeded)
    later = [end for end in ends if end > success_at]
    return Backoff(len(later), max(later)) if later else Backoff()


def ended_at(pod: Pod, now: datetime) -> datetime:
    """Return when the pod ended, as far as its status says. Never after now: a node's clock may be ahead of ours."""
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
    """Return when deletion was requested; when it was created, for a pod that is not deleted."""
    meta = pod.metadata
    if not meta.deletion_timestamp:
        return meta.creation_timestamp
    return after(meta.deletion_timestamp, -(meta.deletion_grace_period_seconds or 0))
