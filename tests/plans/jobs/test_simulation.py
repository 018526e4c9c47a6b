"""Hundreds of thousands of small events in the lives of Jobs, with a model that knows what Kubernetes would have done.

Every run is the same. A failure tells the last events, and how to see that one life alone.
"""

import os
from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import JobStatus
from app.plans.jobs.index_failure import FAILURES
from app.plans.jobs.job import plan
from tests.build import LONG_AGO, NOW, a_job, a_pod, created, names, status_of, updated
from tests.plans.jobs.simulation.mutants import MUTANTS
from tests.plans.jobs.simulation.run import live_many
from tests.plans.jobs.simulation.shapes import SHAPES

EVENTS = 100_000 if os.environ.get("JOBPLANE_PROPERTIES") == "thorough" else 10_000  # of each shape
SOON = 20_000  # events within which a mistake must show

COMMON = {
    "deleted",
    "Complete CompletionsReached",
    "Failed DeadlineExceeded",
    "Failed BackoffLimitExceeded",
}
SPECIAL = {
    "per_index": {"Failed FailedIndexes", "Failed MaxFailedIndexesExceeded"},
    "index_policy": {"Failed FailedIndexes", "Failed MaxFailedIndexesExceeded", "Failed PodFailurePolicy"},
    "failure_policy": {"Failed PodFailurePolicy"},
    "success_policy": {"Complete SuccessPolicy"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_no_event_breaks_a_rule(shape: str) -> None:
    events = EVENTS * (2 if shape == "hurried" else 1)  # hurried ones seldom complete
    ends = live_many(shape, events)

    assert ends["events"] >= events
    assert (COMMON | SPECIAL.get(shape, set())) <= set(ends), "some ends were never met"


@pytest.mark.parametrize("mistake", MUTANTS)
def test_finds_a_plan_that(mistake: str) -> None:
    shape, mutant = MUTANTS[mistake]

    with pytest.raises(AssertionError, match="to see it alone"):
        live_many(shape, SOON, plan_job=mutant)


# What it has found, in short.


def test_a_pod_that_was_deleted_before_it_got_a_node_has_failed() -> None:
    """Nobody would ever say so, and a Job that waits for its end would wait for ever."""
    pod = a_pod("Pending", deleted_at=LONG_AGO, node_name="")

    made = plan(a_job(pod_replacement_policy="Failed"), [pod], NOW, names())

    assert [each.metadata.finalizers for each in updated(made)] == [()]
    assert (status_of(made).failed, status_of(made).terminating, len(created(made))) == (1, 0, 1)


def test_the_deadline_of_a_job_that_is_being_deleted_wakes_it() -> None:
    job = a_job(JobStatus(start_time=NOW), {"deletion_timestamp": NOW}, active_deadline_seconds=60)

    assert plan(job, [a_pod()], NOW, names()).again_at == NOW + timedelta(seconds=60)


def test_an_adopted_pod_that_is_stopped_at_once_does_not_wipe_out_the_failures_of_its_index() -> None:
    job = a_job(completion_mode="Indexed", parallelism=0, backoff_limit_per_index=3)
    failed = a_pod("Failed", name="pi-0", index=0)
    failed = replace(
        failed, metadata=replace(failed.metadata, annotations={**failed.metadata.annotations, FAILURES: "2"})
    )
    orphan = a_pod("Pending", name="orphan", index=0, tracked=False, node_name="")
    orphan = replace(orphan, metadata=replace(orphan.metadata, owner_references=()))

    made = plan(job, [failed, orphan], NOW, names())

    assert "pi-0" not in [each.metadata.name for each in updated(made)]
