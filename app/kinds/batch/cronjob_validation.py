"""Validation of a CronJob on create and update. The Kind record in `app.kinds.batch.cronjob` calls it.

Causes come in Kubernetes' order and words. A status is not validated, as in Kubernetes.
"""

import re
from collections.abc import Iterator

from app.kinds.batch.cron_hash import resolve
from app.kinds.batch.cron_schedule import ScheduleError, parse, zone_named
from app.kinds.batch.cronjob_schema import CronJob, CronJobSpec, JobTemplateSpec
from app.kinds.batch.job_annotations import validate_annotations
from app.kinds.batch.job_validation import validate_spec
from app.machinery.errors import Cause, invalid, not_supported, one_of, required
from app.machinery.meta.metadata_validation import NEGATIVE

CATCH_UP = "jobplane.dev/catch-up"
CATCH_UP_POLICIES = ("none", "last", "all")
POLICIES = ("Allow", "Forbid", "Replace")
MOST_CHARACTERS = 52  # of a name: a dash and ten digits make it a Job's
_ZONE_PART = re.compile(r"[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}")
_NOT_EXPLICIT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"


def validate(cron_job: CronJob) -> list[Cause]:
    """For create and update. What is judged by how it was before is `validate_update`'s, once there is a before."""
    spec, is_new = cron_job.spec, not cron_job.metadata.resource_version
    return [
        *_schedule(spec.schedule),
        *_catch_up(cron_job),
        *(_zone_in(spec, None) if is_new else ()),
        *_not_negative("spec.startingDeadlineSeconds", spec.starting_deadline_seconds),
        *(_zone(spec.time_zone) if is_new else ()),
        *one_of("spec.concurrencyPolicy", spec.concurrency_policy, POLICIES),
        *_template(spec.job_template, "spec.jobTemplate.spec"),
        *_not_negative("spec.successfulJobsHistoryLimit", spec.successful_jobs_history_limit),
        *_not_negative("spec.failedJobsHistoryLimit", spec.failed_jobs_history_limit),
        *(_name(cron_job.metadata.name) if is_new else ()),
    ]


def validate_update(new: CronJob, old: CronJob) -> list[Cause]:
    """A zone that was accepted once stays acceptable, in either place."""
    changed = new.spec.time_zone != old.spec.time_zone
    return [*_zone_in(new.spec, old.spec), *(_zone(new.spec.time_zone) if changed else ())]


def _schedule(schedule: str) -> Iterator[Cause]:
    if not schedule:
        yield required("spec.schedule")
        return
    try:
        parse(resolve(schedule, ""))  # whether it is valid does not depend on the seed
    except ScheduleError as error:
        yield invalid("spec.schedule", schedule, str(error))


def _catch_up(cron_job: CronJob) -> Iterator[Cause]:
    path, policy = f"metadata.annotations[{CATCH_UP}]", cron_job.metadata.annotations.get(CATCH_UP)
    if policy is None:
        return
    if policy not in CATCH_UP_POLICIES:
        yield not_supported(path, policy, CATCH_UP_POLICIES)
    elif policy == "all" and cron_job.spec.concurrency_policy == "Replace":
        yield invalid(
            path, policy, "may not be used with concurrencyPolicy Replace: each Job would delete the one before"
        )


def _zone_in(spec: CronJobSpec, old: CronJobSpec | None) -> Iterator[Cause]:
    """TZ= within the schedule: an older way to name a zone, which is kept where it is."""
    if "TZ" not in spec.schedule:
        return
    if old is None or "TZ" not in old.schedule:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid("spec.schedule", spec.schedule, text)
    elif spec.time_zone is not None:
        yield invalid("spec.schedule", spec.schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _zone(zone: str | None) -> Iterator[Cause]:
    path = "spec.timeZone"
    if zone is None:
        return
    if not zone:
        yield invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    if not all(_ZONE_PART.fullmatch(part) and part not in (".", "..") for part in zone.split("/")):
        yield invalid(path, zone, f"unknown time zone {zone}")
        return
    if zone.lower() == "local":
        yield invalid(path, zone, _NOT_EXPLICIT)
    try:
        if zone != "Local":
            zone_named(zone)
    except ScheduleError as error:
        yield invalid(path, zone, str(error))


def _not_negative(path: str, value: int | None) -> Iterator[Cause]:
    if value is not None and value < 0:
        yield invalid(path, value, NEGATIVE)


def _template(template: JobTemplateSpec, path: str) -> Iterator[Cause]:
    spec = template.spec
    yield from validate_spec(spec, path)
    if spec.selector is not None:
        yield invalid(f"{path}.selector", spec.selector, "`selector` will be auto-generated")
    if spec.manual_selector:
        yield not_supported(f"{path}.manualSelector", spec.manual_selector, ("nil", "false"))
    annotations = f"{path.removesuffix('spec')}metadata.annotations"
    yield from validate_annotations(template.metadata, spec.template.spec, annotations)


def _name(name: str) -> Iterator[Cause]:
    if len(name) > MOST_CHARACTERS:
        yield invalid("metadata.name", name, f"must be no more than {MOST_CHARACTERS} characters")
