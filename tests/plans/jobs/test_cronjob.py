"""What a CronJob does next, as sentences: when Jobs start, what stands in their way, what is forgotten."""

from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.cronjob import CronJob, CronJobSpec, CronJobStatus, JobTemplateSpec
from app.kinds.batch.job import Job, JobSpec, JobStatus
from app.machinery.base import Condition, ObjectMeta, ObjectReference, OwnerReference
from app.plans.admission.pod_admission import Rules
from app.plans.admission.refusals import ANNOTATION
from app.plans.jobs import cronjob as cronjob_plan
from app.plans.plan import Create, Delete, Emit, Plan, SetStatus, Update
from tests.build import NOW, a_template
from tests.build import a_job as any_job
from tests.plans.admission.test_resource_quota import a_quota

MINUTE = timedelta(minutes=1)
CREATED = NOW - timedelta(seconds=30)  # NOW is noon: a scheduled time of */5 * * * *


def a_cron_job(status: CronJobStatus | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> CronJob:
    labels = {"app": "tick"}
    usual = {
        "schedule": "*/5 * * * *",
        "concurrency_policy": "Allow",
        "successful_jobs_history_limit": 3,
        "failed_jobs_history_limit": 1,
        "job_template": JobTemplateSpec(metadata=ObjectMeta(labels=labels), spec=JobSpec(template=a_template(labels))),
    }
    meta = {"name": "tick", "namespace": "default", "uid": "uid-of-tick", "creation_timestamp": CREATED}
    return CronJob(
        metadata=ObjectMeta(**(meta | (metadata or {}))),
        spec=CronJobSpec(**(usual | spec)),
        status=status or CronJobStatus(),
    )


def job(name: str, ended: str = "", at: datetime = NOW - MINUTE) -> Job:
    owner = OwnerReference(api_version="batch/v1", kind="CronJob", name="tick", uid="uid-of-tick", controller=True)
    conditions = (Condition(type=ended, status="True", last_transition_time=at),) if ended else ()
    done = at if ended == "Complete" else None
    status = JobStatus(start_time=at - MINUTE, completion_time=done, conditions=conditions)
    return any_job(status, {"name": name, "uid": f"uid-of-{name}", "owner_references": (owner,)})


def active(*names: str) -> tuple[ObjectReference, ...]:
    return tuple(
        ObjectReference(kind="Job", namespace="default", name=name, uid=f"uid-of-{name}", api_version="batch/v1")
        for name in names
    )


def planned(cron_job: CronJob, *jobs: Job, now: datetime = NOW, others: tuple[Job, ...] = (), **more: Any) -> Plan:
    numbers = count()
    by_name = {each.metadata.name: each for each in (*jobs, *others)}
    return cronjob_plan.plan(cron_job, jobs, now, find_job=by_name.get, uids=lambda: f"new-{next(numbers)}", **more)


def created(plan: Plan) -> list[str]:
    return [action.object.metadata.name for action in plan.actions if isinstance(action, Create)]


def deleted(plan: Plan) -> list[str]:
    return [action.object.metadata.name for action in plan.actions if isinstance(action, Delete)]


def said(plan: Plan) -> list[tuple[str, str]]:
    return [(action.reason, action.message) for action in plan.actions if isinstance(action, Emit)]


def status(plan: Plan) -> CronJobStatus | None:
    return next((action.object.status for action in plan.actions if isinstance(action, SetStatus)), None)


SLOT = f"tick-{int(NOW.timestamp()) // 60}"


def test_a_job_is_started_when_its_time_has_come() -> None:
    plan = planned(a_cron_job())

    (made,) = (action.object for action in plan.actions if isinstance(action, Create))
    assert made.metadata.name == SLOT
    assert made.metadata.labels == {"app": "tick"}
    assert made.metadata.annotations == {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-07-24T12:00:00Z"}
    (owner,) = made.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == (
        "CronJob",
        "uid-of-tick",
        True,
        True,
    )
    assert said(plan) == [("SuccessfulCreate", f"Created job {SLOT}")]
    kept = status(plan)
    assert kept
    assert kept.last_schedule_time == NOW
    assert [(each.name, each.uid, each.kind) for each in kept.active] == [(SLOT, "new-0", "Job")]
    assert plan.again_at == NOW + 5 * MINUTE


def test_the_scheduled_time_is_annotated_in_the_cron_jobs_own_zone() -> None:
    plan = planned(a_cron_job(time_zone="Asia/Kolkata"))

    (made,) = (action.object for action in plan.actions if isinstance(action, Create))
    assert made.metadata.annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"] == "2026-07-24T17:30:00+05:30"


def test_nothing_is_started_before_its_time() -> None:
    assert planned(a_cron_job(), now=NOW - timedelta(seconds=1)) == Plan(again_at=NOW)


def test_a_scheduled_time_starts_one_job() -> None:
    done = a_cron_job(CronJobStatus(last_schedule_time=NOW, active=active(SLOT)))

    assert planned(done, job(SLOT), now=NOW + MINUTE) == Plan(again_at=NOW + 5 * MINUTE)


def test_only_the_latest_of_many_missed_starts_is_started() -> None:
    plan = planned(a_cron_job(metadata={"creation_timestamp": NOW - timedelta(days=2)}))

    assert created(plan) == [SLOT]
    assert said(plan)[0] == (
        "TooManyMissedTimes",
        "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
    )


@pytest.mark.parametrize(("seconds", "starts"), [(60, False), (61, True), (None, True), (2**62, True)])
def test_a_start_may_be_late_only_by_the_deadline(seconds: int | None, starts: bool) -> None:
    plan = planned(a_cron_job(starting_deadline_seconds=seconds), now=NOW + MINUTE)

    assert bool(created(plan)) == starts
    assert plan.again_at == NOW + 5 * MINUTE


def test_nothing_is_started_while_suspended() -> None:
    assert planned(a_cron_job(suspend=True)) == Plan()


def test_nothing_is_started_for_one_that_is_being_deleted() -> None:
    assert planned(a_cron_job(metadata={"deletion_timestamp": NOW})) == Plan()


def test_a_changed_schedule_has_missed_nothing_before_it_was_changed() -> None:
    cron_job = a_cron_job(CronJobStatus(last_schedule_time=NOW - timedelta(hours=9)), schedule="0 10 * * *")

    assert created(planned(cron_job))
    assert not created(planned(cron_job, since=NOW - MINUTE))


def test_forbid_lets_the_running_job_finish_and_says_so() -> None:
    running = a_cron_job(CronJobStatus(active=active("tick-1")), concurrency_policy="Forbid")
    plan = planned(running, job("tick-1"))

    assert created(plan) == []
    assert status(plan) is None
    assert said(plan) == [
        (
            "JobAlreadyActive",
            "Not starting job because prior execution is running and concurrency policy is Forbid",
        )
    ]


def test_forbid_makes_up_for_the_missed_start_when_the_running_job_has_ended() -> None:
    running = a_cron_job(CronJobStatus(active=active("tick-1")), concurrency_policy="Forbid")

    plan = planned(running, job("tick-1", "Complete"), now=NOW + MINUTE)

    assert created(plan) == [SLOT]


def test_replace_deletes_the_running_job_first() -> None:
    running = a_cron_job(CronJobStatus(active=active("tick-1")), concurrency_policy="Replace")
    plan = planned(running, job("tick-1"))

    assert (deleted(plan), created(plan)) == (["tick-1"], [SLOT])
    kept = status(plan)
    assert kept
    assert [each.name for each in kept.active] == [SLOT]


def test_allow_starts_beside_the_running_job() -> None:
    plan = planned(a_cron_job(CronJobStatus(active=active("tick-1"))), job("tick-1"))

    kept = status(plan)
    assert kept
    assert [each.name for each in kept.active] == ["tick-1", SLOT]


def test_an_existing_job_of_that_name_that_is_ours_is_taken_in() -> None:
    plan = planned(a_cron_job(), job(SLOT))

    assert created(plan) == []
    kept = status(plan)
    assert kept
    assert [each.uid for each in kept.active] == [f"uid-of-{SLOT}"]


def test_a_second_scheduled_time_of_the_same_minute_is_taken_as_started() -> None:
    """As of @every 30s: Jobs are named by the minute."""
    plan = planned(a_cron_job(CronJobStatus(last_successful_time=NOW)), job(SLOT, "Complete"))

    kept = status(plan)
    assert kept
    assert (created(plan), kept.active, kept.last_schedule_time) == ([], (), NOW)


def test_an_existing_job_of_that_name_that_is_not_ours_is_left_alone() -> None:
    foreign = any_job(metadata={"name": SLOT, "uid": "foreign"})

    assert planned(a_cron_job(), others=(foreign,)) == Plan(again_at=NOW + 5 * MINUTE)


# --- what has become of them


QUIET = {"suspend": True}


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_job_that_has_ended_is_no_longer_active(condition: str) -> None:
    cron_job = a_cron_job(CronJobStatus(active=active("tick-1", "tick-2")), **QUIET)
    plan = planned(cron_job, job("tick-1", condition), job("tick-2"))

    kept = status(plan)
    assert kept
    assert kept.active == active("tick-2")
    assert said(plan) == [("SawCompletedJob", f"Saw completed job: tick-1, condition: {condition}")]
    assert kept.last_successful_time == (NOW - MINUTE if condition == "Complete" else None)


def test_the_last_success_stays_the_latest() -> None:
    later = NOW - timedelta(seconds=10)
    cron_job = a_cron_job(CronJobStatus(last_successful_time=later), **QUIET)

    assert planned(cron_job, job("tick-1", "Complete")) == Plan()


def test_an_active_job_that_is_gone_is_missed() -> None:
    plan = planned(a_cron_job(CronJobStatus(active=active("tick-1")), **QUIET))

    kept = status(plan)
    assert kept
    assert kept.active == ()
    assert said(plan) == [("MissingJob", "Active job went missing: tick-1")]


def test_a_running_job_that_nobody_started_is_spoken_of_and_not_adopted() -> None:
    plan = planned(a_cron_job(**QUIET), job("manual"))

    assert said(plan) == [("UnexpectedJob", "Saw a job that the controller did not create or forgot: manual")]
    assert status(plan) is None


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
@pytest.mark.parametrize(("limit", "left"), [(0, ""), (1, "c"), (2, "bc"), (5, "abc"), (None, "abc")])
def test_finished_jobs_beyond_the_limit_go_oldest_first(condition: str, limit: int | None, left: str) -> None:
    ended = [job(name, condition, NOW - MINUTE * age) for name, age in (("c", 1), ("a", 3), ("b", 2))]
    limits = {"successful_jobs_history_limit": limit, "failed_jobs_history_limit": limit}
    plan = planned(a_cron_job(**limits, **QUIET), *ended)

    assert sorted({"a", "b", "c"} - set(deleted(plan))) == list(left)


def test_a_success_is_remembered_even_if_its_job_is_not_kept() -> None:
    plan = planned(a_cron_job(successful_jobs_history_limit=0, **QUIET), job("a", "Complete"))

    kept = status(plan)
    assert deleted(plan) == ["a"]
    assert kept
    assert kept.last_successful_time == NOW - MINUTE


# --- what is no schedule


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"time_zone": "Nowhere/Land"}, "UnknownTimeZone", id="a zone that nobody knows"),
        pytest.param({"schedule": "every day"}, "UnparseableSchedule", id="a text that is no schedule"),
        pytest.param({"schedule": "0 0 31 2 *"}, "InvalidSchedule", id="a day that never comes"),
    ],
)
def test_what_cannot_be_scheduled_is_said_once_and_waits_for_a_change(spec: dict[str, str], reason: str) -> None:
    plan = planned(a_cron_job(**spec))

    assert [each for each, _ in said(plan)] == [reason]
    assert (created(plan), status(plan), plan.again_at) == ([], None, None)


