"""Validation of what a controller writes to a Job's status. The Kind record in `app.kinds.batch.job` calls it.

Most rules look only at what this write changes: a status that older rules let through can still be written to. Causes
come in Kubernetes' order.
"""

from collections.abc import Iterator

from app.kinds.batch.completion_indexes import Indexes, IndexListError
from app.kinds.batch.job_policies import unshown
from app.kinds.batch.job_schema import Job, JobStatus, UncountedTerminatedPods
from app.kinds.batch.job_state import is_finished, is_indexed, is_true
from app.machinery.errors import Cause, duplicate, invalid, required
from app.machinery.meta.metadata_validation import NEGATIVE

CONDITIONS = "status.conditions"


def validate_status(new: Job, old: Job) -> list[Cause]:
    return [
        *_counts(new.status),
        *_validate_uncounted(new.status.uncounted_terminated_pods or UncountedTerminatedPods()),
        *_ends(new, old),
        *_completion_time(new, old),
        *_announcements(new, old),
        *_validate_finished(new, old),
        *_indexes(new, old),
        *_pods_left(new, old),
        *_success(new),
        *_kept_ends(new, old),
        *_kept_counts(new, old),
        *_kept_times(new, old),
        *_kept_success(new, old),
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


def _validate_uncounted(pods: UncountedTerminatedPods) -> Iterator[Cause]:
    seen = set()
    for name, uids in (("succeeded", pods.succeeded), ("failed", pods.failed)):
        for place, uid in enumerate(uids):
            path = f"status.uncountedTerminatedPods.{name}[{place}]"
            if not uid:
                yield invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(path, uid)
            seen.add(uid)


def _ends(new: Job, old: Job) -> Iterator[Cause]:
    for other in ("Failed", "FailureTarget"):
        if _differs(new, old, "Complete", other) and is_true(new, "Complete") and is_true(new, other):
            yield unshown(CONDITIONS, f"cannot set Complete=True and {other}=true conditions")


def _announcements(new: Job, old: Job) -> Iterator[Cause]:
    recounted = new.status.failed_indexes != old.status.failed_indexes  # this, too, has Kubernetes look at failures
    for end, announced, asked in (
        ("Failed", "FailureTarget", recounted or _differs(new, old, "Failed")),
        ("Complete", "SuccessCriteriaMet", _differs(new, old, "Complete", "SuccessCriteriaMet")),
    ):
        if asked and is_true(new, end) and not is_true(new, announced):
            yield unshown(CONDITIONS, f"cannot set {end}=True condition without the {announced}=true condition")


def _success(new: Job) -> Iterator[Cause]:
    for other in ("Failed", "FailureTarget"):
        if is_true(new, "SuccessCriteriaMet") and is_true(new, other):
            yield unshown(CONDITIONS, f"cannot set SuccessCriteriaMet=True and {other}=true conditions")
    if new.spec.success_policy is not None and is_true(new, "Complete") and not is_true(new, "SuccessCriteriaMet"):
        yield unshown(CONDITIONS, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")


def _differs(new: Job, old: Job, *kinds: str) -> bool:
    return any(is_true(new, kind) != is_true(old, kind) for kind in kinds)


def _kept_ends(new: Job, old: Job) -> Iterator[Cause]:
    for kind in ("Failed", "Complete", "FailureTarget"):
        if is_true(old, kind) and not is_true(new, kind):
            yield unshown(CONDITIONS, f"cannot disable the terminal {kind}=True condition")


def _kept_success(new: Job, old: Job) -> Iterator[Cause]:
    if is_true(old, "SuccessCriteriaMet") and not is_true(new, "SuccessCriteriaMet"):
        yield unshown(CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition")
    if is_true(old, "Complete") and not is_true(old, "SuccessCriteriaMet") and is_true(new, "SuccessCriteriaMet"):
        yield unshown(CONDITIONS, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")


def _completion_time(new: Job, old: Job) -> Iterator[Cause]:
    path, ended, ended_before = "status.completionTime", new.status.completion_time, old.status.completion_time
    started = new.status.start_time
    if _differs(new, old, "Complete") or ended != ended_before:
        if ended is not None and not is_true(new, "Complete"):
            yield invalid(path, ended, "cannot set completionTime when there is no Complete=True condition")
        if ended is None and is_true(new, "Complete"):
            yield required(path, "completionTime is required for Complete jobs")
    changed = started != old.status.start_time or ended != ended_before
    if changed and started is not None and ended is not None and ended < started:
        yield invalid(path, ended, "completionTime cannot be set before startTime")


def _kept_times(new: Job, old: Job) -> Iterator[Cause]:
    ended, ended_before = new.status.completion_time, old.status.completion_time
    if ended is not None and ended_before is not None and ended != ended_before:
        yield invalid("status.completionTime", ended, "completionTime cannot be mutated")
    # Resuming starts the clock anew, whether or not suspending had stopped it.
    resumed = is_true(old, "Suspended") and not is_true(new, "Suspended")
    started, started_before = new.status.start_time, old.status.start_time
    if not (new.spec.suspend or resumed) and started_before is not None and started != started_before:
        detail = "startTime cannot be removed for unsuspended job"  # nor moved: Kubernetes has one message for both
        yield required("status.startTime", detail)


def _validate_finished(new: Job, old: Job) -> Iterator[Cause]:
    now, before, ending = new.status, old.status, not is_finished(old)
    if not is_finished(new):
        return
    if now.active > 0 and (ending or now.active != before.active):
        yield invalid("status.active", now.active, "active>0 is invalid for finished job")
    # A suspended Job that wants no completions is complete without ever having been started.
    may_lack = new.spec.suspend and new.spec.completions == 0
    if now.start_time is None and not may_lack and (ending or before.start_time is not None):
        yield required("status.startTime", "startTime is required for finished job")
    left = now.uncounted_terminated_pods
    if left and (left.succeeded or left.failed) and (ending or left != before.uncounted_terminated_pods):
        detail = "uncountedTerminatedPods needs to be empty for finished job"
        yield invalid("status.uncountedTerminatedPods", left, detail)


def _pods_left(new: Job, old: Job) -> Iterator[Cause]:
    now, before = new.status, old.status
    ending = not is_finished(old) or now.terminating != before.terminating
    if is_finished(new) and (now.terminating or 0) > 0 and ending:
        yield invalid("status.terminating", now.terminating, "terminating>0 is invalid for finished job")
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
    limited = new.spec.backoff_limit_per_index is not None
    if completed_changed:
        yield from _unreadable("completedIndexes", completed, new.spec.completions)
    if failed_changed and limited and failed is not None:
        yield from _unreadable("failedIndexes", failed, new.spec.completions)
    if completed_changed and completed and not is_indexed(new):
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", completed, detail)
    if failed_changed and failed is not None and not limited:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, detail)
    if (completed_changed or failed_changed) and failed is not None:
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
