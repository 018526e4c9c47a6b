"""CronJobs: defaults, what is refused on create and on update, warnings, and the row of `kubectl get`."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.cronjob import KIND, CronJob, CronJobSpec, CronJobStatus, JobTemplateSpec
from app.kinds.batch.job import JobSpec
from app.machinery.base import ObjectMeta
from tests.build import LONG_AGO, NOW, a_template
from tests.kinds.tables import Row
from tests.kinds.tables.cronjobs import CRON_JOB_UPDATES, CRON_JOBS, JOB, written


def a_cron_job(name: str = "nightly", job: dict[str, Any] | None = None, **spec: Any) -> CronJob:
    """As it is validated when it is created."""
    template = JobTemplateSpec(spec=JobSpec(**({"template": a_template()} | (job or {}))))
    usual = {"schedule": "30 3 * * *", "job_template": template}
    return KIND.prepare(CronJob(metadata=ObjectMeta(name=name), spec=CronJobSpec(**(usual | spec))))


def stored(cron_job: CronJob) -> CronJob:
    return replace(cron_job, metadata=replace(cron_job.metadata, resource_version="7"))


def faults(cron_job: CronJob) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in KIND.validate(cron_job)]


def update_faults(new: CronJob, old: CronJob) -> list[str]:
    causes = KIND.validate(stored(new)) + KIND.validate_update(stored(new), stored(old))
    return [f"{cause.field}: {cause.message}" for cause in causes]


def test_the_defaults_are_those_of_a_cron_job_and_of_its_pods_but_not_of_a_job() -> None:
    spec = a_cron_job().spec

    assert (spec.concurrency_policy, spec.suspend) == ("Allow", False)
    assert (spec.successful_jobs_history_limit, spec.failed_jobs_history_limit) == (3, 1)
    assert spec.job_template.spec.backoff_limit is None
    assert spec.job_template.spec.template.spec.dns_policy == "ClusterFirst"


def test_a_limit_of_zero_is_kept() -> None:
    assert a_cron_job(failed_jobs_history_limit=0).spec.failed_jobs_history_limit == 0


@pytest.mark.parametrize("refused", CRON_JOBS.values(), ids=[*CRON_JOBS])
def test_is_refused_when(refused: Row) -> None:
    assert KIND.validate(KIND.prepare(written(**refused.sent))) == [*refused.causes]


@pytest.mark.parametrize("refused", CRON_JOB_UPDATES.values(), ids=[*CRON_JOB_UPDATES])
def test_an_update_is_refused_when(refused: Row) -> None:
    old, new = (stored(KIND.prepare(written(**parts))) for parts in (refused.before, refused.sent))

    assert KIND.validate(new) + KIND.validate_update(new, old) == [*refused.causes]


@pytest.mark.parametrize(
    "spec",
    [{"time_zone": "Etc/UTC"}, {"time_zone": "Europe/Berlin"}, {"schedule": "@every 1h"}, {"name": "n" * 52}],
    ids=str,
)
def test_accepted(spec: dict[str, Any]) -> None:
    assert faults(a_cron_job(**spec)) == []


OLD = a_cron_job(schedule="TZ=UTC 0 * * * *")


def test_a_long_name_and_an_old_zone_do_not_stand_in_the_way_of_an_update() -> None:
    cron_job = a_cron_job(name="n" * 60, time_zone="Mars/Olympus")

    assert update_faults(replace(cron_job, spec=replace(cron_job.spec, suspend=True)), cron_job) == []


def test_a_zone_stays_in_the_schedule_if_it_is_nowhere_else() -> None:
    assert update_faults(a_cron_job(schedule="CRON_TZ=UTC 5 * * * *"), OLD) == []


def test_generation_follows_the_spec_and_a_client_writes_no_status() -> None:
    made = KIND.on_create(replace(a_cron_job(), status=CronJobStatus(last_schedule_time=NOW)), NOW)
    same = KIND.on_update(replace(made, status=CronJobStatus(last_schedule_time=NOW)), made)
    changed = KIND.on_update(replace(made, spec=replace(made.spec, suspend=True)), made)

    assert made.status == same.status == CronJobStatus()
    assert [each.metadata.generation for each in (made, same, changed)] == [1, 1, 2]


def test_it_warns_of_a_zone_in_the_schedule_and_of_what_pods_would() -> None:
    texts = KIND.warnings(replace(OLD, metadata=ObjectMeta(name="a.b")), None)

    assert [text.partition(":")[0] for text in texts[:1]] == ["metadata.name"]
    assert texts[-1].startswith("CRON_TZ or TZ used in spec.schedule is not officially supported")
    job = {"template": a_template(host_users=False)}
    assert any(text.startswith(f"{JOB}.template.spec.hostUsers") for text in KIND.warnings(a_cron_job(job=job), None))


def test_the_row() -> None:
    cron_job = a_cron_job(time_zone="Etc/UTC", suspend=True)
    status = CronJobStatus(last_schedule_time=NOW - timedelta(minutes=5))
    cron_job = replace(cron_job, status=status, metadata=replace(cron_job.metadata, creation_timestamp=LONG_AGO))

    assert KIND.row(cron_job, NOW) == [
        "nightly", "30 3 * * *", "Etc/UTC", "True", 0, "5m", "120m", "main", "busybox", "<none>",
    ]  # fmt: skip
    assert KIND.row(a_cron_job(), NOW)[2:6] == ["<none>", "False", 0, "<none>"]
