"""What a Job says of pods that it does not create: once, with when it will, and why not if it never will."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.batch.job import (
    Job,
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyRule,
)
from app.kinds.pod.container import ContainerState, ContainerStateTerminated
from app.kinds.pod.pod import Pod
from app.plans.admission.pod_admission import NO_RULES, Rules
from app.plans.admission.refusals import ANNOTATION as REFUSED
from app.plans.jobs.backoff import ANNOTATION as BACKOFF
from app.plans.jobs.index_failure import FAILURES, WAITING
from app.plans.jobs.job import plan
from app.plans.plan import Emit, Plan
from tests.build import LONG_AGO, NOW, a_job, a_pod, names, pods, stored, updated, with_status
from tests.plans.admission.test_resource_quota import a_quota

EXIT_1 = "container main exited with code 1"
IN_10S = "at 2026-07-24T12:00:10Z (in 10s)"
OURS = ("BackingOff", "NoMoreTries", "IndexFailed")
INDEXED = {"completion_mode": "Indexed", "parallelism": 3, "completions": 5, "backoff_limit_per_index": 1}
FAIL_INDEX = PodFailurePolicy(
    rules=(
        PodFailurePolicyRule(
            action="FailIndex", on_exit_codes=PodFailurePolicyOnExitCodesRequirement(operator="In", values=(42,))
        ),
    )
)


def said(made: Plan) -> list[str]:
    """The events of ours."""
    emits = [each for each in made.actions if isinstance(each, Emit)]
    return [f"{each.type} {each.reason}: {each.message}" for each in emits if each.reason in OURS]


def planned(job: Job, have: list[Pod], now: datetime = NOW) -> Plan:
    return plan(job, have, now, names())


def failed(name: str = "pi-0", index: int | None = None, failures: int = 0, seconds_ago: int = 0, code: int = 1) -> Pod:
    pod = a_pod("Failed", name=name, index=index, finished_at=NOW - timedelta(seconds=seconds_ago), exit_code=code)
    more = {FAILURES: str(failures)} if index is not None else {}
    return replace(pod, metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, **more}))


def begun(seconds_ago: int = 0, **spec: Any) -> Job:
    return a_job(JobStatus(start_time=NOW - timedelta(seconds=seconds_ago)), **spec)


@pytest.mark.parametrize(
    ("job", "have", "expected"),
    [
        pytest.param(
            begun(),
            [failed()],
            [
                f"Normal BackingOff: Attempt 2 of 7 starts {IN_10S}, because container main exited with code 1 in pod pi-0"
            ],
            id="waits, and until when",
        ),
        pytest.param(
            begun(parallelism=2, completions=3),
            [failed("pi-0"), failed("pi-1", seconds_ago=5)],
            [
                "Normal BackingOff: New pods start at 2026-07-24T12:00:20Z (in 20s) after failure 2 of 6, "
                "because container main exited with code 1 in pod pi-0"
            ],
            id="waits longer after more failures",
        ),
        pytest.param(begun(), [failed(seconds_ago=10)], [], id="does not wait if the wait is over before it is told"),
        pytest.param(begun(backoff_limit=0), [failed()], [], id="has failed, which is told otherwise"),
        pytest.param(begun(suspend=True), [failed()], [], id="is suspended, which is told otherwise"),
        pytest.param(
            begun(completions=None, parallelism=2), [*pods("s"), failed("pi-1")], [], id="needs no more pods, and ends"
        ),
        pytest.param(
            begun(seconds_ago=55, active_deadline_seconds=60),
            [failed()],
            [
                "Warning NoMoreTries: No more tries: no pod is created until 2026-07-24T12:00:10Z, after 1 failure, "
                "and activeDeadlineSeconds ends the Job at 2026-07-24T12:00:05Z"
            ],
            id="will be over before the wait is",
        ),
        pytest.param(
            begun(seconds_ago=55, active_deadline_seconds=60, parallelism=2, completions=2),
            [failed(), a_pod(name="pi-1")],
            [
                "Warning NoMoreTries: No more tries, unless one succeeds: no pod is created until 2026-07-24T12:00:10Z, "
                "after 1 failure, and activeDeadlineSeconds ends the Job at 2026-07-24T12:00:05Z"
            ],
            id="will be over before the wait is but for a pod that runs",
        ),
        pytest.param(
            begun(seconds_ago=49, active_deadline_seconds=60),
            [failed()],
            [
                f"Normal BackingOff: Attempt 2 of 7 starts {IN_10S}, because container main exited with code 1 in pod pi-0"
            ],
            id="has a second left for another try",
        ),
        pytest.param(
            begun(**INDEXED),
            [failed("pi-9", index=2), *pods("r0r1")],
            [f"Normal BackingOff: Index 2 failed once ({EXIT_1} in pod pi-9) and is tried again {IN_10S}"],
            id="says which index waits",
        ),
        pytest.param(
            begun(**INDEXED | {"backoff_limit_per_index": 9}),
            [failed("pi-0", 0, 1), failed("pi-1", 1, 2, seconds_ago=1), failed("pi-2", 2)],
            [
                "Normal BackingOff: Indexes 0-2 failed and are tried again "
                "from 2026-07-24T12:00:10Z to 2026-07-24T12:00:39Z"
            ],
            id="says which indexes wait",
        ),
        pytest.param(
            begun(seconds_ago=45, active_deadline_seconds=60, **INDEXED),
            [failed("pi-0", 0), failed("pi-1", 1, 1), failed("pi-2", 2)],
            [
                "Warning IndexFailed: Index 1 failed 2 times and is not tried again",
                "Normal BackingOff: Indexes 0,2 failed and are tried again at 2026-07-24T12:00:10Z (in 10s)",
            ],
            id="says which index is given up",
        ),
        pytest.param(
            begun(seconds_ago=45, active_deadline_seconds=60, **INDEXED | {"backoff_limit_per_index": 9}),
            [failed("pi-0", 0), failed("pi-1", 1, 1)],
            [
                f"Normal BackingOff: Index 0 failed once ({EXIT_1} in pod pi-0) and is tried again {IN_10S}",
                "Warning NoMoreTries: Index 1 failed 2 times (container main exited with code 1 in pod pi-1) "
                "and is not tried again: back-off would end at "
                "2026-07-24T12:00:20Z (in 20s), activeDeadlineSeconds ends the Job at 2026-07-24T12:00:15Z",
            ],
            id="tells apart the indexes that have time for another try",
        ),
        pytest.param(
            begun(**INDEXED, pod_failure_policy=FAIL_INDEX),
            [failed(index=2, code=42), a_pod(name="pi-1", index=0), a_pod(name="pi-2", index=1)],
            ["Warning IndexFailed: Index 2 failed by a FailIndex rule and is not tried again"],
            id="names the rule by which an index is given up",
        ),
        pytest.param(
            with_status(begun(**INDEXED), failed_indexes="3"), pods("r0r1r2"), [], id="tells nothing of what is known"
        ),
    ],
)
def test_a_job(job: Job, have: list[Pod], expected: list[str]) -> None:
    made = planned(job, have)

    assert said(made) == expected
    again = planned(stored(made, job), [pod for pod in have if pod.metadata.uid not in _uids(updated(made))])
    assert said(again) == [], "what was told is not told again"


def _uids(pods: list[Pod]) -> set[str]:
    return {pod.metadata.uid for pod in pods}


def test_each_wait_is_told_of_as_more_indexes_fail_but_not_as_fewer_wait() -> None:
    job, first, second = begun(**INDEXED), failed("pi-0", 0), failed("pi-1", 1)
    one = stored(planned(job, [first, *pods("r1r2")]), job)
    made = planned(one, [first, second, *pods("r2")])
    two = stored(made, one)
    three = stored(planned(two, [second, *pods("r0r2")]), two)

    assert said(made)[0].startswith("Normal BackingOff: Indexes 0,1 failed")
    assert [each.metadata.annotations[WAITING][:2] for each in (one, two, three)] == ["1;", "2;", "1;"]
    assert said(planned(two, [second, *pods("r0r2")])) == []


def test_a_wait_is_told_once_though_the_clock_of_its_node_is_ahead() -> None:
    """Such an end counts as now, whenever now is."""
    job, pod = begun(**INDEXED), failed(index=0, seconds_ago=-60)
    made = planned(job, [pod, *pods("r1r2")])

    assert len(said(made)) == 1
    assert planned(stored(made, job), [pod, *pods("r1r2")], NOW + timedelta(seconds=5)).actions == ()


def test_a_job_that_is_resumed_in_its_back_off_says_so_again() -> None:
    job = begun()
    waits = stored(planned(job, [failed()]), job)
    suspended = replace(waits, spec=replace(waits.spec, suspend=True))
    rests = stored(planned(suspended, []), suspended)
    resumed = replace(rests, spec=replace(rests.spec, suspend=False))

    assert said(planned(resumed, [])) == [f"Normal BackingOff: Attempt 2 of 7 starts {IN_10S}"]


def test_of_many_lost_indexes_ten_are_named() -> None:
    job = begun(**INDEXED | {"parallelism": 30, "completions": 40})
    made = planned(job, [failed(f"pi-{each}", each, 1) for each in range(30)])

    lost = [each for each in made.actions if isinstance(each, Emit) and each.reason == "IndexFailed"]
    assert [each.count for each in lost] == [*[1] * 10, 20]
    assert lost[9].message == "Index 9 failed 2 times and is not tried again"


def test_a_long_list_of_indexes_is_a_number() -> None:
    job = begun(**INDEXED | {"parallelism": 400, "completions": 400, "backoff_limit": 999})
    have = [failed(f"pi-{each}", each) if each % 2 else a_pod(name=f"pi-{each}", index=each) for each in range(400)]
    (told,) = said(planned(job, have))

    assert told.startswith(
        "Normal BackingOff: Indexes (200 of them) failed and are tried again at 2026-07-24T12:00:10Z"
    )


def test_pods_that_a_failed_job_ends_are_no_lost_indexes() -> None:
    job = begun(**INDEXED, backoff_limit=0)
    fails = stored(planned(job, [failed("pi-0", 0), *pods("r1r2")]), job)

    assert said(planned(fails, [failed("pi-1", 1, 1), failed("pi-2", 2, 1)])) == []


# --- annotations that anybody may write

moments = some.one_of(
    some.sampled_from(["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59", "9999-12-31T23:55:00Z", ""]),
    some.datetimes().map(lambda each: f"{each.isoformat()}Z"),
    some.text(max_size=8),
)
counts = some.one_of(some.integers().map(str), some.sampled_from(["9" * 4300, "9" * 9999, "٣", "1_0", " 7 ", "-"]))
marks = some.one_of(some.text(max_size=12), some.tuples(counts, moments).map(";".join))


@given(
    said=some.dictionaries(some.sampled_from([BACKOFF, WAITING, REFUSED]), marks),
    failures=marks,
    letters=some.text("rsf", max_size=3),
    limit=some.none() | some.integers(0, 3),
    deadline=some.none() | some.integers(0, 2**63 - 1),
    room=some.none() | some.integers(0, 3),
)
def test_no_annotation_breaks_a_sync_or_holds_a_job_for_long(
    said: dict[str, str], failures: str, letters: str, limit: int | None, deadline: int | None, room: int | None
) -> None:
    job = a_job(
        JobStatus(start_time=LONG_AGO if deadline is None else NOW),
        {"annotations": said},
        **INDEXED | {"backoff_limit_per_index": limit, "backoff_limit": 99, "active_deadline_seconds": deadline},
    )
    have = [failed(f"pi-{number}", number) for number, letter in enumerate(letters) if letter == "f"]
    have = [
        replace(pod, metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, FAILURES: failures}))
        for pod in have
    ]
    have += [a_pod(name=f"pi-{number}", index=number) for number, letter in enumerate(letters) if letter == "r"]

    rules = NO_RULES if room is None else Rules(quotas=[a_quota({"pods": str(room)})])
    made = plan(job, have, NOW, names(), rules)

    assert deadline is not None or made.again_at is None or made.again_at <= NOW + timedelta(minutes=20)
    gone = {each.metadata.uid for each in updated(made)}
    left = [pod for pod in have if pod.metadata.uid not in gone]
    after = stored(made, job)
    assert stored(plan(after, left, NOW, names(), rules), after).metadata.annotations == after.metadata.annotations


def _ended(code: int = 1, reason: str = "Error") -> Pod:
    pod = failed(code=code)
    state = ContainerState(terminated=ContainerStateTerminated(exit_code=code, reason=reason, finished_at=NOW))
    (container,) = pod.status.container_statuses
    return replace(pod, status=replace(pod.status, container_statuses=(replace(container, state=state),)))


def _with_reason(reason: str, message: str) -> Pod:
    pod = _ended(143)
    return replace(pod, status=replace(pod.status, reason=reason, message=message))


@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        pytest.param(_ended(3), "container main exited with code 3 in pod pi-0", id="an exit code"),
        pytest.param(_ended(137, "OOMKilled"), "container main exited with code 137 (OOMKilled) in pod pi-0", id="OOM"),
        pytest.param(_ended(0, "Completed"), "pod pi-0 failed", id="a container that has not failed is no cause"),
        pytest.param(
            _with_reason("Evicted", "x" * 300),
            f"pod pi-0 failed: Evicted ({'x' * 200})",
            id="the node's reason, shortened",
        ),
    ],
)
def test_an_attempt_says_why_there_is_another(pod: Pod, cause: str) -> None:
    (event,) = said(planned(begun(), [pod]))
    assert event.endswith(f", because {cause}")
