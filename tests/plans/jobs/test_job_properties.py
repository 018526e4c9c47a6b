"""What holds for every Job, whatever happens to its pods, and in whatever order."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import is_finished, is_indexed, is_true
from app.kinds.pod.pod import is_active
from app.plans.jobs.job import plan
from tests.build import NOW, a_job, a_pod, created, deleted, names, pods
from tests.plans.fake_cluster import Cluster

POLICIES = some.sampled_from(["Failed", "TerminatingOrFailed"])

ORDINARY = some.fixed_dictionaries(
    {
        "parallelism": some.integers(1, 4),
        "completions": some.none() | some.integers(0, 5),
        "backoff_limit": some.integers(0, 4),
        "pod_replacement_policy": POLICIES,
    }
)
INDEXED = some.fixed_dictionaries(
    {
        "completion_mode": some.just("Indexed"),
        "parallelism": some.integers(1, 4),
        "completions": some.integers(0, 5),
        "backoff_limit": some.integers(0, 4),
        "pod_replacement_policy": POLICIES,
    }
)
RETRIED = some.fixed_dictionaries(
    {
        "completion_mode": some.just("Indexed"),
        "parallelism": some.integers(1, 4),
        "completions": some.integers(1, 4),
        "backoff_limit": some.just(2**31 - 1),
        "backoff_limit_per_index": some.integers(0, 2),
        "max_failed_indexes": some.none() | some.integers(0, 2),
        "pod_replacement_policy": POLICIES,
    }
)
OFTEN = ["run", "run", "run", "sync", "sync", "succeed", "succeed", "fail", "fail", "delete"]
SELDOM = ["wait", "crash", "orphan", "suspend", "resume", "more", "fewer", "resize"]
HAPPENINGS = some.sampled_from([*OFTEN, *SELDOM])
STORIES = some.lists(some.tuples(HAPPENINGS, some.integers(0, 9)), max_size=40)


def happen(cluster: Cluster, what: str, which: int) -> None:
    living = cluster.living()
    uid = living[which % len(living)] if living else None
    match what:
        case "wait":
            cluster.now += timedelta(seconds=60 * which)
        case "sync":
            cluster.sync()
            cluster.check()
        case "crash":
            cluster.plan()  # and nobody carries it out
        case "orphan":
            _appear(cluster)
        case "suspend" | "resume":
            _respecify(cluster, suspend=what == "suspend")
        case "more":
            _respecify(cluster, parallelism=(cluster.job.spec.parallelism or 0) + which % 2)
        case "fewer":
            _respecify(cluster, parallelism=max(1, (cluster.job.spec.parallelism or 0) - which % 3))
        case "resize" if is_indexed(cluster.job) and not is_true(cluster.job, "SuccessCriteriaMet"):
            _respecify(cluster, parallelism=which % 6, completions=which % 6)
            cluster.sync()  # success is forgotten while both are equal, or validation of the status objects
        case _ if uid:
            _befall(cluster, what, uid)


def _befall(cluster: Cluster, what: str, uid: str) -> None:
    match what:
        case "run":
            cluster.run(uid)
        case "delete":
            cluster.delete(uid)
        case "succeed" | "fail" if cluster.pods[uid].spec.node_name:
            cluster.end(uid, "Succeeded" if what == "succeed" else "Failed")


def _respecify(cluster: Cluster, **spec: Any) -> None:
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, **spec))


def _appear(cluster: Cluster) -> None:
    pod = a_pod("Pending", name=cluster.names("orphan-"), tracked=False, node_name="")
    cluster.pods[pod.metadata.uid] = replace(pod, metadata=replace(pod.metadata, owner_references=()))


def drive_to_the_end(cluster: Cluster, fates: list[bool]) -> None:
    """Nobody interferes any more: pods run, and end as fate will have it, or well once fate is used up."""
    _respecify(cluster, suspend=False, parallelism=max(1, cluster.job.spec.parallelism or 0))
    for _ in range(60):
        cluster.sync()
        cluster.check()
        if is_finished(cluster.job):
            return
        for uid in cluster.living():
            cluster.run(uid)
            if uid in cluster.pods:
                cluster.end(uid, "Failed" if fates and fates.pop() else "Succeeded")
        cluster.now = max(cluster.now + timedelta(seconds=1), cluster.again_at or cluster.now)
    raise AssertionError("the job does not end")


@pytest.mark.parametrize("specs", [ORDINARY, INDEXED, RETRIED], ids=["ordinary", "indexed", "retried by index"])
@given(data=some.data())
def test_a_job_keeps_its_promises_and_ends(specs: some.SearchStrategy[dict[str, Any]], data: some.DataObject) -> None:
    cluster = Cluster(a_job(**data.draw(specs)))
    for what, which in data.draw(STORIES):
        happen(cluster, what, which)

    drive_to_the_end(cluster, data.draw(some.lists(some.booleans(), max_size=12)))

    status, completions = cluster.job.status, cluster.job.spec.completions
    if is_indexed(cluster.job):
        assert status.succeeded == len(Indexes.parse(status.completed_indexes)) <= (completions or 0)
    if status.conditions[-1].type == "Complete":
        assert status.succeeded >= (1 if completions is None else completions)
        assert cluster.events["Completed"] == 1
    assert cluster.plan().actions == ()


@given(letters=some.text("prsftPRSFT", max_size=9), parallelism=some.integers(0, 4), policy=POLICIES)
def test_never_runs_more_than_parallelism(letters: str, parallelism: int, policy: str) -> None:
    job = a_job(parallelism=parallelism, completions=5, pod_replacement_policy=policy)

    result = plan(job, pods(letters), NOW, names())

    running = sum(map(is_active, pods(letters)))
    assert not created(result) or running + len(created(result)) <= parallelism
    assert not (created(result) and deleted(result))


@given(letters=some.text("prsftPRSFT", max_size=9), limit=some.integers(0, 3), suspend=some.booleans())
def test_the_same_situation_gives_the_same_plan(letters: str, limit: int, suspend: bool) -> None:
    job = a_job(parallelism=3, completions=5, backoff_limit=limit, suspend=suspend)

    assert plan(job, pods(letters), NOW, names()) == plan(job, pods(letters), NOW, names())
