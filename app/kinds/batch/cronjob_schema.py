"""The structs of a CronJob. Everyone imports them from `app.kinds.batch.cronjob`."""

from typing import Annotated

import msgspec

from app.kinds.batch.job_schema import JobSpec
from app.machinery.base import Int32, Int64, Object, ObjectMeta, ObjectReference, Struct, Time, at


class JobTemplateSpec(Struct):
    """The Jobs that are made."""

    metadata: Annotated[ObjectMeta, at(1, "Labels and annotations of the Jobs.")] = msgspec.field(
        default_factory=ObjectMeta
    )
    spec: Annotated[JobSpec, at(2, "What the Jobs do. Their selector is made by the server.")] = msgspec.field(
        default_factory=JobSpec
    )


class CronJobSpec(Struct):
    """When Jobs are made, and which."""

    schedule: Annotated[
        str,
        at(
            1,
            "Minute, hour, day of month, month and day of week; or a word such as @hourly, or @every 90m.",
            required=True,
        ),
    ] = ""
    time_zone: Annotated[
        str | None, at(8, "Name of the time zone whose clocks count, such as Europe/Berlin. UTC if unset.")
    ] = None
    starting_deadline_seconds: Annotated[
        Int64 | None, at(2, "A Job that cannot be started within so many seconds of its time is not started at all.")
    ] = None
    concurrency_policy: Annotated[
        str,
        at(
            3,
            "What if the Job before still runs: Allow starts another one beside it, Forbid waits for its end, Replace "
            "deletes it. Allow if unset.",
            enum=("Allow", "Forbid", "Replace"),
        ),
    ] = ""
    suspend: Annotated[bool | None, at(4, "True starts no more Jobs, and leaves those that run alone.")] = None
    job_template: Annotated[JobTemplateSpec, at(5, "The Jobs to make.", required=True)] = msgspec.field(
        default_factory=JobTemplateSpec
    )
    successful_jobs_history_limit: Annotated[
        Int32 | None, at(6, "How many Jobs that succeeded are kept. 3 if unset.")
    ] = None
    failed_jobs_history_limit: Annotated[Int32 | None, at(7, "How many Jobs that failed are kept. 1 if unset.")] = None


class CronJobStatus(Struct):
    """What has become of it; written by its controller."""

    active: Annotated[tuple[ObjectReference, ...], at(1, "The Jobs that run.", list_type="atomic")] = ()
    last_schedule_time: Annotated[Time | None, at(4, "The slot that a Job was last started for.")] = None
    last_successful_time: Annotated[Time | None, at(5, "When one of its Jobs last succeeded.")] = None


class CronJob(Object):
    """Makes Jobs by a schedule."""

    spec: Annotated[CronJobSpec, at(2, "When Jobs are made, and which.")] = msgspec.field(default_factory=CronJobSpec)
    status: Annotated[CronJobStatus, at(3, "What has become of it.")] = msgspec.field(default_factory=CronJobStatus)
