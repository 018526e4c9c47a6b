"""Jobs that others manage, that are deleted, suspended or changed: Kubernetes' integration tests I16 to I29."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import JobStatus
from app.kinds.core.event import KIND as EVENTS
from app.machinery.base import Condition
from app.machinery.errors import ApiError
from app.plans.jobs import scaling
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.pod_template import owner_reference
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import UpdateOptions
from tests.conformance.played import FAILED, Play
from tests.controllers.running import every, held_copy, until
from tests.registry.examples import JOBS, PODS, a_pod, create

CUSTOM = "acme.io/jobs"
TWO = {"parallelism": 2, "completions": 2}
SLOW = {"tolerations": [{"key": "slow", "operator": "Exists"}], "nodeSelector": {"disk": "ssd"}}


@pytest.fixture
def play(registry: Registry) -> Play:
    return Play(registry)


def template(**spec: Any) -> dict[str, Any]:
    return {"template": {"spec": spec}}


def with_cpu(cpu: str) -> dict[str, Any]:
    """A template whose container asks for this much."""
    return template(containers=[{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}])


MANAGED_BY = pytest.mark.scenario("I16", "managedBy: Jobs of this controller, and Jobs of others")


@MANAGED_BY
@pytest.mark.parametrize("spec", [{}, {"managedBy": "kubernetes.io/job-controller"}], ids=["nobody", "the server"])
async def test_i16_a_job_is_run_that_is_managed_by(play: Play, spec: dict[str, Any]) -> None:
    await play.submit(spec)
    async with play.running():
        await play.there_are(1)
        await play.shows(active=1)


@MANAGED_BY
@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_i16_a_job_of_another_manager_is_left_alone(play: Play, suspend: bool) -> None:
    await play.submit({"managedBy": CUSTOM, "suspend": suspend})
    async with play.running():
        await play.still()
    assert (await play.job()).status == JobStatus()
    assert await play.pods() == []


@pytest.mark.scenario("I17", "managedBy: a Job is created again for another controller just before a reconcile")
async def test_i17_what_was_planned_for_the_old_job_does_not_reach_the_new(play: Play) -> None:
    await play.submit()
    copy = await held_copy(play.registry)
    await play.delete("Background")
    await play.submit({"managedBy": CUSTOM})
    async with play.running(copy) as controllers:
        await play.still()
        assert any(runner._failures for runner in controllers.runners)  # it has tried
        copy.is_paused = False
        controllers.move(minutes=1)
        await play.still()
    assert (await play.job()).status == JobStatus()
    assert await play.pods() == []


@pytest.mark.scenario("I18", "managedBy: pods of another controller keep the tracking finalizer")
async def test_i18_another_managers_pods_keep_their_finalizer(play: Play) -> None:
    job = await play.submit({"managedBy": CUSTOM})
    labels = job.spec.template.metadata.labels
    own = {"labels": labels, "owner_references": (owner_reference(job),), "finalizers": (TRACKING,)}
    pod = await create(play.registry, PODS, a_pod(metadata=own))
    async with play.running():
        await play.fail(pod)
        await says(play, "FailureTarget", "Failed")
        await play.still()
    assert [each.metadata.finalizers for each in await play.pods()] == [(TRACKING,)]


async def says(play: Play, *conditions: str, **status: Any) -> None:
    """Another controller writes the status."""
    true = tuple(Condition(type=each, status="True") for each in conditions)
    written = JobStatus(**{"start_time": play.registry.now(), "conditions": true, **status})
    await objects.edit(
        play.registry, JOBS, "default", "pi", lambda job: replace(job, status=written), UpdateOptions(status=True)
    )


@pytest.mark.scenario("I19", "finalizer removal: pods of a deleted Job, however it is deleted")
@pytest.mark.parametrize("propagation", ["Orphan", "Background", "Foreground"])
async def test_i19_pods_of_a_deleted_job_are_free(play: Play, propagation: str) -> None:
    await play.submit(TWO)
    async with play.running():
        await play.start(*await play.there_are(2))
        await play.delete(propagation)
        await play.all_are_free()
        await play.still()
        assert len(await play.pods()) == 2
        assert len(await play.active()) == (2 if propagation == "Orphan" else 0)
        if propagation == "Foreground":
            assert (await play.job()).metadata.finalizers == ("foregroundDeletion",)
        await play.go(*await play.terminating())
        await until(play.registry, lambda: is_gone(play))


async def is_gone(play: Play) -> bool:
    return await play.job() is None


@pytest.mark.scenario("I20", "deletion of a Job while no controller runs")
async def test_i20_the_next_controller_frees_the_pods(play: Play) -> None:
    await play.submit(TWO)
    async with play.running():
        await play.start(*await play.there_are(2))
    await play.delete("Background")
    assert all(TRACKING in pod.metadata.finalizers for pod in await play.pods())
    async with play.running():
        await play.all_are_free()
        await until(play.registry, lambda: all_end(play))


async def all_end(play: Play) -> bool:
    return len(await play.terminating()) == 2


@pytest.mark.scenario("I21", "finalizer removal: a failed Job of a hundred pods, fifty a step")
async def test_i21_a_job_that_fails_frees_all_of_its_pods(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "MOST_PODS", 50)
    await play.submit({"parallelism": 100, "completions": 100, "backoffLimit": 0})
    async with play.running():
        pods = await play.there_are(100)
        await play.start(*pods[:20])
        await play.fail(pods[0])
        await play.shows(active=0, terminating=19, true=("FailureTarget",))
        await play.go(*await play.terminating())
        await play.shows(active=0, failed=100, terminating=0, true=FAILED, reason="BackoffLimitExceeded")
        await play.all_are_free()


@pytest.mark.scenario("I22", "controller restart while one of ten pods fails")
async def test_i22_a_failure_among_successes_is_not_lost_in_a_restart(play: Play) -> None:
    await play.submit({"parallelism": 10, "completions": 10, "backoffLimit": 0})
    async with play.running():
        first, *others = await play.there_are(10)
        await play.succeed(*others[:4])
        await play.shows(succeeded=4, active=6)
    await play.fail(first)
    await play.succeed(*others[4:])
    await play.crash()
    async with play.running():
        await play.shows(succeeded=9, failed=1, active=0, true=FAILED, reason="BackoffLimitExceeded")
        await play.all_are_free()


SUSPEND = pytest.mark.scenario("I23", "suspend and resume: pods, condition, event")


@SUSPEND
async def test_i23_suspending_stops_the_pods(play: Play) -> None:
    await play.submit(TWO)
    async with play.running():
        await play.there_are(2)
        await play.alter({"suspend": True})
        job = await play.shows(active=0, failed=0, start_time=None, reason="JobSuspended", true=("Suspended",))
    assert job.status.conditions[-1].message == "Job suspended"
    assert await told(play, "Suspended") == [("Normal", "Job suspended", "job-controller")]


@SUSPEND
async def test_i23_resuming_starts_pods(play: Play) -> None:
    await play.submit({**TWO, "suspend": True})
    async with play.running() as controllers:
        await play.shows(active=0, start_time=None, reason="JobSuspended", true=("Suspended",))
        controllers.move(minutes=1)
        await play.alter({"suspend": False})
        job = await play.shows(active=2, start_time=play.registry.now(), reason="JobResumed", true=())
    assert (job.status.conditions[-1].type, job.status.conditions[-1].message) == ("Suspended", "Job resumed")
    assert await told(play, "Resumed") == [("Normal", "Job resumed", "job-controller")]


async def told(play: Play, reason: str) -> list[tuple[str, str, str]]:
    """The events of that reason."""
    events = [each for each in await every(play.registry, EVENTS) if each.reason == reason]
    return [(each.type, each.message, each.source.component) for each in events]


@pytest.mark.scenario("I24", "a suspended Job has no pods, also after a controller restart")
async def test_i24_a_restart_starts_no_pods_of_a_suspended_job(play: Play) -> None:
    await play.submit({**TWO, "suspend": True})
    for _ in range(2):
        async with play.running():
            await play.shows(active=0, true=("Suspended",))
            await play.still()
    assert await play.pods() == []


@pytest.mark.scenario("I25", "resume with a node selector in one request; later the selector is immutable")
async def test_i25_resuming_may_say_where_and_running_may_not(play: Play) -> None:
    await play.submit({"suspend": True})
    async with play.running():
        await play.shows(true=("Suspended",))
        await play.alter({"suspend": False, **template(nodeSelector={"disk": "ssd"})})
        (pod,) = await play.there_are(1)
        assert pod.spec.node_selector == {"disk": "ssd"}
        assert "spec.template: Invalid value" in await refusal(play, template(nodeSelector={"disk": "hdd"}))


async def refusal(play: Play, spec: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        await play.alter(spec)
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    return refused.value.message


@pytest.mark.scenario("I26", "mutable resources of a suspended Job, started before or not")
async def test_i26_resources_may_change_while_nothing_runs(play: Play) -> None:
    await play.submit({"suspend": True})
    async with play.running():
        await play.shows(true=("Suspended",))
        await play.alter(with_cpu("1"))
        await play.alter({"suspend": False})
        (pod,) = await play.there_are(1)
        assert asked(pod) == "1"
        await play.start(pod)
        assert (await refusal(play, with_cpu("2"))).endswith(": field is immutable")

        await play.alter({"suspend": True})
        await play.shows(active=0, true=("Suspended",))
        await play.alter({"suspend": False, **with_cpu("2")})
        (pod,) = await play.there_are(1)
        assert asked(pod) == "2"


def asked(pod: Any) -> str:
    return pod.spec.containers[0].resources.requests["cpu"]


@pytest.mark.scenario("I27", "mutable scheduling fields of a Job that ran and is suspended")
async def test_i27_a_job_that_ran_may_go_on_elsewhere(play: Play) -> None:
    await play.submit()
    async with play.running():
        (first,) = await play.there_are(1)
        await play.start(first)
        await play.alter({"suspend": True})
        await play.shows(active=0, terminating=1, true=("Suspended",))
        labels = {**(await play.job()).spec.template.metadata.labels, "tier": "batch"}
        await play.alter({"template": {"metadata": {"labels": labels}, "spec": SLOW}})
        await play.go(first)
        await play.shows(terminating=0)
        await play.alter({"suspend": False})
        (pod,) = await play.there_are(1)
    assert (pod.spec.node_selector, pod.metadata.labels["tier"]) == (SLOW["nodeSelector"], "batch")
    assert "slow" in [each.key for each in pod.spec.tolerations]


@pytest.mark.scenario("I28", "resume with new resources: the new pod waits until the old pod has ended")
async def test_i28_a_resumed_job_waits_for_its_old_pods(play: Play) -> None:
    await play.submit({"podReplacementPolicy": "Failed"})
    async with play.running():
        (first,) = await play.there_are(1)
        await play.start(first)
        await play.alter({"suspend": True})
        await play.shows(active=0, terminating=1, true=("Suspended",))
        await play.alter({"suspend": False, **with_cpu("2")})
        await play.shows(active=0, terminating=1, true=())
        await play.still()
        assert await play.active() == []
        await play.go(first)
        (pod,) = await play.there_are(1)
        await play.shows(active=1, failed=0, terminating=0)
    assert asked(pod) == "2"


@pytest.mark.scenario("I29", "features that can be turned off")
@pytest.mark.skip(reason="nothing can be turned off: these features are no longer optional")
async def test_i29_features_are_turned_off_and_on() -> None: ...
