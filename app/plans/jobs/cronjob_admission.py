"""Whether the rules of its namespace let a CronJob create the Job of a slot. Used by `app.plans.jobs.cronjob`."""

from collections.abc import Sequence
from datetime import datetime

from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.machinery.errors import unprocessable
from app.machinery.metadata_validation import validate_metadata
from app.plans.admission.pod_admission import Rules, judged
from app.plans.plan import Update


def charged(job: Job, rules: Rules, now: datetime) -> Sequence[Update]:
    """The quotas that pay for the Job, as they will be. Raises the refusal that a client would get.

    The template was valid; but with the slot's name, the names of an Indexed Job's pods may be too long.
    """
    made = JOBS.on_create(JOBS.prepare(job), now)
    causes = validate_metadata(made.metadata, namespaced=True, name_format=JOBS.name_format) + JOBS.validate(made)
    if causes:
        raise unprocessable(JOBS.name, JOBS.group, job.metadata.name, causes)
    return judged(JOBS.resource, made, rules)
