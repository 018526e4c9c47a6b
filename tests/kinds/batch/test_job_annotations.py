"""Annotations of Jobs that mean something here: which are refused, and where the refusal points."""

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job import Job
from app.kinds.batch.job_annotations import AFTER, Dependency, parse_after
from tests.build import a_job


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
