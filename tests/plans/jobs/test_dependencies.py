"""A Job that waits for others: what it waits for, when it starts, and when it never will."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus, condition, status_word
from app.kinds.batch.job_annotations import AFTER
from app.machinery.base import Condition
from app.plans.jobs.dependencies import CONDITION, SEEN, find_cycle
from app.plans.jobs.job import plan
from app.plans.plan import Plan
from tests.build import LONG_AGO, NOW, a_job, created, names, stored, told

COMPLETE, FAILED = {"Complete": "CompletionsReached"}, {"Failed": "BackoffLimitExceeded"}


def a_waiting_job(after: str, name: str = "pi", seen: str = "", **spec: Any) -> Job:
    annotations = {AFTER: after} | ({SEEN: seen} if seen else {})
    conditions = (Condition(type=CONDITION, status="False", last_transition_time=LONG_AGO),) if seen else ()
    job = a_job(JobStatus(conditions=conditions), **spec)
    return replace(job, metadata=replace(job.metadata, name=name, uid=f"uid-of-{name}", annotations=annotations))


def another(name: str, ended: dict[str, str] | None = None) -> Job:
    ends = tuple(Condition(type=type_, status="True", reason=reason) for type_, reason in (ended or {}).items())
    job = a_job(JobStatus(conditions=ends))
    return replace(job, metadata=replace(job.metadata, name=name, uid=f"uid-of-{name}"))


def planned(job: Job, *others: Job) -> Plan:
    by_name = {each.metadata.name: each for each in others}
    return plan(job, [], NOW, names(), find=by_name.get)


def reason_of(job: Job) -> str:
    failed = condition(job, "Failed")
    return failed.reason if failed else ""


def test_a_job_waits_without_pods_and_says_for_what() -> None:
    job = a_waiting_job("a,b:any,c:failed")

    made = planned(job, another("a"), another("b"))
    after = stored(made, job)

    assert created(made) == []
    waits = condition(after, CONDITION)
    assert waits is not None
    assert (waits.status, waits.reason) == ("False", "WaitingForJobs")
    assert waits.message == "Job waits for Job a to complete, for Job b to end, for Job c to be created and to fail"
    assert (after.status.start_time, after.status.active) == (None, 0)
    assert told(made) == ["WaitingForJobs"]
    assert status_word(after) == "Waiting"
    assert plan(after, [], NOW, names(), find={"a": another("a"), "b": another("b")}.get).actions == ()


@pytest.mark.parametrize("spec", [{"completions": 0}, {"active_deadline_seconds": 1}], ids=["complete", "overdue"])
def test_a_job_that_waits_does_not_end(spec: dict[str, Any]) -> None:
    job = a_waiting_job("a", **spec)

    assert [each.type for each in stored(planned(job), job).status.conditions] == [CONDITION]


@pytest.mark.parametrize(
    ("after", "ended", "starts"),
    [
        ("a", COMPLETE, True),
        ("a:ok", COMPLETE, True),
        ("a:any", COMPLETE, True),
        ("a:failed", COMPLETE, False),
        ("a", FAILED, False),
        ("a:ok", FAILED, False),
        ("a:any", FAILED, True),
        ("a:failed", FAILED, True),
    ],
)
def test_the_end_of_the_other_decides(after: str, ended: dict[str, str], starts: bool) -> None:
    job = a_waiting_job(after, seen="a=uid-of-a")

    made = planned(job, another("a", ended))

    after_plan = stored(made, job)
    assert len(created(made)) == int(starts)
    assert reason_of(after_plan) == ("" if starts else "DependencyNeverSatisfied")
    assert SEEN not in after_plan.metadata.annotations or not starts
    met = condition(after_plan, CONDITION)
    assert met is not None
    assert met.status == str(starts)


def test_a_job_that_can_never_start_says_why_and_has_finished() -> None:
    job = a_waiting_job("a")

    made = planned(job, another("a", FAILED))

    conditions = stored(made, job).status.conditions
    assert [each.type for each in conditions] == ["FailureTarget", "Finished", "Failed"]
    assert conditions[-1].message == "Job can never start: Job a failed (BackoffLimitExceeded)"


def test_an_awaited_job_that_is_gone_was_deleted() -> None:
    job, ending = a_waiting_job("a", seen="a=uid-of-a"), a_waiting_job("a:any", seen="a=uid-of-a")

    assert reason_of(stored(planned(job), job)) == "DependencyNeverSatisfied"
    assert len(created(planned(ending))) == 1


def test_an_awaited_job_that_is_met_stays_so_when_it_is_gone() -> None:
    job = a_waiting_job("a,b")
    waiting = stored(planned(job, another("a", COMPLETE), another("b")), job)
    assert waiting.metadata.annotations[SEEN] == "a=met,b=uid-of-b"

    made = planned(waiting, another("b", COMPLETE))

    assert len(created(made)) == 1


def test_a_job_that_has_started_waits_for_nothing_any_more() -> None:
    job = a_waiting_job("a")
    started = stored(planned(job, another("a", COMPLETE)), job)

    assert reason_of(stored(planned(started, another("a", FAILED)), started)) == ""
    assert condition(stored(planned(started), started), CONDITION) == condition(started, CONDITION)


def test_without_the_annotation_a_job_starts_at_once() -> None:
    job = a_waiting_job("a", seen="a=uid-of-a")
    freed = replace(job, metadata=replace(job.metadata, annotations={SEEN: "a=uid-of-a"}))

    made = planned(freed, another("a"))

    assert len(created(made)) == 1
    assert stored(made, freed).metadata.annotations == {}


def test_a_suspended_job_waits_too() -> None:
    job = a_waiting_job("a", suspend=True)

    waiting = stored(planned(job, another("a")), job)
    assert [(each.type, each.status) for each in waiting.status.conditions] == [
        ("Suspended", "True"),
        (CONDITION, "False"),
    ]
    met = planned(waiting, another("a", COMPLETE))
    assert created(met) == []


def test_jobs_that_wait_for_each_other_fail() -> None:
    first, second, third = a_waiting_job("c", "a"), a_waiting_job("a", "b"), a_waiting_job("b:any", "c")

    made = planned(third, first, second)

    assert reason_of(stored(made, third)) == "DependencyCycle"
    message = stored(made, third).status.conditions[-1].message
    assert message == "Job can never start: Jobs wait for each other: c after b after a after c"


def test_a_search_for_a_cycle_passes_each_job_once_and_ends() -> None:
    """Of a lattice: each Job after two, which both are after the same two."""
    others = {f"{side}{n}": a_waiting_job(f"l{n + 1},r{n + 1}", f"{side}{n}") for n in range(400) for side in "lr"}
    looked: list[str] = []

    def find(name: str) -> Job | None:
        looked.append(name)
        return others.get(name)

    assert find_cycle(a_waiting_job("l0,r0"), find) == []
    assert len(looked) == len(set(looked)) == 802