def test_the_example_of_a_plan_writes_one_status() -> None:
    """However much happens at once."""
    cron_job = a_cron_job(CronJobStatus(active=active("gone", "done")), concurrency_policy="Replace")
    plan = planned(cron_job, job("done", "Complete"), replace(job("manual")))

    assert sum(isinstance(action, SetStatus) for action in plan.actions) == 1
    assert created(plan) == [SLOT]


# --- what may be created


def a_full_quota(used: str = "1") -> Rules:
    return Rules(quotas=[a_quota({"count/jobs.batch": "1"}, {"count/jobs.batch": used})])


REFUSAL = (
    f'Error creating job: jobs.batch "{SLOT}" is forbidden: '
    "exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1"
    "; tried again as soon as the quota has room"
)


def test_a_job_is_charged_to_the_quotas_of_its_namespace() -> None:
    plan = planned(a_cron_job(), rules=a_full_quota("0"))

    assert created(plan) == [SLOT]
    (quota,) = (action.object for action in plan.actions if isinstance(action, Update))
    assert quota.status.used == {"count/jobs.batch": "1"}


def test_a_job_beyond_a_quota_is_told_of_and_tried_again() -> None:
    plan = planned(a_cron_job(), rules=a_full_quota())

    assert (created(plan), said(plan)) == ([], [("FailedCreate", REFUSAL)])
    (kept,) = (action.object for action in plan.actions if isinstance(action, SetStatus))
    assert kept.metadata.annotations == {ANNOTATION: "1;2026-07-24T12:00:00Z"}
    assert (kept.status, plan.again_at) == (CronJobStatus(), NOW + timedelta(seconds=1))

    quiet = planned(kept, rules=a_full_quota())
    assert quiet == Plan(again_at=NOW + timedelta(seconds=1))

    later = planned(kept, rules=a_full_quota("0"), now=NOW + MINUTE)
    (started,) = (action.object for action in later.actions if isinstance(action, SetStatus))
    assert created(later) == [SLOT]
    assert started.metadata.annotations == {}


