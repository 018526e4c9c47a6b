"""Heartbeat of a Job's submitter: the Job fails when nobody renews it (`jobplane.dev/heartbeat-timeout`). Pure; used by `job`.

A program that submits Jobs and waits for them writes the time into `jobplane.dev/heartbeat` now and then. If it dies, its Jobs
end. The Job's creation counts as the first heartbeat. Time runs also while the Job is suspended, or waits for others.
"""

from datetime import datetime

from app.kinds.batch.job import Job
from app.kinds.batch.job_annotations import heartbeat_timeout, last_heartbeat
from app.machinery.base import Condition
from app.machinery.durations import FIRST, after, human_duration, span
from app.plans.annotation_state import moment
from app.plans.jobs.job_snapshot import JobSnapshot, failure_target


def due_at(job: Job) -> datetime | None:
    """Return when the Job fails if its heartbeat is not renewed; None if it needs none."""
    timeout = heartbeat_timeout(job.metadata)
    return None if timeout is None else after(_last_at(job), timeout)


def _last_at(job: Job) -> datetime:
    return max(job.metadata.creation_timestamp or FIRST, last_heartbeat(job.metadata) or FIRST)


def find_failure(snapshot: JobSnapshot) -> Condition | None:
    """The condition FailureTarget, if the heartbeat was missed."""
    job, due = snapshot.job, due_at(snapshot.job)
    if due is None or snapshot.now < due:
        return None
    timeout = human_duration(span(heartbeat_timeout(job.metadata) or 0))
    message = f"Job's submitter has not renewed its heartbeat for {timeout}, since {moment(_last_at(job))}"
    return failure_target(snapshot, "HeartbeatMissed", message)
