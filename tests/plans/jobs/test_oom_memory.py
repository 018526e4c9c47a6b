"""More memory for the next attempt after an OOM kill: how much, for whom, and what is told."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.batch.job_annotations import OOM_MEMORY
from app.kinds.pod.container import Container, ContainerState, ContainerStateTerminated, ResourceRequirements
from app.kinds.pod.pod import Pod
from app.plans.jobs.job import plan
from app.plans.jobs.oom_memory import ANNOTATION
from app.plans.plan import Emit, Plan
from tests.build import LONG_AGO, NOW, a_job, a_pod, a_template, created, names, stored

INDEXED = {"completion_mode": "Indexed", "completions": 2, "parallelism": 2, "backoff_limit_per_index": 3}


def resources(limit: str = "", request: str = "") -> ResourceRequirements:
    memory = {"limits": {"memory": limit} if limit else {}, "requests": {"memory": request} if request else {}}
    return ResourceRequirements(**memory)


def a_hungry_job(rule: str = "x1.5,max=8Gi", *, limit: str = "512Mi", request: str = "", **spec: Any) -> Job:
    container = Container(name="main", image="i", resources=resources(limit, request))
    job = a_job(**({"template": a_template(containers=(container,))} | spec))
    return replace(job, metadata=replace(job.metadata, annotations={OOM_MEMORY: rule} if rule else {}))


def killed(limit: str = "512Mi", name: str = "pi-0", index: int | None = None, reason: str = "OOMKilled") -> Pod:
    container = Container(name="main", image="i", resources=resources(limit))
    pod = a_pod("Failed", name=name, index=index, containers=(container,))
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=137, reason=reason, finished_at=LONG_AGO))
    (status,) = pod.status.container_statuses
    return replace(pod, status=replace(pod.status, container_statuses=(replace(status, state=ended),)))


def planned(job: Job, *pods: Pod) -> Plan:
    return plan(job, list(pods), NOW, names())


def limits(made: Plan) -> list[str]:
    """Of the pods that the plan creates: the limit, and the request if there is one."""
    found = [pod.spec.containers[0].resources for pod in created(made)]
    return ["/".join(str(each[key]) for each in (r.limits, r.requests) for key in each) for r in found if r]


def events(made: Plan) -> list[str]:
    emits = [each for each in made.actions if isinstance(each, Emit) and each.reason.startswith("Memory")]
    return [f"{each.type} {each.reason}: {each.message}" for each in emits]


@pytest.mark.parametrize(
    ("rule", "limit", "request_", "expected"),
    [
        pytest.param("x1.5,max=8Gi", "512Mi", "", "768Mi", id="by the factor"),
        pytest.param("x2,max=600Mi", "512Mi", "", "600Mi", id="up to the maximum"),
        pytest.param("x1.001,max=8Gi", "512Mi", "", "513Mi", id="by a mebibyte at least"),
        pytest.param("x4,max=1G", "512Mi", "", "1000000000", id="up to a maximum that is no whole number of mebibytes"),
        pytest.param("x2,max=8Gi", "512Mi", "256Mi", "1Gi/512Mi", id="with its request in proportion"),
        pytest.param("x2,max=8Gi", "512Mi", "512Mi", "1Gi/1Gi", id="with a request that is equal"),
        pytest.param("", "512Mi", "", "512Mi", id="not without the annotation"),
        pytest.param("x2,max=256Mi", "512Mi", "", "512Mi", id="never less than the template's"),
    ],
)
def test_the_next_attempt_gets_more(rule: str, limit: str, request_: str, expected: str) -> None:
    job = a_hungry_job(rule, limit=limit, request=request_)

    assert limits(planned(job, killed(limit))) == [expected]


def test_attempts_get_more_each_time_and_remember_it() -> None:
    job = a_hungry_job()
    first = planned(job, killed())
    job = stored(first, job)
    assert job.metadata.annotations[ANNOTATION] == "main=768Mi"

    assert limits(planned(job, killed("768Mi", reason="Error"))) == ["768Mi"]
    second = planned(job, killed("768Mi"))
    assert limits(second) == ["1152Mi"]
    assert stored(second, job).metadata.annotations[ANNOTATION] == "main=1152Mi"


def test_several_pods_that_are_killed_at_once_raise_it_once() -> None:
    job = a_hungry_job(parallelism=2, completions=2)
    made = planned(job, killed(name="pi-0"), killed(name="pi-1"))

    assert limits(made) == ["768Mi", "768Mi"]
    assert len(events(made)) == 1


@pytest.mark.parametrize(
    ("job", "limit", "expected"),
    [
        pytest.param(
            a_hungry_job(),
            "512Mi",
            "Normal MemoryRaised: Container main was OOMKilled with 512Mi: the next attempt gets 768Mi",
            id="more",
        ),
        pytest.param(
            a_hungry_job("x2,max=512Mi"),
            "512Mi",
            "Warning MemoryNotRaised: Container main was OOMKilled with 512Mi, which is the most that it may get",
            id="no more",
        ),
        pytest.param(
            a_hungry_job(limit=""),
            "",
            "Warning MemoryNotRaised: Container main was OOMKilled, but has no memory limit to raise",
            id="no limit",
        ),
    ],
)
def test_an_event_says_what_the_next_attempt_gets(job: Job, limit: str, expected: str) -> None:
    assert events(planned(job, killed(limit))) == [expected]


def test_a_job_that_has_failed_has_no_next_attempt() -> None:
    assert events(planned(a_hungry_job(backoff_limit=0), killed())) == []


def test_an_index_with_its_own_limit_gets_more_for_itself() -> None:
    job = a_hungry_job(**INDEXED)

    made = planned(job, killed(index=1), a_pod("Running", name="pi-1", index=0))

    assert limits(made) == ["768Mi"]
    assert len(events(made)) == 1
    assert ANNOTATION not in stored(made, job).metadata.annotations


def test_an_index_that_fails_otherwise_keeps_what_it_had() -> None:
    made = planned(a_hungry_job(**INDEXED), killed("1152Mi", index=1, reason="Error"))

    assert sorted(limits(made)) == ["1152Mi", "512Mi"]
    assert events(made) == []


@pytest.mark.parametrize("text", ["main=99Gi", "main=lots,other=1Gi", "=", "main"])
def test_what_another_client_wrote_counts_up_to_the_maximum(text: str) -> None:
    job = a_hungry_job("x2,max=1Gi")
    job = replace(job, metadata=replace(job.metadata, annotations={**job.metadata.annotations, ANNOTATION: text}))

    assert limits(planned(job)) == ["1Gi" if text == "main=99Gi" else "512Mi"]
