"""What Kubernetes would decide about a Job, from its whole history and one look at its pods. Shares no code with the plans."""

from datetime import datetime, timedelta
from typing import NamedTuple

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from tests.plans.jobs.simulation.ledger import Ledger, is_last, pause
from tests.plans.jobs.simulation.sight import Sight, end_of, index_of, policy_action, tries_of

FAILURE, SUCCESS = "FailureTarget", "SuccessCriteriaMet"


class Verdict(NamedTuple):
    """The interim condition that a Job should have. `rule` is that of its successPolicy, if one decided."""

    type: str
    reason: str
    rule: int | None = None


class Known(NamedTuple):
    """All that has ended, counted or not."""

    succeeded: int
    failed: int
    completed: set[int]
    lost: set[int]


def known(job: Job, sight: Sight, ledger: Ledger) -> Known:
    failed = ledger.failed + sum(policy_action(job, pod) != "Ignore" for pod in sight.failed)
    if job.spec.completion_mode != "Indexed":
        return Known(ledger.pods_succeeded + len(sight.succeeded), failed, set(), set())
    end = job.spec.completions or 0
    lost = {each for each in ledger.lost if each < end}
    completed = {each for each in ledger.completed if each < end}
    completed |= {index for pod in sight.succeeded if (index := index_of(pod)) is not None and index not in lost}
    if job.spec.backoff_limit_per_index is not None:
        lost |= {
            index for pod in sight.failed if is_last(job, pod) and (index := index_of(pod)) is not None
        } - completed
    return Known(len(completed), failed, completed, lost)


def stored(job: Job) -> Condition | None:
    return next(
        (each for each in job.status.conditions if each.type in (FAILURE, SUCCESS) and each.status == "True"), None
    )


def verdict(job: Job, sight: Sight, all_: Known, now: datetime) -> Verdict | None:
    """Of the reasons to end, the first that holds; success by count comes after the pods have been seen to."""
    spec = job.spec
    if found := stored(job):
        return Verdict(found.type, found.reason)
    if spec.pod_failure_policy and any(policy_action(job, pod) == "FailJob" for pod in sight.failed):
        return Verdict(FAILURE, "PodFailurePolicy")
    limit = spec.backoff_limit
    if limit is not None and (all_.failed > limit or _restarted_too_often(job, sight, limit)):
        return Verdict(FAILURE, "BackoffLimitExceeded")
    if _is_overdue(job, now):
        return Verdict(FAILURE, "DeadlineExceeded")
    if spec.max_failed_indexes is not None and len(all_.lost) > spec.max_failed_indexes:
        return Verdict(FAILURE, "MaxFailedIndexesExceeded")
    if all_.lost and len(all_.lost) + len(all_.completed) >= (spec.completions or 0):
        return Verdict(FAILURE, "FailedIndexes")
    rule = _met(job, all_.completed)
    return None if rule is None else Verdict(SUCCESS, "SuccessPolicy", rule)


def _restarted_too_often(job: Job, sight: Sight, limit: int) -> bool:
    if job.spec.template.spec.restart_policy != "OnFailure":
        return False
    running = [pod for pod in (*sight.active, *sight.terminating) if pod.status.phase in ("Pending", "Running")]
    restarts = sum(each.restart_count for pod in running for each in pod.status.container_statuses)
    return restarts >= limit if limit else restarts > 0


def _is_overdue(job: Job, now: datetime) -> bool:
    seconds = job.spec.active_deadline_seconds
    if seconds is None or job.spec.suspend:
        return False
    start = job.status.start_time
    if start is None or says(job, "Suspended"):
        start = now
    return now - start >= timedelta(seconds=seconds)


def says(job: Job, type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in job.status.conditions)


def _met(job: Job, completed: set[int]) -> int | None:
    """The first rule of the successPolicy that is met."""
    if job.spec.success_policy is None or not completed:
        return None
    for number, rule in enumerate(job.spec.success_policy.rules):
        listed = _listed(rule.succeeded_indexes) if rule.succeeded_indexes else None
        count = len(completed) if listed is None else len(completed & listed)
        demand = rule.succeeded_count if rule.succeeded_count is not None else len(listed or ())
        if count >= demand:
            return number
    return None


def _listed(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def is_enough(job: Job, all_: Known) -> bool:
    wanted = job.spec.completions
    return all_.succeeded > 0 if wanted is None else all_.succeeded >= wanted


def wanted(job: Job, sight: Sight, all_: Known) -> int:
    parallelism, completions = job.spec.parallelism or 0, job.spec.completions
    if completions is None:
        return len(sight.active) if all_.succeeded else parallelism
    return max(0, min(parallelism, completions - all_.succeeded))


class Waiting(NamedTuple):
    """Which indexes may start now, and when the next may of those that have to wait."""

    ready: list[int]
    until: datetime | None


def startable(job: Job, sight: Sight, all_: Known, count: int, now: datetime) -> Waiting:
    """The lowest indexes that nothing is known of. With a limit of its own, one that has to wait keeps its place."""
    busy = {index_of(pod) for pod in sight.active} | all_.completed | all_.lost
    if job.spec.pod_replacement_policy == "Failed":
        busy |= {index_of(pod) for pod in sight.terminating}
    free = [index for index in range(job.spec.completions or 0) if index not in busy][: max(count, 0)]
    if job.spec.backoff_limit_per_index is None:
        return Waiting(free, None)
    moments = {index: retry_at(pod, now) for index, pod in last_failed(sight, now).items()}
    late = [moments[index] for index in free if index in moments and moments[index] > now]
    return Waiting([index for index in free if moments.get(index, now) <= now], min(late, default=None))


def last_failed(sight: Sight, now: datetime) -> dict[int, Pod]:
    """By index, the failed pod that a replacement goes on from."""
    last: dict[int, Pod] = {}
    for pod in sight.failed:
        index = index_of(pod)
        assert index is not None
        if index not in last or _age(pod, now) >= _age(last[index], now):
            last[index] = pod
    return last


def _age(pod: Pod, now: datetime) -> tuple[int, datetime]:
    return sum(tries_of(pod)), end_of(pod, now)


def retry_at(pod: Pod, now: datetime) -> datetime:
    return end_of(pod, now) + pause(sum(tries_of(pod)) + 1)
