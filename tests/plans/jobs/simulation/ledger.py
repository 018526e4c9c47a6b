"""The model's own account of a Job: how each pod was counted, and what follows for the next ones.

An entry is made when a pod loses its finalizer, for that is when Kubernetes forgets the pod. Nothing here is read from
the Job's status.
"""

from datetime import datetime, timedelta

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from tests.plans.jobs.simulation.sight import Sight, end_of, has_place, index_of, policy_action, tries_of


class Ledger:
    def __init__(self) -> None:
        self.counted: set[str] = set()
        self.pods_succeeded = 0
        self.failed = 0
        self.completed: set[int] = set()
        self.lost: set[int] = set()  # indexes that are not tried again
        self.tries: dict[int, tuple[int, int]] = {}  # by index: failures that counted, failures that were ignored
        self.streak = 0  # failures since the last success
        self.streak_at: datetime | None = None

    def copy(self) -> "Ledger":
        other = Ledger.__new__(Ledger)
        other.counted = self.counted  # only grows, and a copy is taken in order to replace this
        other.pods_succeeded, other.failed = self.pods_succeeded, self.failed
        other.completed, other.lost = set(self.completed), set(self.lost)
        other.tries = dict(self.tries)
        other.streak, other.streak_at = self.streak, self.streak_at
        return other

    def resize(self, job: Job) -> None:
        """Indexes beyond the end are forgotten: if they come back, they run again."""
        if job.spec.completion_mode != "Indexed":
            return
        end = job.spec.completions or 0
        for known in (self.completed, self.lost):
            known -= {each for each in known if each >= end}
        for index in [each for each in self.tries if each >= end]:
            del self.tries[index]

    def note_ends(self, sight: Sight, now: datetime) -> None:
        """How long a Job's failures hold it up. By look, for that is when the controller hears of them."""
        if not sight.failed:
            if sight.succeeded:
                self.streak, self.streak_at = 0, None
            return
        ends = [end_of(pod, now) for pod in sight.failed]
        if sight.succeeded:
            success_at = max(end_of(pod, now) for pod in sight.succeeded)
            ends = [end for end in ends if end > success_at]
            self.streak, self.streak_at = len(ends), max(ends, default=None)
        else:
            self.streak += len(ends)
            self.streak_at = max(ends) if self.streak_at is None else max(*ends, self.streak_at)

    @property
    def retry_at(self) -> datetime | None:
        return self.streak_at + pause(self.streak) if self.streak_at and self.streak else None

    def count(self, job: Job, pod: Pod, fate: str) -> None:
        uid = pod.metadata.uid
        assert uid not in self.counted, f"{pod.metadata.name} lost its finalizer twice"
        self.counted.add(uid)
        indexed = job.spec.completion_mode == "Indexed"
        index = index_of(pod) if indexed and has_place(job, pod) else None
        if indexed and index is None:
            return
        if fate == "succeeded":
            self._succeeded(index)
        elif fate == "failed":
            self._failed(job, pod, index)
        elif fate == "killed":
            self.failed += policy_action(job, pod) != "Ignore"  # its index is not to blame
        elif index is not None:
            self.tries.pop(index, None)  # what was stopped leaves no trace

    def _succeeded(self, index: int | None) -> None:
        self.pods_succeeded += 1
        if index is not None and index not in self.lost:
            self.completed.add(index)

    def _failed(self, job: Job, pod: Pod, index: int | None) -> None:
        action = policy_action(job, pod)
        self.failed += action != "Ignore"
        if index is None or job.spec.backoff_limit_per_index is None:
            return
        failures, ignored = tries_of(pod)
        excused = action == "Ignore"
        self.tries[index] = (failures + (not excused), ignored + excused)
        if is_last(job, pod) and index not in self.completed:
            self.lost.add(index)

    def succeeded(self, job: Job) -> int:
        return len(self.completed) if job.spec.completion_mode == "Indexed" else self.pods_succeeded


def is_last(job: Job, pod: Pod) -> bool:
    """Whether this failed pod was the last that its index may have."""
    action, limit = policy_action(job, pod), job.spec.backoff_limit_per_index
    return limit is not None and (action == "FailIndex" or (action != "Ignore" and tries_of(pod)[0] >= limit))


def pause(failures: int) -> timedelta:
    return timedelta(seconds=min(10 * 2 ** min(failures - 1, 10), 600)) if failures > 0 else timedelta()


def shown(indexes: set[int]) -> str:
    """As Kubernetes writes them: `1,2`, but `1-3`."""
    parts: list[list[int]] = []
    for each in sorted(indexes):
        if parts and parts[-1][-1] == each - 1:
            parts[-1].append(each)
        else:
            parts.append([each])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ",".join(map(str, part)) for part in parts)
