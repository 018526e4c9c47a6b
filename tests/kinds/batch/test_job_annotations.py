"""Annotations of Jobs that mean something here: which are refused, and where the refusal points."""

import pytest
from msgspec.structs import replace

from app.kinds.batch.cronjob import KIND as CRONJOBS
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.batch.job_annotations import AFTER, Dependency, parse_after
from tests.build import a_job
from tests.registry.examples import example


def annotated(**annotations: str) -> Job:
    job = a_job()
    named = {f"jobplane.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return replace(job, metadata=replace(job.metadata, annotations=named))


def causes(job: Job) -> list[str]:
    return [f"{each.field}: {each.message}" for each in JOBS.validate(job) if "annotations[jobplane" in each.field]


def test_after_names_jobs_and_how_they_must_end() -> None:
    found = parse_after("a,b:ok, c:failed,d.e:any")
    assert found == (Dependency("a", "ok"), Dependency("b", "ok"), Dependency("c", "failed"), Dependency("d.e", "any"))


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "must name Jobs: "),
        ("a,", "must name Jobs: "),
        ("A", "must name Jobs: "),
        ("a:", "must be NAME, NAME:ok, NAME:failed or NAME:any, several separated by commas"),
        ("a:done", "must be NAME, NAME:ok, NAME:failed or NAME:any, several separated by commas"),
        ("a,b:ok,a:any", "must name each Job once: a"),
        (",".join(f"a{n}" for n in range(21)), "must have at most 20 names"),
        (" " * 6000 + "a", "must be no more than 5240 characters"),
        ("pi", "must not name the Job itself"),
    ],
)
def test_a_wrong_after_is_refused(text: str, detail: str) -> None:
    (cause,) = causes(annotated(after=text))
    assert cause.startswith(f"metadata.annotations[{AFTER}]: Invalid value: ")
    assert detail in cause


def test_after_can_be_taken_back_but_not_changed() -> None:
    one, other, none = annotated(after="a"), annotated(after="b"), annotated()
    (cause,) = JOBS.validate_update(other, one)
    assert cause.field == f"metadata.annotations[{AFTER}]"
    assert JOBS.validate_update(one, none) != []
    assert [*JOBS.validate_update(none, one), *JOBS.validate_update(one, one)] == []


@pytest.mark.parametrize("text", ["", "0s", "5", "5 m", "-5m", "m", "1.5h", "1s5m", "9" * 10 + "s", "\u0665m"])
def test_a_wrong_duration_is_refused(text: str) -> None:
    (cause,) = causes(annotated(heartbeat_timeout=text))
    assert cause.startswith("metadata.annotations[jobplane.dev/heartbeat-timeout]: Invalid value: ")
    assert cause.endswith("must be a duration above zero, such as 90s, 5m or 1h30m")


@pytest.mark.parametrize(
    "text",
    ["", "now", "2026-01-31", "12:00:00Z", "2026-01-31T12:00:00", "2026-13-31T12:00:00Z", "0001-01-01T00:00:00+14:00"],
)
def test_a_wrong_time_is_refused(text: str) -> None:
    (cause,) = causes(annotated(heartbeat=text))
    assert cause.startswith("metadata.annotations[jobplane.dev/heartbeat]: Invalid value: ")
    assert cause.endswith("must be a time as RFC 3339 has it, such as 2026-01-31T12:00:00Z")


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456Z", "2026-01-31t12:00:00+02:00"])
def test_times_with_zones_are_accepted(text: str) -> None:
    assert causes(annotated(heartbeat=text, heartbeat_timeout="1h30m5s")) == []


def test_a_start_timeout_is_a_duration() -> None:
    (cause,) = causes(annotated(start_timeout="soon"))
    assert cause.startswith("metadata.annotations[jobplane.dev/start-timeout]: Invalid value: ")
    assert causes(annotated(start_timeout="10m")) == []


def test_the_main_container_is_one_of_the_pods() -> None:
    (cause,) = causes(annotated(main_container="other"))
    assert cause.startswith("metadata.annotations[jobplane.dev/main-container]: Invalid value: ")
    assert cause.endswith("must name a container of the pods: main")
    assert causes(annotated(main_container="main")) == []


def test_the_jobs_of_a_cronjob_are_judged_before_there_are_any() -> None:
    cron_job = example(CRONJOBS)
    template = cron_job.spec.job_template
    wrong = replace(template, metadata=replace(template.metadata, annotations={AFTER: "A"}))
    found = CRONJOBS.validate(CRONJOBS.prepare(replace(cron_job, spec=replace(cron_job.spec, job_template=wrong))))
    assert [each.field for each in found] == [f"spec.jobTemplate.metadata.annotations[{AFTER}]"]


@pytest.mark.parametrize(
    "text",
    ["", "x1.5", "x1,max=8Gi", "x0.5,max=8Gi", "1.5,max=8Gi", "x1.5,max=", "x1.5,max=much", "x2,max=0", "x2,max=-1Gi"],
)
def test_a_wrong_rule_for_more_memory_is_refused(text: str) -> None:
    (cause,) = causes(annotated(oom_memory=text))
    assert cause.startswith("metadata.annotations[jobplane.dev/oom-memory]: Invalid value: ")
    assert cause.endswith("must be xFACTOR,max=MEMORY with a factor above 1, such as x1.5,max=8Gi")


def test_more_memory_needs_a_next_attempt() -> None:
    """With OnFailure the container restarts in the same pod, whose memory cannot change."""
    job = annotated(oom_memory="x1.5,max=8Gi")
    assert causes(job) == []
    template = replace(job.spec.template, spec=replace(job.spec.template.spec, restart_policy="OnFailure"))
    (cause,) = causes(replace(job, spec=replace(job.spec, template=template)))
    assert cause.endswith('requires pods with restartPolicy: "Never"')
