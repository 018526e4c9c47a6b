"""Job of a CronJob for one scheduled time: its name, how it is built from the template, and what it costs. Pure.

Used by `cronjob`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from app.kinds.batch.cron_schedule import zone_named
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.machinery.base import ObjectMeta, ObjectReference
from app.machinery.errors import unprocessable
from app.machinery.meta.metadata_validation import validate_metadata
from app.machinery.meta.owner_references import controller_reference
from app.plans.admission.pod_admission import Rules, admit
from app.plans.plan import Update

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def charge_quotas(job: Job, rules: Rules, now: datetime) -> Sequence[Update]:
    """The quotas with the Job charged to them. Raises the refusal that a client would get.

    The template was valid; but with the name of its Job, the names of an Indexed Job's pods may be too long.
    """
    created = JOBS.on_create(JOBS.prepare(job), now)
    causes = validate_metadata(created.metadata, namespaced=True, name_format=JOBS.name_format) + JOBS.validate(created)
    if causes:
        raise unprocessable(JOBS.name, JOBS.group, job.metadata.name, causes)
    return admit(JOBS.resource, created, rules)


def job_name(cron_job: CronJob, scheduled_at: datetime) -> str:
    """One name for each scheduled time: none can start two Jobs."""
    return f"{cron_job.metadata.name}-{int(scheduled_at.timestamp()) // 60}"


def build_job(cron_job: CronJob, scheduled_at: datetime, uid: str) -> Job:
    """The Job for a scheduled time, from the CronJob's template."""
    meta, template = cron_job.metadata, cron_job.spec.job_template
    zone = zone_named(cron_job.spec.time_zone) if cron_job.spec.time_zone else UTC
    rfc3339 = scheduled_at.astimezone(zone).isoformat().replace("+00:00", "Z")
    return Job(
        api_version="batch/v1",
        kind="Job",
        metadata=ObjectMeta(
            name=job_name(cron_job, scheduled_at),
            namespace=meta.namespace,
            uid=uid,
            labels=template.metadata.labels,
            annotations={**template.metadata.annotations, SCHEDULED_AT: rfc3339},
            owner_references=(controller_reference("batch/v1", "CronJob", meta),),
        ),
        spec=template.spec,
    )


def reference(job: Job) -> ObjectReference:
    """The Job as `status.active` lists it."""
    meta = job.metadata
    return ObjectReference(kind="Job", namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version="batch/v1")
