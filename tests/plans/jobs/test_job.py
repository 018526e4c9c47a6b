"""The Job plan, situation by situation."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus, UncountedTerminatedPods
from app.kinds.pod.pod import Pod
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.job import plan
from app.plans.plan import Delete, Emit, Plan, Update
from tests.build import (
    NOW,
    a_job,
    a_pod,
    created,
    deleted,
    names,
    pods,
    said,
    status_of,
    stored,
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


@pytest.mark.parametrize(
    ("specs", "letters", "is_settled"),
    [
        ({}, "", True),  # creates its pods
        ({"parallelism": 1}, "s", True),  # has ended
        ({"parallelism": 1, "ttl_seconds_after_finished": 5}, "s", False),  # and is to be deleted
        ({}, "f", False),  # backs off
        ({"suspend": True}, "r", False),  # deletes pods
    ],
)
def test_a_plan_says_whether_it_leaves_nothing_to_do(specs: dict[str, Any], letters: str, is_settled: bool) -> None:
    job = a_job(**specs)

    assert plan(job, pods(letters), NOW, names()).is_settled == is_settled
