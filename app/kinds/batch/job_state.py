"""Questions that plans and validation ask about a Job as it is. Import them from `app.kinds.batch.job`."""

from app.kinds.batch.job_schema import Job
from app.machinery.base import Condition
from app.machinery.meta import conditions


def is_indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def condition(job: Job, kind: str) -> Condition | None:
    """The condition of that type, whatever its status."""
    return conditions.condition(job.status.conditions, kind)


def is_true(job: Job, kind: str) -> bool:
    return conditions.is_true(job.status.conditions, kind)


def is_finished(job: Job) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")
