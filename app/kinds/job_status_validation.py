"""Validation of what a controller writes to a Job's status. The Kind record in `app.kinds.job` calls it.

Most rules look only at what this write changes: a status that older rules let through can still be written to.
"""

from collections.abc import Iterator

from app.kinds.errors import Cause, duplicate, invalid, required
from app.kinds.indexes import Indexes, IndexListError
from app.kinds.job_policies import unshown
from app.kinds.job_schema import Job, JobStatus, UncountedTerminatedPods, is_finished, is_indexed, is_true
from app.kinds.metadata import NEGATIVE


def validate_status(new: Job, old: Job) -> list[Cause]:
    return [
        *_counts(new.status),
        *_uncounted(new.status.uncounted_terminated_pods or UncountedTerminatedPods()),
        *_conditions(new, old),
        *_completion_time(new, old),
        *_start_time(new, old),
        *_finished(new, old),
        *_indexes(new, old),
        *_kept_conditions(new, old),
        *_kept_counts(new, old),
    ]


def _counts(status: JobStatus) -> Iterator[Cause]:
    counts = {
        "active": status.active,
        "succeeded": status.succeeded,
        "failed": status.failed,
        "ready": status.ready or 0,
        "terminating": status.terminating or 0,
    }
    for name, count in counts.items():
        if count < 0:
            yield invalid(f"status.{name}", count, NEGATIVE)


def _uncounted(pods: UncountedTerminatedPods) -> Iterator[Cause]:
    seen = set()
    for name, uids in (("succeeded", pods.succeeded), ("failed", pods.failed)):
        for place, uid in enumerate(uids):
            path = f"status.uncountedTerminatedPods.{name}[{place}]"
            if not uid:
                yield invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(path, uid)
            seen.add(uid)


