"""What controllers keep of pods: common values once, and of counted pods little, nothing that a controller plans from."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.interning import CONTROLLER_UID, JobInterner, PodInterner, PodStub, PodStubs
from app.controllers.manager import new_mirror
from app.kinds.batch.job import Job
from app.kinds.core.configmap import ConfigMap
from app.kinds.pod.pod import Pod, PodStatus
from app.machinery.base import Condition, ManagedFieldsEntry, OwnerReference
from app.plans.jobs.finalizers import TRACKING, remove_tracking
from app.plans.plan import Plan, Update
from app.registry.codec import write_of
from app.registry.plan_writer import write_set
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Key
from tests.build import NOW, a_job, pods
from tests.controllers.batch.test_jobs import ends, status_is, there_are
from tests.controllers.running import every, running, until
from tests.registry import examples
from tests.registry.examples import JOBS, PODS, a_pod, create, get, named

JOB = a_job()
READY = Condition(type="Ready", status="True")


def ended(name: str = "p", **metadata: Any) -> Pod:
    """A pod that its Job has counted."""
    pod = remove_tracking(pods("s", JOB)[0])
    labels = {CONTROLLER_UID: JOB.metadata.uid, "app": "pi"}
    return replace(pod, metadata=replace(pod.metadata, **{"name": name, "labels": labels} | metadata))


def test_a_counted_pod_is_still_found_selected_and_known_to_be_over() -> None:
    pod = ended()

    short = PodStubs().cut(pod)

    assert isinstance(short, PodStub)
    kept, whole = short.metadata, pod.metadata
    assert (kept.name, kept.uid, kept.resource_version) == (whole.name, whole.uid, whole.resource_version)
    assert (kept.labels, kept.owner_references) == (whole.labels, whole.owner_references)
    assert short.status.phase == "Succeeded"


def test_the_pods_of_a_job_share_what_they_have_in_common() -> None:
    stubs = PodStubs()

    one, two = stubs.cut(ended("one")), stubs.cut(ended("two"))

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
    assert PodStubs().cut(pod) is None


def test_a_short_pod_cannot_be_written() -> None:
    short = PodStubs().cut(ended(resource_version="1"))
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
    assert isinstance(mirror.get(Key(PODS.resource, "default", done.metadata.name)), PodStub)


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
    async with running(registry, JobController, GarbageCollector):
        await there_are(registry, 2)
        await ends(registry, await every(registry, PODS), "Succeeded")
        await status_is(registry, succeeded=2)
        await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))

        async def gone() -> bool:
            return not await every(registry, PODS) and await get(registry, JOBS, "pi") is None

        await until(registry, gone)


TEMPLATE = pods("r", a_job())[0]


def stored(name: str, node: str = "", hostname: str = "", **status: object) -> Pod:
    """As it is read: nothing of it is anybody else's."""
    pod = replace(
        TEMPLATE,
        metadata=replace(TEMPLATE.metadata, name=name),
        spec=replace(TEMPLATE.spec, node_name=node, hostname=hostname),
        status=PodStatus(**status),
    )
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def test_pods_of_one_template_share_it_on_whatever_node_they_are() -> None:
    interner = PodInterner()
    one, other = (interner.intern(stored(f"p-{n}", f"node-{n}", f"host-{n}", phase="Pending")) for n in range(2))

    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.spec.containers is other.spec.containers
    assert one.metadata.labels is other.metadata.labels
    assert one.status is other.status
    assert (other.metadata.name, other.spec.node_name, other.spec.hostname) == ("p-1", "node-1", "host-1")


def test_what_has_been_said_of_one_pod_is_its_own() -> None:
    interner = PodInterner()
    one, other = (interner.intern(stored(f"p-{n}", phase="Running", pod_ip="10.0.0.1")) for n in range(2))

    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.status == other.status
    assert one.status is not other.status


@given(st.lists(st.sampled_from(["", "a", "b"]), min_size=3, max_size=3), st.sampled_from(["Pending", "Running", ""]))
def test_a_shared_pod_is_equal_to_the_one_that_was_read(words: list[str], phase: str) -> None:
    name, node, hostname = words
    conditions = (Condition(type="PodScheduled", status="True"),) if node else ()
    pod = stored(name, node, hostname, phase=phase, conditions=conditions)

    assert PodInterner().intern(pod) == pod


def test_what_is_no_pod_stays_as_it_is() -> None:
    data = ConfigMap(data={"a": "b"})
    assert PodInterner().intern(data) is data


async def test_the_controllers_mirror_shares_what_it_reads(registry: Registry) -> None:
    made = [replace(a_pod(name), metadata=replace(a_pod(name).metadata, uid=name)) for name in ("a", "b")]
    await registry.store.commit([write_of(PODS, pod, "A") for pod in made])
    mirror = new_mirror()
    await registry.store.fill(mirror)

    one, other = mirror.all(PODS.resource)
    assert isinstance(one, Pod)
    assert isinstance(other, Pod)
    assert one.spec.containers is other.spec.containers


def stored_job(name: str) -> Job:
    """As it is read: nothing of it is anybody else's."""
    job = a_job()
    labels = {CONTROLLER_UID: f"uid-{name}"}
    fields = ManagedFieldsEntry(manager="m", operation="Update", time=NOW, fields_v1={"f:spec": {"f:template": {}}})
    template = replace(job.spec.template, metadata=replace(job.spec.template.metadata, labels=labels))
    done = Condition(type="Complete", status="True", reason="CompletionsReached", message="all are")
    job = replace(
        job,
        metadata=replace(job.metadata, name=name, uid=f"uid-{name}", labels=labels, managed_fields=(fields,)),
        spec=replace(job.spec, template=template),
        status=replace(job.status, conditions=(done,)),
    )
    return msgspec.json.decode(msgspec.json.encode(job), type=Job)


def test_jobs_of_one_shape_share_it() -> None:
    interner = JobInterner()
    one, other = (interner.intern(stored_job(name)) for name in ("one", "other"))

    assert isinstance(one, Job)
    assert isinstance(other, Job)
    assert one.spec.template.spec is other.spec.template.spec
    assert one.spec.template.metadata.labels is one.metadata.labels
    assert one.metadata.managed_fields[0].fields_v1 is other.metadata.managed_fields[0].fields_v1
    assert one.status.conditions[0].message is other.status.conditions[0].message
    assert (one, other) == (stored_job("one"), stored_job("other"))
