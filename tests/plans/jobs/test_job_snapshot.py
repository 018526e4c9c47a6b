"""Job snapshot and decision: how pods are sorted and counted, and what is decided from that."""

from datetime import timedelta

import pytest

from app.kinds.batch.job import Job, JobStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.admission.pod_admission import NO_RULES
from app.plans.jobs.backoff import Backoff
from app.plans.jobs.job import decide, take_snapshot
from app.plans.jobs.job_snapshot import JobDecision, JobSnapshot
from app.plans.jobs.workloads import NO_GANG
from tests.build import NOW, a_job, a_pod, names, pods

INDEXED = {"completion_mode": "Indexed", "parallelism": 3, "completions": 3}
STATES = ("active", "terminating", "succeeded", "failed", "unindexed")


def snapshot_of(job: Job, *seen: Pod) -> JobSnapshot:
    return take_snapshot(job, seen, NOW, NO_RULES, NO_GANG)


@pytest.mark.parametrize(
    ("policy", "letters", "expected"),
    [
        pytest.param("Failed", "ppru", (4, 0, 0, 0, 0), id="pending, running and unknown are active"),
        pytest.param("Failed", "sff", (0, 0, 1, 2, 0), id="ended"),
        pytest.param("Failed", "SF", (0, 0, 0, 0, 0), id="ended and counted are left out"),
        pytest.param("Failed", "rt", (1, 1, 0, 0, 0), id="deleted is terminating"),
        pytest.param("TerminatingOrFailed", "rt", (1, 1, 0, 1, 0), id="and failed, if it is replaced at once"),
    ],
)
def test_pods_are_sorted_by_state(policy: str, letters: str, expected: tuple[int, ...]) -> None:
    snapshot = snapshot_of(a_job(pod_replacement_policy=policy), *pods(letters))

    assert tuple(len(getattr(snapshot, f"{state}_pods")) for state in STATES) == expected


def test_counts_include_the_status_and_pods_that_are_not_counted_yet() -> None:
    job = a_job(JobStatus(succeeded=2, failed=1), parallelism=3, completions=9)

    snapshot = snapshot_of(job, *pods("sfr"), a_pod("Failed", name="late", finished_at=NOW))

    assert (snapshot.succeeded, snapshot.failed) == (3, 3)
    assert snapshot.backoff == Backoff(1, NOW)  # the other failure is not later than the success


def test_indexes_are_counted_once_and_only_below_completions() -> None:
    job = a_job(JobStatus(completed_indexes="0", failed_indexes=""), **INDEXED)

    snapshot = snapshot_of(job, *pods("s0s1s7"))

    assert str(snapshot.completed_indexes) == "0,1"
    assert len(snapshot.unindexed_pods) == 1


def test_a_decision_has_the_counts_that_it_leads_to() -> None:
    decision = decide(snapshot_of(a_job(parallelism=3, completions=5), *pods("rsf")), names())

    assert (len(decision.create), len(decision.untrack)) == (2, 2)
    assert (decision.active, decision.terminating, decision.failed) == (3, 0, 1)
    assert decision.outcome is None


def test_back_off_delays_pods() -> None:
    decision = decide(snapshot_of(a_job(), a_pod("Failed", finished_at=NOW)), names())

    assert decision.create == ()
    assert decision.backoff_ends_at == decision.again_at == NOW + timedelta(seconds=10)


@pytest.mark.parametrize(
    ("active", "terminating", "is_final"),
    [(0, 0, True), (1, 0, False), (0, 1, False)],
)
def test_an_outcome_is_final_with_the_last_pod(active: int, terminating: int, is_final: bool) -> None:
    outcome = Condition(type="FailureTarget", status="True")

    assert JobDecision(outcome=outcome, active=active, terminating=terminating).is_final is is_final
    assert not JobDecision(active=active, terminating=terminating).is_final
