"""The CronJob kind: make Jobs by a schedule."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.batch import job
from app.kinds.batch.cron_hash import is_hashed, resolve
from app.kinds.batch.cron_schedule import ScheduleError
from app.kinds.batch.cronjob_schema import CronJob, CronJobSpec, CronJobStatus, JobTemplateSpec
from app.kinds.batch.cronjob_validation import validate, validate_update
from app.kinds.pod.shared_specs import TEMPLATE_SPECS
from app.machinery.base import Column, Kind, ObjectMeta
from app.machinery.durations import age
from app.machinery.name_validation import dns_label

__all__ = ["KIND", "CronJob", "CronJobSpec", "CronJobStatus", "JobTemplateSpec"]

_DEFAULTS: dict[str, Any] = {
    "concurrency_policy": "Allow",
    "suspend": False,
    "successful_jobs_history_limit": 3,
    "failed_jobs_history_limit": 1,
}
_ZONE_IN_SCHEDULE = (
    "CRON_TZ or TZ used in spec.schedule is not officially supported, see "
    "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)


def prepare(cron_job: CronJob) -> CronJob:
    """The defaults. A Job's own are not among them: they are for the Jobs, when they are made."""
    spec = cron_job.spec
    unset = {name: value for name, value in _DEFAULTS.items() if getattr(spec, name) in (None, "")}
    return replace(cron_job, spec=replace(spec, job_template=_with_defaults(spec.job_template), **unset))


def _with_defaults(template: JobTemplateSpec) -> JobTemplateSpec:
    spec = template.spec
    policy = spec.pod_failure_policy and job.default_failure_policy(spec.pod_failure_policy)
    pods = replace(spec.template, spec=TEMPLATE_SPECS.share(spec.template.spec))
    return replace(template, spec=replace(spec, pod_failure_policy=policy, template=pods))


def on_create(cron_job: CronJob, _: datetime) -> CronJob:
    return replace(cron_job, metadata=replace(cron_job.metadata, generation=1), status=CronJobStatus())


def on_update(new: CronJob, old: CronJob) -> CronJob:
    generation = old.metadata.generation + (new.spec != old.spec)
    return replace(new, metadata=replace(new.metadata, generation=generation), status=old.status)


def warnings(new: CronJob, old: CronJob | None) -> list[str]:
    texts = []
    if old is None and (reasons := dns_label(new.metadata.name)):
        texts.append(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(reasons)}]"
        )
    texts += [f"spec.jobTemplate.{text}" for text in job.warnings(_as_job(new), _as_job(old) if old else None)]
    if "TZ" in new.spec.schedule:
        texts.append(_ZONE_IN_SCHEDULE)
    return texts


def _as_job(cron_job: CronJob) -> job.Job:
    """For a second opinion on the template; the name is not the point."""
    return job.Job(metadata=ObjectMeta(name="job"), spec=cron_job.spec.job_template.spec)


def row(cron_job: CronJob, now: datetime) -> list[Any]:
    meta, spec, status = cron_job.metadata, cron_job.spec, cron_job.status
    containers = spec.job_template.spec.template.spec.containers
    return [
        meta.name,
        _format_schedule(cron_job),
        "<none>" if spec.time_zone is None else spec.time_zone,
        "<unset>" if spec.suspend is None else str(spec.suspend),
        len(status.active),
        age(status.last_schedule_time, now) if status.last_schedule_time else "<none>",
        age(meta.creation_timestamp, now),
        ",".join(each.name for each in containers),
        ",".join(each.image for each in containers),
        "<none>",
    ]


def _format_schedule(cron_job: CronJob) -> str:
    """The schedule, and how it is read if it has an `H`."""
    meta, text = cron_job.metadata, cron_job.spec.schedule
    try:
        return f"{resolve(text, f'{meta.namespace}/{meta.name}')} ({text})" if is_hashed(text) else text
    except ScheduleError:
        return text


COLUMNS = (
    Column(name="Name", format="name", description="Name of the CronJob."),
    Column(name="Schedule", description="When Jobs are made."),
    Column(name="Timezone", description="The time zone whose clocks count."),
    Column(name="Suspend", description="Whether it makes no more Jobs."),
    Column(name="Active", type="integer", description="How many of its Jobs run."),
    Column(name="Last Schedule", description="Time since the slot that a Job was last started for."),
    Column(name="Age", description="Time since the CronJob was created."),
    Column(name="Containers", description="Names of the template's containers.", priority=1),
    Column(name="Images", description="Images of the template's containers.", priority=1),
    Column(name="Selector", description="Selector of the template, which has none.", priority=1),
)

EXAMPLE = """\
apiVersion: batch/v1
kind: CronJob
metadata:
  name: nightly
spec:
  schedule: "30 3 * * *"
  timeZone: Etc/UTC
  concurrencyPolicy: Forbid
  jobTemplate:
    metadata:
      labels:
        app: nightly
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers:
          - name: report
            image: busybox:1.37
            command: [date]
"""

KIND = Kind(
    type=CronJob,
    group="batch",
    version="v1",
    plural="cronjobs",
    short_names=("cj",),
    categories=("all",),
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    warnings=warnings,
    columns=COLUMNS,
    row=row,
    example=EXAMPLE,
)
