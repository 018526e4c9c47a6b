"""What the controllers keep of pods that are counted: little, and nothing that somebody still plans from."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.garbage_collector import GarbageController
from app.controllers.jobs import JobController
from app.controllers.manager import new_mirror
from app.controllers.pod_stubs import CONTROLLER_UID, Counted, CountedPod
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition, OwnerReference
from app.plans.jobs.finalizers import TRACKING, loosened
from app.plans.plan import Plan, Update
from app.registry import objects
from app.registry.deletion import Demand
from app.registry.objects import Registry
from app.registry.plan_writer import write_set
from app.store import Key
from tests.build import NOW, a_job, pods
from tests.controllers.running import every, running, until
from tests.controllers.test_jobs import ends, status_is, there_are
from tests.registry import examples
from tests.registry.examples import JOBS, PODS, create, get, named

JOB = a_job()
READY = Condition(type="Ready", status="True")


def ended(name: str = "p", **metadata: Any) -> Pod:
    """A pod that its Job has counted."""
    pod = loosened(pods("s", JOB)[0])
    labels = {CONTROLLER_UID: JOB.metadata.uid, "app": "pi"}
    return replace(pod, metadata=replace(pod.metadata, **{"name": name, "labels": labels} | metadata))


def test_a_counted_pod_is_still_found_selected_and_known_to_be_over() -> None:
    pod = ended()

    short = Counted().shortened(pod)

    assert isinstance(short, CountedPod)
    kept, whole = short.metadata, pod.metadata
    assert (kept.name, kept.uid, kept.resource_version) == (whole.name, whole.uid, whole.resource_version)
    assert (kept.labels, kept.owner_references) == (whole.labels, whole.owner_references)
    assert short.status.phase == "Succeeded"


def test_the_pods_of_a_job_share_what_they_have_in_common() -> None:
    counted = Counted()

    one, two = counted.shortened(ended("one")), counted.shortened(ended("two"))

    assert isinstance(one, Pod)
    assert isinstance(two, Pod)
    assert one.spec is two.spec
    assert one.metadata.owner_references is two.metadata.owner_references


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(pods("r", JOB)[0], id="runs"),
        pytest.param(ended(finalizers=(TRACKING,)), id="waits to be counted"),
        pytest.param(ended(deletion_timestamp=NOW), id="is on its way out"),
        pytest.param(ended(owner_references=()), id="may be adopted"),
        pytest.param(ended(labels={"app": "other"}), id="is to be let go of by its Job"),
        pytest.param(replace(ended(), status=replace(ended().status, conditions=(READY,))), id="counts for a budget"),
        pytest.param(
            ended(owner_references=(OwnerReference(kind="Other", uid="else", controller=True),)), id="is not a Job's"
        ),
    ],
)
def test_a_pod_is_kept_whole_that(pod: Pod) -> None:
    assert Counted().shortened(pod) is None


def test_a_short_pod_cannot_be_written() -> None:
    short = Counted().shortened(ended(resource_version="1"))
    assert short is not None

    with pytest.raises(StopIteration):
        write_set(Plan((Update(short, short),)), (), "test", NOW)


async def test_a_look_at_a_job_does_not_meet_what_was_counted(registry: Registry) -> None:
    job = await create(registry, JOBS, examples.a_job(parallelism=2, completions=3))
    async with running(registry, JobController):
        await there_are(registry, 2)
        done = (await every(registry, PODS))[0]
        await ends(registry, [done], "Succeeded")
        await status_is(registry, succeeded=1, active=2)

    mirror = new_mirror()
    await registry.store.fill(mirror)
    assert len(mirror.owned(job.metadata.uid)) == 2
    assert isinstance(mirror.get(Key(PODS.resource, "default", done.metadata.name)), CountedPod)


async def test_a_counted_pod_that_is_labelled_anew_is_let_go_of(registry: Registry) -> None:
    await create(registry, JOBS, examples.a_job(parallelism=1, completions=2))
    async with running(registry, JobController):
        await there_are(registry, 1)
        (done,) = await every(registry, PODS)
        await ends(registry, [done], "Succeeded")
        await status_is(registry, succeeded=1, active=1)
        name = done.metadata.name
        await objects.edit(registry, PODS, "default", name, lambda old: named(old, labels={"mine": "now"}))

        async def free() -> bool:
            return not (await get(registry, PODS, name)).metadata.owner_references

        await until(registry, free)


async def test_the_counted_pods_of_a_job_go_with_it(registry: Registry) -> None:
    await create(registry, JOBS, examples.a_job(parallelism=2, completions=2))
    async with running(registry, JobController, GarbageController):
        await there_are(registry, 2)
        await ends(registry, await every(registry, PODS), "Succeeded")
        await status_is(registry, succeeded=2)
        await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))

        async def gone() -> bool:
            return not await every(registry, PODS) and await get(registry, JOBS, "pi") is None

        await until(registry, gone)