def _conditions(new: Job, old: Job) -> Iterator[Cause]:
    path = "status.conditions"
    for one, other, always in (
        ("Complete", "Failed", False),
        ("Complete", "FailureTarget", False),
        ("SuccessCriteriaMet", "Failed", True),
        ("SuccessCriteriaMet", "FailureTarget", True),
    ):
        if (always or _turned(new, old, one, other)) and is_true(new, one) and is_true(new, other):
            yield unshown(path, f"cannot set {one}=True and {other}=true conditions")
    recounted = new.status.failed_indexes != old.status.failed_indexes  # this, too, has Kubernetes look at failures
    for end, announced, asked in (
        ("Failed", "FailureTarget", recounted or _turned(new, old, "Failed")),
        ("Complete", "SuccessCriteriaMet", _turned(new, old, "Complete", "SuccessCriteriaMet")),
    ):
        if asked and is_true(new, end) and not is_true(new, announced):
            yield unshown(path, f"cannot set {end}=True condition without the {announced}=true condition")
    if new.spec.success_policy is not None and is_true(new, "Complete") and not is_true(new, "SuccessCriteriaMet"):
        yield unshown(path, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")


def _turned(new: Job, old: Job, *kinds: str) -> bool:
    return any(is_true(new, kind) != is_true(old, kind) for kind in kinds)


def _kept_conditions(new: Job, old: Job) -> Iterator[Cause]:
    path = "status.conditions"
    lost = [
        kind
        for kind in ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet")
        if is_true(old, kind) and not is_true(new, kind)
    ]
    for kind in lost:
        terminal = "" if kind == "SuccessCriteriaMet" else "terminal "
        yield unshown(path, f"cannot disable the {terminal}{kind}=True condition")
    if is_true(old, "Complete") and not is_true(old, "SuccessCriteriaMet") and is_true(new, "SuccessCriteriaMet"):
        yield unshown(path, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")


def _completion_time(new: Job, old: Job) -> Iterator[Cause]:
    path, ended, ended_before = "status.completionTime", new.status.completion_time, old.status.completion_time
    started = new.status.start_time
    if _turned(new, old, "Complete") or ended != ended_before:
        if ended is not None and not is_true(new, "Complete"):
            yield invalid(path, ended, "cannot set completionTime when there is no Complete=True condition")
        if ended is None and is_true(new, "Complete"):
            yield required(path, "completionTime is required for Complete jobs")
    changed = started != old.status.start_time or ended != ended_before
    if changed and started is not None and ended is not None and ended < started:
        yield invalid(path, ended, "completionTime cannot be set before startTime")
    if ended is not None and ended_before is not None and ended != ended_before:
        yield invalid(path, ended, "completionTime cannot be mutated")


def _start_time(new: Job, old: Job) -> Iterator[Cause]:
    path, started, started_before = "status.startTime", new.status.start_time, old.status.start_time
    # A suspended Job that wants no completions is complete without ever having been started.
    may_lack = new.spec.suspend and new.spec.completions == 0
    if started is None and is_finished(new) and not may_lack and (not is_finished(old) or started_before is not None):
        yield required(path, "startTime is required for finished job")
    # Resuming starts the clock anew, whether or not suspending had stopped it.
    resumed = is_true(old, "Suspended") and not is_true(new, "Suspended")
    if not (new.spec.suspend or resumed) and started_before is not None and started != started_before:
        yield required(path, "startTime cannot be removed for unsuspended job")  # nor moved: Kubernetes says it so


def _finished(new: Job, old: Job) -> Iterator[Cause]:
    now, before = new.status, old.status
    left = now.uncounted_terminated_pods
    if is_finished(new):
        ending = not is_finished(old)
        if now.active > 0 and (ending or now.active != before.active):
            yield invalid("status.active", now.active, "active>0 is invalid for finished job")
        if (now.terminating or 0) > 0 and (ending or now.terminating != before.terminating):
            yield invalid("status.terminating", now.terminating, "terminating>0 is invalid for finished job")
        if left and (left.succeeded or left.failed) and (ending or left != before.uncounted_terminated_pods):
            detail = "uncountedTerminatedPods needs to be empty for finished job"
            yield invalid("status.uncountedTerminatedPods", left, detail)
    if (now.ready or 0) > now.active and (now.ready, now.active) != (before.ready, before.active):
        yield invalid("status.ready", now.ready, "cannot set more ready pods than active")


def _kept_counts(new: Job, old: Job) -> Iterator[Cause]:
    if new.status.failed < old.status.failed:
        yield invalid("status.failed", new.status.failed, "cannot decrease the failed counter")
    # Scaling an Indexed Job down takes the indexes beyond its end out of the count.
    elastic = is_indexed(new) and new.spec.completions == new.spec.parallelism
    if new.status.succeeded < old.status.succeeded and not elastic:
        yield invalid("status.succeeded", new.status.succeeded, "cannot decrease the succeeded counter")


def _indexes(new: Job, old: Job) -> Iterator[Cause]:
    completed, failed = new.status.completed_indexes, new.status.failed_indexes
    completed_changed, failed_changed = completed != old.status.completed_indexes, failed != old.status.failed_indexes
    if completed_changed:
        yield from _unreadable("completedIndexes", completed, new.spec.completions)
        if completed and not is_indexed(new):
            detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
            yield invalid("status.completedIndexes", completed, detail)
    if failed is None:
        return
    if failed_changed and new.spec.backoff_limit_per_index is None:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, detail)
    elif failed_changed:
        yield from _unreadable("failedIndexes", failed, new.spec.completions)
    if completed_changed or failed_changed:
        yield from _overlapping(completed, failed, new.spec.completions)


def _unreadable(name: str, text: str, completions: int | None) -> Iterator[Cause]:
    if completions is None:
        return
    try:
        Indexes.parse(text, completions)
    except IndexListError as why:
        yield invalid(f"status.{name}", text, f"error parsing {name}: {why}")


def _overlapping(completed: str, failed: str, completions: int | None) -> Iterator[Cause]:
    try:
        common = Indexes.parse(completed, completions).intersection(Indexes.parse(failed, completions))
    except IndexListError:
        return  # said already
    if common:
        yield invalid(
            "status.failedIndexes", failed, f"failedIndexes and completedIndexes overlap at index: {next(iter(common))}"
        )
