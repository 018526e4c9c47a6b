"""The Job plan, situation by situation."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.base import Condition, OwnerReference
from app.kinds.job import Job, JobStatus, UncountedTerminatedPods
from app.kinds.pod import Pod
from app.plans.job import let_go, plan
from app.plans.plan import Delete, Emit, Plan, SetStatus, Update
from app.plans.template import TRACKING
from tests.build import (
    LONG_AGO,
    NOW,
    a_job,
    a_pod,
    a_template,
    created,
    deleted,
    names,
    pods,
    said,
    status_of,
    stored,
    told,
    updated,
    with_status,
)

TWO_OF_FIVE = {"parallelism": 2, "completions": 5}
WORK_QUEUE = {"parallelism": 2, "completions": None}
INDEXED = {"completion_mode": "Indexed", "parallelism": 2, "completions": 4}
WAITS_FOR_END = {"pod_replacement_policy": "Failed"}


def planned(job: Job, *seen: Pod) -> Plan:
    return plan(job, seen, NOW, names())


def indexes(pods: list[Pod]) -> list[int]:
    return [int(pod.metadata.annotations["batch.kubernetes.io/job-completion-index"]) for pod in pods]


@pytest.mark.parametrize(
    ("spec", "phases", "expected"),
    [
        pytest.param(TWO_OF_FIVE, "", "create 2", id="starts as many as may run at once"),
        pytest.param(TWO_OF_FIVE, "rs", "create 1", id="replaces a pod that succeeded"),
        pytest.param(TWO_OF_FIVE, "rssss", "nothing", id="runs no more than are still needed"),
        pytest.param(TWO_OF_FIVE, "rrr", "delete 1", id="stops what is too many"),
        pytest.param(TWO_OF_FIVE, "sssss", "Complete", id="completes"),
        pytest.param(TWO_OF_FIVE, "sssssr", "delete 1, SuccessCriteriaMet", id="stops the rest when enough succeeded"),
        pytest.param(TWO_OF_FIVE, "ssssst", "SuccessCriteriaMet", id="completes only when the last pod has ended"),
        pytest.param(TWO_OF_FIVE, "uu", "nothing", id="counts a pod of unknown phase as active"),
        pytest.param(TWO_OF_FIVE | {"suspend": True}, "", "Suspended", id="suspended says so"),
        pytest.param(TWO_OF_FIVE | {"suspend": True}, "rr", "delete 2, Suspended", id="suspended runs nothing"),
        pytest.param(TWO_OF_FIVE | {"suspend": True}, "sssss", "Complete", id="suspended completes all the same"),
        pytest.param({"suspend": True, "backoff_limit": 0}, "f", "Failed", id="suspended fails all the same"),
        pytest.param({"parallelism": 0}, "", "nothing", id="no parallelism runs nothing"),
        pytest.param({"parallelism": 0}, "r", "delete 1", id="no parallelism stops what runs"),
        pytest.param({"completions": 0}, "", "Complete", id="no completions are complete at once"),
        pytest.param({"completions": 0, "suspend": True}, "", "Complete", id="no completions complete while suspended"),
        pytest.param({"backoff_limit": 1}, "f", "create 1", id="retries a failure"),
        pytest.param({"backoff_limit": 1}, "ff", "Failed", id="gives up past the limit"),
        pytest.param({"backoff_limit": 1}, "ffr", "delete 1, FailureTarget", id="stops the rest when it gives up"),
        pytest.param({"backoff_limit": 1}, "fft", "FailureTarget", id="fails only when the last pod has ended"),
        pytest.param({"backoff_limit": 0}, "fs", "Failed", id="past the limit a success comes too late"),
        pytest.param(WORK_QUEUE, "", "create 2", id="work queue starts all at once"),
        pytest.param(WORK_QUEUE, "rf", "create 1", id="work queue replaces failures while none succeeded"),
        pytest.param(WORK_QUEUE, "sr", "nothing", id="work queue drains after a success"),
        pytest.param(
            WORK_QUEUE | {"parallelism": 1}, "srrr", "nothing", id="work queue drains whatever parallelism says"
        ),
        pytest.param(WORK_QUEUE, "s", "Complete", id="work queue completes when drained"),
        pytest.param(WORK_QUEUE, "f", "create 2", id="work queue with failures only goes on"),
        pytest.param({}, "t", "create 1", id="replaces a deleted pod at once"),
        pytest.param({"backoff_limit": 0}, "t", "FailureTarget", id="a deleted pod is a failure at once"),
        pytest.param(WAITS_FOR_END, "t", "nothing", id="replaces a deleted pod when it has ended, if so asked"),
        pytest.param(WAITS_FOR_END | {"backoff_limit": 0}, "t", "nothing", id="a deleted pod may still succeed"),
        pytest.param(WAITS_FOR_END | TWO_OF_FIVE, "t", "create 1", id="waits for no more than are ending"),
    ],
)
def test_plan(spec: dict[str, Any], phases: str, expected: str) -> None:
    assert said(planned(a_job(**spec), *pods(phases))) == expected


@pytest.mark.parametrize(
    ("spec", "phases", "expected"),
    [
        pytest.param(TWO_OF_FIVE, "", {"active": 2}, id="new pods are active"),
        pytest.param(TWO_OF_FIVE, "rrsf", {"active": 2, "succeeded": 1, "failed": 1}, id="ended pods are counted"),
        pytest.param(TWO_OF_FIVE, "rrSF", {"active": 2}, id="counted pods are not counted again"),
        pytest.param(TWO_OF_FIVE, "rrrr", {"active": 2, "terminating": 2}, id="deleted pods are terminating at once"),
        pytest.param(TWO_OF_FIVE, "rrt", {"active": 2, "terminating": 1, "failed": 1}, id="a deleted pod is failed"),
        pytest.param(TWO_OF_FIVE | WAITS_FOR_END, "rt", {"active": 1, "terminating": 1}, id="or not, before it ended"),
        pytest.param(
            TWO_OF_FIVE | {"suspend": True}, "rr", {"terminating": 2}, id="pods stopped by suspension are not failed"
        ),
        pytest.param(
            {"parallelism": 3, "backoff_limit": 0}, "rrf", {"failed": 3, "terminating": 2}, id="killed pods are failed"
        ),
        pytest.param(
            {"backoff_limit": 0} | WAITS_FOR_END,
            "ft",
            {"failed": 2, "terminating": 1},
            id="so are pods that were ending",
        ),
    ],
)
def test_status(spec: dict[str, Any], phases: str, expected: dict[str, int]) -> None:
    status = status_of(planned(a_job(**spec), *pods(phases)))

    figures = {"active": 0, "terminating": 0, "succeeded": 0, "failed": 0, "ready": 0} | expected
    assert {name: getattr(status, name) for name in figures} == figures
    assert status.uncounted_terminated_pods == UncountedTerminatedPods()


@pytest.mark.parametrize(
    ("spec", "phases", "completed", "starts", "stops"),
    [
        pytest.param({}, "", "", [0, 1], [], id="starts at the lowest index"),
        pytest.param({}, "r1", "", [0], [], id="fills the gap below"),
        pytest.param({}, "s0r1", "0", [2], [], id="goes on after a success"),
        pytest.param({}, "f0r1", "", [0], [], id="repeats a failed index"),
        pytest.param({"parallelism": 4}, "s0s2", "0,2", [1, 3], [], id="starts all that are missing"),
        pytest.param({}, "s0s1s2s3", "0-3", [], [], id="is done when every index is"),
        pytest.param({}, "s0s0s0r1r2", "0", [], [], id="counts an index once"),
        pytest.param({"parallelism": 4}, "p0r0r1r2r3", "", [], [0], id="keeps the better of two pods of an index"),
        pytest.param({}, "r7", "", [], [7], id="stops a pod beyond the last index"),
        pytest.param({}, "s7r0r1", "", [], [], id="counts no success beyond the last index"),
        pytest.param({"completions": 2}, "r0r1", "", [], [], id="runs what it has"),
        pytest.param(WAITS_FOR_END, "t0r1", "", [], [], id="waits for an index that is ending"),
        pytest.param(WAITS_FOR_END | {"parallelism": 3}, "t0r1", "", [2], [], id="starts others meanwhile"),
    ],
)
def test_indexed(spec: dict[str, Any], phases: str, completed: str, starts: list[int], stops: list[int]) -> None:
    result = planned(a_job(**(INDEXED | spec)), *pods(phases))

    assert (indexes(created(result)), indexes(deleted(result))) == (starts, stops)
    assert status_of(result).completed_indexes == completed
    assert status_of(result).succeeded == len(set(phases.split("s")[1:]) & {"0", "1", "2", "3"}) or completed == "0"


def test_an_indexed_pod_without_index_is_stopped() -> None:
    result = planned(a_job(**INDEXED), *pods("r"))

    assert said(result) == "delete 1"


def test_an_ended_pod_without_index_counts_for_nothing() -> None:
    result = planned(a_job(**INDEXED), *pods("sf"))

    assert (status_of(result).succeeded, status_of(result).failed) == (0, 0)
    assert [pod.metadata.finalizers for pod in updated(result)] == [(), ()]


@pytest.mark.parametrize(
    ("completions", "completed", "expected"),
    [
        pytest.param(3, "0-2,5", "0-2", id="down: what is beyond is forgotten, the rest is done"),
        pytest.param(0, "0-2", "", id="down to nothing"),
    ],
)
def test_an_elastic_job_is_clipped(completions: int, completed: str, expected: str) -> None:
    job = a_job(JobStatus(completed_indexes=completed, succeeded=4), **(INDEXED | {"completions": completions}))

    status = status_of(planned(job))

    assert (status.completed_indexes, status.succeeded) == (expected, completions)
    assert status.conditions[-1].type == "Complete"


def test_an_elastic_job_runs_a_forgotten_index_again() -> None:
    job = a_job(JobStatus(completed_indexes="0", succeeded=1), **(INDEXED | {"completions": 2}))

    assert indexes(created(planned(job))) == [1]


def test_a_counted_pod_loses_its_finalizer_in_the_same_plan() -> None:
    (pod,) = pods("s")
    result = planned(a_job(), pod)

    (update,) = [each for each in result.actions if isinstance(each, Update)]
    assert update.old is pod
    assert update.object == replace(pod, metadata=replace(pod.metadata, finalizers=()))
    assert status_of(result).succeeded == 1


def test_a_pod_is_freed_before_it_is_deleted() -> None:
    (pod,) = pods("r")
    (delete,) = [each for each in planned(a_job(suspend=True), pod).actions if isinstance(each, Delete)]

    assert delete.object.metadata.finalizers == ()
    assert delete.old is pod


def test_a_job_with_an_outcome_lets_go_of_pods_that_are_ending() -> None:
    result = planned(a_job(backoff_limit=0, **WAITS_FOR_END), *pods("ft"))

    assert [pod.metadata.finalizers for pod in updated(result)] == [(), ()]


def test_others_finalizers_stay() -> None:
    (pod,) = pods("s")
    theirs = replace(pod, metadata=replace(pod.metadata, finalizers=("theirs.io/x", TRACKING)))

    assert updated(planned(a_job(), theirs))[0].metadata.finalizers == ("theirs.io/x",)


# Ends.


def test_an_end_repeats_its_reason_and_message() -> None:
    status = status_of(planned(a_job(backoff_limit=0), *pods("f")))

    said = [(each.type, each.status, each.reason, each.message) for each in status.conditions]
    why = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert said == [("FailureTarget", *why), ("Failed", *why)]
    assert status.completion_time is None


def test_completion_has_a_time_and_a_reason() -> None:
    status = status_of(planned(a_job(), *pods("s")))

    said = [(each.type, each.reason, each.message) for each in status.conditions]
    why = ("CompletionsReached", "Reached expected number of succeeded pods")
    assert said == [("SuccessCriteriaMet", *why), ("Complete", *why)]
    assert status.completion_time == status.conditions[-1].last_transition_time == NOW


@pytest.mark.parametrize(
    ("interim", "terminal", "event"),
    [("SuccessCriteriaMet", "Complete", "Completed"), ("FailureTarget", "Failed", "Why")],
)
def test_an_outcome_once_written_stands(interim: str, terminal: str, event: str) -> None:
    outcome = Condition(type=interim, status="True", reason="Why", message="because", last_transition_time=LONG_AGO)
    job = a_job(JobStatus(conditions=(outcome,), start_time=LONG_AGO))

    result = planned(job, *pods("S"))

    first, last = status_of(result).conditions
    assert first == outcome
    assert (last.type, last.reason, last.message) == (terminal, "Why", "because")
    assert told(result) == [event]


def test_after_success_is_certain_the_remaining_pods_count_for_nothing() -> None:
    outcome = Condition(type="SuccessCriteriaMet", status="True", reason="SuccessPolicy")

    result = planned(a_job(JobStatus(conditions=(outcome,)), parallelism=3, completions=5), *pods("rrt"))

    assert said(result) == "delete 2, SuccessCriteriaMet"
    assert (status_of(result).terminating, status_of(result).failed) == (3, 1)


@pytest.mark.parametrize("terminal", ["Complete", "Failed"])
def test_a_finished_job_only_lets_go_of_its_pods(terminal: str) -> None:
    job = a_job(JobStatus(conditions=(Condition(type=terminal, status="True"),)))
    theirs = a_pod("Failed", job=a_job(metadata={"uid": "another"}))

    result = planned(job, *pods("rS"), theirs)

    assert [type(each) for each in result.actions] == [Update]
    assert updated(result)[0].metadata.finalizers == ()


def test_pods_of_a_job_that_is_gone_are_let_go() -> None:
    assert [each.object.metadata.finalizers for each in let_go(None, pods("rS"))] == [()]


@pytest.mark.parametrize(
    ("manager", "expected"),
    [(None, "create 1"), ("kubernetes.io/job-controller", "create 1"), ("acme.io/other", "nothing")],
)
def test_a_job_of_another_manager_is_left_alone(manager: str | None, expected: str) -> None:
    assert said(planned(a_job(managed_by=manager))) == expected


def test_a_job_being_deleted_neither_starts_nor_stops_pods_and_lets_go_of_all() -> None:
    job = a_job(metadata={"deletion_timestamp": NOW}, parallelism=3, completions=5)

    result = planned(job, *pods("rs"))

    assert {type(each) for each in result.actions} == {Update, SetStatus}
    assert [pod.metadata.finalizers for pod in updated(result)] == [(), ()]


def test_an_unknown_completion_mode_is_said_and_nothing_else() -> None:
    result = planned(a_job(completion_mode="Fuzzy"))

    assert told(result) == ["UnknownCompletionMode"]
    assert len(result.actions) == 1


# Limits.


@pytest.mark.parametrize(
    ("limit", "restarts", "expected"),
    [
        pytest.param(0, (0,), "nothing", id="no restart is none"),
        pytest.param(0, (1,), "delete 1, FailureTarget", id="limit 0 allows none"),
        pytest.param(3, (2,), "nothing", id="below the limit"),
        pytest.param(3, (2, 1), "delete 2, FailureTarget", id="at the limit, over all pods"),
    ],
)
def test_restarts_in_place_use_up_the_limit(limit: int, restarts: tuple[int, ...], expected: str) -> None:
    template = a_template(restart_policy="OnFailure")
    job = a_job(backoff_limit=limit, parallelism=len(restarts), completions=5, template=template)
    seen = [a_pod(name=f"pi-{number}", restarts=each) for number, each in enumerate(restarts)]

    assert said(planned(job, *seen)) == expected


def test_restarts_do_not_matter_to_pods_that_never_restart() -> None:
    assert said(planned(a_job(backoff_limit=0), a_pod(restarts=3))) == "nothing"


@pytest.mark.parametrize(
    ("age", "spec", "expected"),
    [
        pytest.param(59, {}, "nothing", id="in time"),
        pytest.param(60, {}, "delete 1, FailureTarget", id="overdue"),
        pytest.param(60, {"suspend": True}, "delete 1, Suspended", id="suspended is never overdue"),
    ],
)
def test_deadline(age: int, spec: dict[str, Any], expected: str) -> None:
    start = NOW - timedelta(seconds=age)
    job = a_job(JobStatus(start_time=start), active_deadline_seconds=60, **spec)

    assert said(planned(job, *pods("r"))) == expected


def test_a_deadline_of_nothing_fails_at_once() -> None:
    assert said(planned(a_job(active_deadline_seconds=0))) == "Failed"


def test_it_looks_again_at_the_deadline() -> None:
    assert planned(a_job(active_deadline_seconds=60)).again_at == NOW + timedelta(seconds=60)


def test_too_many_failures_are_told_before_the_deadline() -> None:
    job = a_job(JobStatus(start_time=LONG_AGO), active_deadline_seconds=1, backoff_limit=0)

    assert status_of(planned(job, *pods("f"))).conditions[-1].reason == "BackoffLimitExceeded"


# Suspending and resuming.


def test_suspending_clears_the_start_time() -> None:
    result = planned(a_job(JobStatus(start_time=LONG_AGO), suspend=True), *pods("r"))

    (condition,) = status_of(result).conditions
    assert (condition.reason, condition.message) == ("JobSuspended", "Job suspended")
    assert status_of(result).start_time is None
    assert told(result) == ["SuccessfulDelete", "Suspended"]


@pytest.mark.parametrize("start", [None, LONG_AGO], ids=["cleared", "left by an older version"])
def test_resuming_starts_the_clock_anew(start: Any) -> None:
    suspended = Condition(type="Suspended", status="True", reason="JobSuspended")
    job = a_job(JobStatus(conditions=(suspended,), start_time=start), active_deadline_seconds=60)

    result = planned(job)

    (condition,) = status_of(result).conditions
    assert (condition.status, condition.reason, condition.message) == ("False", "JobResumed", "Job resumed")
    assert status_of(result).start_time == NOW
    assert result.again_at == NOW + timedelta(seconds=60)
    assert told(result) == ["SuccessfulCreate", "Resumed"]


def test_the_clock_starts_once_for_a_job_that_ends_as_it_is_resumed() -> None:
    suspended = Condition(type="Suspended", status="True", reason="JobSuspended")
    job, seen = a_job(JobStatus(conditions=(suspended,)), completions=0), pods("T")
    job = stored(planned(job, *seen), job)

    assert plan(job, seen, NOW + timedelta(seconds=1), names()) == Plan()


def test_a_job_that_never_was_suspended_says_nothing_of_it() -> None:
    assert status_of(planned(a_job(suspend=False))).conditions == ()


# Whose pods.


def an_orphan(phase: str = "Running", **labels: str) -> Pod:
    pod = a_pod(phase)
    meta = replace(pod.metadata, owner_references=(), finalizers=(), labels=pod.metadata.labels | labels)
    return replace(pod, metadata=meta)


def test_an_orphan_that_matches_is_adopted() -> None:
    orphan = an_orphan()
    result = planned(a_job(), orphan)

    (update,) = [each for each in result.actions if isinstance(each, Update)]
    assert update.old is orphan
    assert update.object.metadata.owner_references == (
        OwnerReference(
            api_version="batch/v1",
            kind="Job",
            name="pi",
            uid="uid-of-pi",
            controller=True,
            block_owner_deletion=True,
        ),
    )
    assert update.object.metadata.finalizers == (TRACKING,)
    assert said(result) == "nothing"


def test_an_orphan_that_has_ended_is_adopted_and_counted_in_one() -> None:
    (pod,) = updated(planned(a_job(), an_orphan("Succeeded")))

    assert pod.metadata.owner_references
    assert pod.metadata.finalizers == ()


@pytest.mark.parametrize(
    "orphan",
    [
        pytest.param(an_orphan(**{"batch.kubernetes.io/controller-uid": "another"}), id="of other labels"),
        pytest.param(
            replace(an_orphan(), metadata=replace(an_orphan().metadata, deletion_timestamp=NOW)), id="deleted"
        ),
        pytest.param(a_pod(job=a_job(metadata={"uid": "another"})), id="of another job"),
    ],
)
def test_no_other_pod_is_touched(orphan: Pod) -> None:
    result = planned(a_job(parallelism=0), orphan)

    assert updated(result) == []
    assert status_of(result).active == 0


def test_a_pod_that_matches_no_more_is_released_and_replaced() -> None:
    (pod,) = pods("r")
    strayed = replace(pod, metadata=replace(pod.metadata, labels={}))

    result = planned(a_job(), strayed)

    (released,) = updated(result)
    assert (released.metadata.owner_references, released.metadata.finalizers) == ((), ())
    assert said(result) == "create 1"


# Which pods go first.


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"node_name": ""}, {}, id="one without a node"),
        pytest.param({"phase": "Pending"}, {}, id="one that does not run yet"),
        pytest.param({}, {"ready": True}, id="one that is not ready"),
        pytest.param({"restarts": 3}, {"restarts": 1}, id="one that restarts more often"),
    ],
)
def test_stops_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    pair = [a_pod(name="second", **second), a_pod(name="first", **first)]

    assert [pod.metadata.name for pod in deleted(planned(a_job(), *pair))] == ["first"]


@pytest.mark.parametrize("ready", [True, False], ids=["that is ready for less time", "that is younger"])
def test_stops_first_the_pod(ready: bool) -> None:
    old = a_pod(name="old", ready=ready)
    young = a_pod(name="young", ready=ready)
    since = tuple(replace(each, last_transition_time=NOW) for each in young.status.conditions)
    young = replace(
        young,
        metadata=replace(young.metadata, creation_timestamp=NOW),
        status=replace(young.status, conditions=since),
    )

    assert [pod.metadata.name for pod in deleted(planned(a_job(), old, young))] == ["young"]


# Many.


def test_starts_at_most_500_at_a_time_and_looks_again_at_once() -> None:
    result = planned(a_job(parallelism=1200, completions=2000))

    assert len(created(result)) == 500
    assert result.again_at == NOW
    assert status_of(result).active == 500


@pytest.mark.parametrize("spec", [{"suspend": True}, {"parallelism": 0}, {"active_deadline_seconds": 0}])
def test_stops_at_most_500_at_a_time_and_looks_again_at_once(spec: dict[str, Any]) -> None:
    result = planned(a_job(**({"parallelism": 600, "completions": 600} | spec)), *pods("r" * 600))

    assert len(deleted(result)) == 500
    assert result.again_at == NOW
    assert (status_of(result).active, status_of(result).terminating) == (100, 500)


def test_a_long_stop_does_not_finish_early() -> None:
    job = a_job(parallelism=600, completions=600, active_deadline_seconds=0)

    result = planned(job, *pods("r" * 600))

    assert [each.type for each in status_of(result).conditions] == ["FailureTarget"]


def test_many_events_are_folded_into_one() -> None:
    events = [each for each in planned(a_job(parallelism=30, completions=30)).actions if isinstance(each, Emit)]

    assert len(events) == 11
    assert events[0].message == "Created pod: pi-new0"
    assert (events[-1].count, events[-1].message) == (20, "(combined from similar events): Created pod: pi-new29")


# Events and silence.


@pytest.mark.parametrize(
    ("spec", "phases", "expected"),
    [
        pytest.param({}, "", "Normal SuccessfulCreate Created pod: pi-new0", id="of a start"),
        pytest.param({"parallelism": 0}, "r", "Normal SuccessfulDelete Deleted pod: pi-0", id="of a stop"),
        pytest.param({}, "s", "Normal Completed Job completed", id="of completion"),
        pytest.param(
            {"backoff_limit": 0},
            "f",
            "Warning BackoffLimitExceeded Job has reached the specified backoff limit",
            id="of failure",
        ),
        pytest.param({"backoff_limit": 0}, "ft", "", id="not of a failure that is only decided"),
        pytest.param(
            {},
            "ss",
            "Warning TooManySucceededPods Too many succeeded pods running after completion count reached, "
            "Normal Completed Job completed",
            id="of more successes than asked for",
        ),
    ],
)
def test_events(spec: dict[str, Any], phases: str, expected: str) -> None:
    emits = [each for each in planned(a_job(**spec), *pods(phases)).actions if isinstance(each, Emit)]

    assert ", ".join(f"{each.type} {each.reason} {each.message}" for each in emits) == expected


def test_nothing_changed_means_nothing_written() -> None:
    job, seen = a_job(**TWO_OF_FIVE), pods("rrSF")
    job = stored(planned(job, *seen), job)

    assert planned(job, *seen) == Plan()


def test_ready_pods_are_counted() -> None:
    assert status_of(planned(a_job(parallelism=2), a_pod(ready=True), a_pod(name="pi-1"))).ready == 1


def test_a_ready_pod_that_is_stopped_is_ready_no_more() -> None:
    status = status_of(planned(with_status(a_job(suspend=True), ready=1), a_pod(ready=True)))

    assert (status.active, status.ready) == (0, 0)
