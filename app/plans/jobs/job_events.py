"""Job events: worded as Kubernetes' Job controller words them, and waiting events, which Kubernetes does not have.

A waiting event says why a Job creates no pods yet, and when it will: BackingOff, NoMoreTries, IndexFailed. There is one for
each cause: it is in the write set that also records the cause in the Job's status or annotations, so that the next plan
finds nothing new.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import MAX_INT32, Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.machinery.durations import human_duration
from app.plans import annotation_state
from app.plans.annotation_state import moment
from app.plans.jobs import backoff, dependencies, oom_memory
from app.plans.jobs.failure_cause import describe_failure
from app.plans.jobs.index_failure import WAITING, backing_off, exhausted_indexes, failures_before, summarize_waiting
from app.plans.jobs.indexes import index_of
from app.plans.jobs.job_snapshot import JobDecision, JobSnapshot
from app.plans.jobs.job_status import deadline_at, is_ongoing, is_resuming
from app.plans.jobs.pod_failure_policy import fails_index
from app.plans.plan import Emit

SINGLE_EVENTS = 10  # of one sort in a plan; a Job of a thousand pods must not write a thousand events
MOST_CHARACTERS = 200  # of a list of indexes in a message


def build_events(snapshot: JobSnapshot, decision: JobDecision, after: Job) -> Iterator[Emit]:
    """All events of a plan. `after` is the Job as the plan writes it."""
    job = snapshot.job
    created = [f"Created pod: {pod.metadata.name}" for pod in decision.create]
    yield from _fold(job, "Normal", "SuccessfulCreate", created)
    deleted = [f"Deleted pod: {pod.metadata.name}" for pod in decision.delete]
    yield from _fold(job, "Normal", "SuccessfulDelete", deleted)
    if decision.refusal.message:
        yield Emit("Warning", "FailedCreate", f"Error creating: {decision.refusal.message}", job)
    yield from _memory_events(snapshot, decision)
    yield from _waiting_events(snapshot, decision, after)
    for condition in after.status.conditions:
        if condition not in job.status.conditions:
            yield from _condition_events(snapshot, condition)


def unknown_completion_mode(job: Job) -> Emit:
    return Emit("Warning", "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown", job)


def _fold(job: Job, type_: str, reason: str, messages: Sequence[str]) -> Iterator[Emit]:
    """One event a message up to a number, and one more that stands for all the others."""
    single, others = messages[:SINGLE_EVENTS], messages[SINGLE_EVENTS:]
    for message in single:
        yield Emit(type_, reason, message, job)
    if others:
        yield Emit(type_, reason, f"(combined from similar events): {others[-1]}", job, len(others))


def _condition_events(snapshot: JobSnapshot, new: Condition) -> Iterable[Emit]:
    """The event that goes with a new condition."""
    job, succeeded = snapshot.job, snapshot.succeeded
    completions = succeeded if job.spec.completions is None else job.spec.completions
    if new.type == "Suspended":
        reason = "Suspended" if new.status == "True" else "Resumed"
        yield Emit("Normal", reason, f"Job {reason.lower()}", job)
    elif new.type == dependencies.CONDITION:
        yield Emit("Normal", new.reason, new.message, job)
    elif new.type == "Complete":
        yield Emit("Normal", "Completed", "Job completed", job)
    elif new.type == "Failed":
        yield Emit("Warning", new.reason, new.message, job)
    elif new.type == "SuccessCriteriaMet" and new.reason == "CompletionsReached" and succeeded > completions:
        why = "Too many succeeded pods running after completion count reached"
        yield Emit("Warning", "TooManySucceededPods", why, job)


def _memory_events(snapshot: JobSnapshot, decision: JobDecision) -> Iterator[Emit]:
    """For pods that this plan counts: each once, and only if there is a next attempt."""
    if not is_ongoing(snapshot, decision):
        return
    counted = {pod.metadata.uid for pod in decision.untrack}
    failed = (pod for pod in snapshot.failed_pods if pod.metadata.uid in counted)
    kills = [kill for pod in failed for kill in oom_memory.find_kills(snapshot.job, pod)]
    for type_, reason, message in oom_memory.tell_kills(kills):
        yield Emit(type_, reason, message, snapshot.job)


# --- waiting events


def _waiting_events(snapshot: JobSnapshot, decision: JobDecision, after: Job) -> Iterator[Emit]:
    job, deadline = snapshot.job, deadline_at(after)
    if decision.outcome is None or decision.outcome not in job.status.conditions:
        yield from _fold(job, "Warning", "IndexFailed", list(_index_failures(snapshot)))
    if not is_ongoing(snapshot, decision):
        return
    if _has_new_index_backoff(snapshot, decision):
        yield from _index_backoff_events(snapshot, decision, deadline)
    if decision.backoff_ends_at and _has_new_backoff(job, after):
        yield _backoff_event(snapshot, decision, decision.backoff_ends_at, deadline)


def _index_failures(snapshot: JobSnapshot) -> Iterator[str]:
    """A message for each index that fails for good with this plan."""
    job, failed_pods = snapshot.job, snapshot.failed_pods
    new = exhausted_indexes(job, failed_pods)
    known = Indexes.parse(job.status.failed_indexes or "") if new else Indexes()
    for pod in failed_pods if new else ():
        index = index_of(pod)
        if index is not None and index in new and index in snapshot.failed_indexes and index not in known:
            new.discard(index)  # of several pods with one index, one is enough
            how = "by a FailIndex rule" if fails_index(job, pod) else _times(failures_before(pod)[0] + 1)
            yield f"Index {index} failed {how} and is not tried again"


def _has_new_index_backoff(snapshot: JobSnapshot, decision: JobDecision) -> bool:
    """More indexes wait than before, or for younger pods; fewer are not worth an event."""
    before = annotation_state.read(snapshot.job.metadata.annotations, WAITING, snapshot.now)
    now = summarize_waiting(backing_off(snapshot, decision))
    return now is not None and (before is None or now[0] > before[0] or now[1] > before[1])


def _index_backoff_events(snapshot: JobSnapshot, decision: JobDecision, deadline: datetime | None) -> Iterator[Emit]:
    late = {index: at for index, at in decision.index_backoffs.items() if deadline and at >= deadline}
    in_time = {index: at for index, at in decision.index_backoffs.items() if index not in late}
    job, now = snapshot.job, snapshot.now
    if in_time:
        yield Emit("Normal", "BackingOff", f"{_name_indexes(snapshot, in_time)} tried again {_when(in_time, now)}", job)
    if late and deadline:
        why = f"back-off would end {_at(min(late.values()), now)}, activeDeadlineSeconds ends the Job at"
        message = f"{_name_indexes(snapshot, late)} not tried again: {why} {moment(deadline)}"
        yield Emit("Warning", "NoMoreTries", message, job)


def _has_new_backoff(before: Job, after: Job) -> bool:
    key = backoff.ANNOTATION
    return before.metadata.annotations.get(key) != after.metadata.annotations.get(key) or is_resuming(before)


def _backoff_event(snapshot: JobSnapshot, decision: JobDecision, ends_at: datetime, deadline: datetime | None) -> Emit:
    job, count = snapshot.job, snapshot.backoff.failures
    delayed = (
        f"no pod is created until {moment(ends_at)}, after {count} {'failures in a row' if count > 1 else 'failure'}"
    )
    if not deadline or ends_at < deadline:
        return Emit("Normal", "BackingOff", _tell_next_attempt(snapshot, decision, ends_at), job)
    unless = ", unless one succeeds" if decision.active else ""
    end = f"activeDeadlineSeconds ends the Job at {moment(deadline)}"
    return Emit("Warning", "NoMoreTries", f"No more tries{unless}: {delayed}, and {end}", job)


# --- wording


def _tell_next_attempt(snapshot: JobSnapshot, decision: JobDecision, at: datetime) -> str:
    """A Job of one pod counts attempts; one of several pods counts failures, which are as many as it has retries."""
    spec, limit, when = snapshot.job.spec, snapshot.job.spec.backoff_limit, _at(at, snapshot.now)
    because = f", because {describe_failure(_last_to_fail(snapshot))}" if snapshot.failed_pods else ""
    if max(spec.parallelism or 1, spec.completions or 1) == 1:
        return f"Attempt {decision.failed + 1}{_of(limit, 1)} starts {when}{because}"
    return f"New pods start {when} after failure {decision.failed}{_of(limit, 0)}{because}"


def _last_to_fail(snapshot: JobSnapshot) -> Pod:
    return max(snapshot.failed_pods, key=lambda pod: backoff.ended_at(pod, snapshot.now))


def _of(limit: int | None, more: int) -> str:
    return "" if limit is None or limit >= MAX_INT32 else f" of {limit + more}"


def _name_indexes(snapshot: JobSnapshot, waits: Mapping[int, datetime]) -> str:
    if len(waits) > 1:
        listed = str(Indexes().add(waits))
        return f"Indexes {listed if len(listed) <= MOST_CHARACTERS else f'({len(waits)} of them)'} failed and are"
    (index,) = waits
    pod = snapshot.last_failed[index]
    return f"Index {index} failed {_times(sum(failures_before(pod)) + 1)} ({describe_failure(pod)}) and is"


def _when(waits: Mapping[int, datetime], now: datetime) -> str:
    first, last = min(waits.values()), max(waits.values())
    return _at(first, now) if first == last else f"from {moment(first)} to {moment(last)}"


def _at(at: datetime, now: datetime) -> str:
    return f"at {moment(at)} (in {human_duration(at - now)})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
