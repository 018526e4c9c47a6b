"""TTL after finished: when a finished Job is deleted (`ttlSecondsAfterFinished`). Pure; called by the Job controller.

Counts from the terminal condition's transition, as Kubernetes' TTL controller does, and deletes in the foreground, so that
the pods go first. A time in the future, from a clock that was wrong, only delays.
"""

from datetime import datetime

from app.kinds.batch.job import Job
from app.machinery.durations import after
from app.machinery.meta.conditions import condition
from app.plans.plan import Delete, Plan


def plan(job: Job, now: datetime) -> Plan:
    """Delete the Job if its TTL is over; else look again when it is."""
    at = expires_at(job)
    if at is None or job.metadata.deletion_timestamp is not None:
        return Plan()
    if now < at:
        return Plan(again_at=at)
    return Plan((Delete(job, propagation="Foreground"),))


def expires_at(job: Job) -> datetime | None:
    """None for a Job that has not finished, or that has no TTL."""
    seconds = job.spec.ttl_seconds_after_finished
    ended = condition(job.status.conditions, "Complete") or condition(job.status.conditions, "Failed")
    if seconds is None or ended is None or ended.status != "True" or ended.last_transition_time is None:
        return None
    return after(ended.last_transition_time, seconds)
