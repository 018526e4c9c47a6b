"""Waiting events: why a Job creates no pods yet, and when it will. Kubernetes does not have these events.

Used by `app.plans.jobs.job`. Each is told once: in the write set that also writes what it is about into the Job's status or
annotations, so that the next plan finds nothing new. Suspension and refusals have Kubernetes' own events (`events`).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job
from app.machinery.durations import duration_text
from app.plans import annotation_state
from app.plans.annotation_state import moment
from app.plans.jobs import backoff, job_events
from app.plans.jobs.finish_conditions import deadline_at, is_resuming
from app.plans.jobs.index_failure import WAITING, failures_of, newly_failed, waiting
from app.plans.jobs.indexes import index_of
from app.plans.jobs.job_status import Step
from app.plans.jobs.pod_failure_policy import fails_index
from app.plans.plan import Emit, Move

MOST_CHARACTERS = 200  # of a list of indexes in a message


def told(step: Step, after: Job) -> Iterator[Emit]:
    """`after` is the Job as the plan writes it."""
    job = step.situation.job
    if step.outcome is None or step.outcome not in job.status.conditions:
        yield from job_events.each(job, "Warning", "IndexFailed", list(_lost(step)))
    if not step.runs:
        return
    if _wait_is_news(step):
        yield from _retries(step, deadline_at(after))
    retry = step.situation.backoff.retry_at
    if retry and step.move == Move(again_at=retry) and _backoff_is_news(job, after):
        yield _backing_off(step, retry, deadline_at(after))


# --- indexes that are given up


def _lost(step: Step) -> Iterator[str]:
    """What to say of each index that has failed for good by now."""
    job, seen, tally = step.situation.job, step.situation.seen, step.situation.tally
    new = newly_failed(job, seen.failed)
    known = Indexes.parse(job.status.failed_indexes or "") if new else Indexes()
    for pod in seen.failed if new else ():
        index = index_of(pod)
        if index is not None and index in new and index in tally.failed_indexes and index not in known:
            new.discard(index)  # of several pods with one index, one is enough
            how = "by a FailIndex rule" if fails_index(job, pod) else _times(failures_of(pod)[0] + 1)
            yield f"Index {index} failed {how} and is not tried again"


# --- an index's own back-off


def _wait_is_news(step: Step) -> bool:
    """More indexes wait than before, or for younger pods; that fewer do is no news."""
    before = annotation_state.read(step.situation.job.metadata.annotations, WAITING, step.situation.now)
    now = waiting(step.waiting)
    return now is not None and (before is None or now[0] > before[0] or now[1] > before[1])


def _retries(step: Step, deadline: datetime | None) -> Iterator[Emit]:
    late = {index: at for index, at in step.move.waits.items() if deadline and at >= deadline}
    in_time = {index: at for index, at in step.move.waits.items() if index not in late}
    job, now = step.situation.job, step.situation.now
    if in_time:
        yield Emit("Normal", "BackingOff", f"{_failed(step, in_time)} tried again {_from(in_time, now)}", job)
    if late and deadline:
        why = f"back-off would end {_at(min(late.values()), now)}, activeDeadlineSeconds ends the Job at"
        yield Emit("Warning", "NoMoreTries", f"{_failed(step, late)} not tried again: {why} {moment(deadline)}", job)


def _failed(step: Step, waits: Mapping[int, datetime]) -> str:
    if len(waits) > 1:
        listed = str(Indexes().add(waits))
        return f"Indexes {listed if len(listed) <= MOST_CHARACTERS else f'({len(waits)} of them)'} failed and are"
    (index,) = waits
    return f"Index {index} failed {_times(sum(failures_of(step.situation.last_failed[index])) + 1)} and is"


def _from(waits: Mapping[int, datetime], now: datetime) -> str:
    first, last = min(waits.values()), max(waits.values())
    return _at(first, now) if first == last else f"from {moment(first)} to {moment(last)}"


# --- a Job's back-off


def _backoff_is_news(before: Job, after: Job) -> bool:
    key = backoff.ANNOTATION
    return before.metadata.annotations.get(key) != after.metadata.annotations.get(key) or is_resuming(before)


def _backing_off(step: Step, retry: datetime, deadline: datetime | None) -> Emit:
    job, now, count = step.situation.job, step.situation.now, step.situation.backoff.failures
    held = f"no pod is created until {moment(retry)}, after {count} {'failures in a row' if count > 1 else 'failure'}"
    if not deadline or retry < deadline:
        return Emit("Normal", "BackingOff", f"Back-off of {duration_text(retry - now)}: {held}", job)
    unless = ", unless one succeeds" if step.active else ""
    end = f"activeDeadlineSeconds ends the Job at {moment(deadline)}"
    return Emit("Warning", "NoMoreTries", f"No more tries{unless}: {held}, and {end}", job)


# --- wording


def _at(at: datetime, now: datetime) -> str:
    return f"at {moment(at)} (in {duration_text(at - now)})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