@pytest.mark.parametrize("garbage", ["3;9999-12-31T23:59:59Z", "3;0001-01-01T00:00:00+14:00", f"{'9' * 4300};", "x"])
def test_a_garbled_annotation_is_no_earlier_refusal(garbage: str) -> None:
    cron_job = a_cron_job()
    noted = replace(cron_job, metadata=replace(cron_job.metadata, annotations={ANNOTATION: garbage}))
    plan = planned(noted, rules=a_full_quota())

    assert (said(plan), plan.again_at) == ([("FailedCreate", REFUSAL)], NOW + timedelta(seconds=1))


def test_replace_ends_the_running_job_even_if_the_next_is_refused() -> None:
    running = a_cron_job(CronJobStatus(active=active("tick-1")), concurrency_policy="Replace")
    plan = planned(running, job("tick-1"), rules=a_full_quota())

    kept = status(plan)
    assert (deleted(plan), created(plan)) == (["tick-1"], [])
    assert kept
    assert (kept.active, kept.last_schedule_time) == ((), None)


def test_a_job_that_would_be_invalid_under_its_name_is_refused() -> None:
    spec = JobSpec(template=a_template({"app": "tick"}), completion_mode="Indexed", completions=1000)
    plan = planned(a_cron_job(metadata={"name": "t" * 52}, job_template=JobTemplateSpec(spec=spec)))

    ((reason, message),) = said(plan)
    assert (created(plan), reason) == ([], "FailedCreate")
    assert "will not able to create pod with invalid DNS label" in message
