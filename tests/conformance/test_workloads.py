"""Jobs get their Workload and PodGroup, and gangs are resized: Kubernetes 1.37's integration tests I30, and its manual."""

from dataclasses import replace as with_features
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.namespaces.resource_quotas import ResourceQuotaController
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota, ResourceQuotaSpec
from app.kinds.scheduling.pod_group_schema import GangSchedulingPolicy, PodGroupSchedulingPolicy, WorkloadReference
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.scheduling.workload import KIND as WORKLOADS
from app.kinds.scheduling.workload import TypedLocalObjectReference, Workload
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.machinery.feature_gates import GENERIC_WORKLOAD, WORKLOAD_WITH_JOB
from app.plans.jobs.workloads import LABEL, TEMPLATE_NAME
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.conformance.played import COMPLETE, Play
from tests.controllers.running import events, every, running, settled, until
from tests.kinds.jobs import written
from tests.registry.examples import JOBS, NAMESPACES, PODS, create, get

GANG = {"scheduling": {"schedulingPolicy": {"gang": {}}}}
PLAIN = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
OF_4 = {**PLAIN, **GANG}


@pytest.fixture
def gated(registry: Registry) -> Registry:
    """With the feature gates on."""
    return with_features(registry, features=frozenset({GENERIC_WORKLOAD, WORKLOAD_WITH_JOB}))


@pytest.fixture
def play(gated: Registry) -> Play:
    return Play(gated)


async def workloads(registry: Registry) -> list[Workload]:
    return await every(registry, WORKLOADS)


async def groups(registry: Registry) -> list[PodGroup]:
    return await every(registry, POD_GROUPS)


async def both(registry: Registry) -> tuple[Workload, PodGroup]:
    (workload,), (group,) = await workloads(registry), await groups(registry)
    return workload, group


async def none_is_left(registry: Registry) -> None:
    async def so() -> bool:
        return not (await workloads(registry) or await groups(registry) or await every(registry, PODS))

    await until(registry, so)


def in_groups(pods: list[Any]) -> set[str]:
    return {pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else "" for pod in pods}


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_a_gang_gets_its_objects_before_its_pods_and_takes_them_along(play: Play) -> None:
    job = await play.submit(OF_4)
    async with play.running():
        pods = await play.there_are(4)
        workload, group = await both(play.registry)
        born = [int(each.metadata.resource_version) for each in (workload, group, pods[0])]
        assert born == sorted(born)
        assert group.spec.scheduling_policy.gang.min_count == 4
        assert in_groups(pods) == {group.metadata.name}
        assert [each.uid for each in pods[0].metadata.owner_references] == [job.metadata.uid, group.metadata.uid]
        assert [each.uid for each in group.metadata.owner_references] == [job.metadata.uid, workload.metadata.uid]
        await play.shows(active=4, succeeded=0)

        await play.fail(pods[0])
        await play.shows(failed=1)
        await play.delete("Background")
        await play.all_are_free()
        await none_is_left(play.registry)
    told = [reason for reason, _ in await events(play.registry)]
    assert (told.count("WorkloadCreated"), told.count("PodGroupCreated")) == (1, 1)


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_i30_every_way_to_delete_a_job_does_to_them_what_it_does_to_its_pods(
    play: Play, propagation: str
) -> None:
    job = await play.submit(OF_4)
    async with play.running():
        await play.there_are(4)
        await play.delete(propagation)
        if propagation == "Foreground":
            await none_is_left(play.registry)
            return
        await play.still()
    workload, group = await both(play.registry)
    owners = {each.uid for obj in (workload, group, *await play.pods()) for each in obj.metadata.owner_references}
    assert owners == {workload.metadata.uid, group.metadata.uid}
    assert job.metadata.uid not in owners


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_suspension_keeps_the_objects(play: Play) -> None:
    await play.submit({**OF_4, "suspend": True})
    async with play.running():
        await play.shows(true=("Suspended",))
        before = await both(play.registry)
        await play.alter({"suspend": False})
        assert in_groups(await play.there_are(4)) == {before[1].metadata.name}
        await play.alter({"suspend": True})
        await play.there_are(0)
        await play.alter({"suspend": False})
        assert in_groups(await play.there_are(4)) == {before[1].metadata.name}
        await play.still()
    assert await both(play.registry) == before


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_controllers_that_die_leave_one_of_each(play: Play) -> None:
    await play.submit(OF_4)
    await play.crash()
    async with play.running():
        pods = await play.there_are(4)
        _, group = await both(play.registry)
    await play.fail(pods[2])
    await play.crash()
    async with play.running() as controllers:
        controllers.move(seconds=20)
        assert in_groups(await play.there_are(4)) == {group.metadata.name}
        await play.succeed(*await play.active())
        await play.shows(succeeded=4, failed=1, true=COMPLETE)
        await play.still()
    assert (await both(play.registry))[1] == group


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_a_gang_by_its_own_word_is_resized_with_its_job(play: Play) -> None:
    await play.submit({"parallelism": 4, "completions": 8, **GANG})
    async with play.running():
        await play.there_are(4)
        await play.alter({"parallelism": 2})
        await play.there_are(2)
        await play.still()
        workload, group = await both(play.registry)
        assert group.spec.scheduling_policy.gang.min_count == 2
        assert workload.spec.pod_group_templates[0].scheduling_policy == group.spec.scheduling_policy
        await play.alter({"scheduling": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
        await play.still()
    assert (await both(play.registry))[1].spec.scheduling_policy.gang.min_count == 1


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"parallelism": 3}, id="without indexes"),
        pytest.param({**PLAIN, "parallelism": 1, "completions": 1}, id="of one pod"),
        pytest.param({**PLAIN, "parallelism": 2, "completions": 5}, id="of which indexes wait"),
    ],
)
async def test_i30_every_other_job_has_them_too_and_is_scheduled_pod_by_pod(play: Play, spec: dict[str, Any]) -> None:
    await play.submit(spec)
    async with play.running():
        pods = await play.there_are(spec["parallelism"])
        _, group = await both(play.registry)

    assert in_groups(pods) == {group.metadata.name}
    assert group.spec.scheduling_policy.gang is None
    assert group.spec.scheduling_policy.basic is not None


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_a_delegated_job_gets_a_group_from_the_workload_of_its_owner(play: Play) -> None:
    theirs = msgspec.yaml.decode(WORKLOADS.example, type=Workload)
    reference = TypedLocalObjectReference(api_group="example.com", kind="SuperJob", name="parent")
    before = await create(
        play.registry, WORKLOADS, replace(theirs, spec=replace(theirs.spec, controller_ref=reference))
    )
    owner = {"apiVersion": "example.com/v1", "kind": "SuperJob", "name": "parent", "uid": "u", "controller": True}
    await play.submit(PLAIN, metadata={"annotations": {TEMPLATE_NAME: "workers"}, "ownerReferences": [owner]})
    async with play.running():
        pods = await play.there_are(4)
        workload, group = await both(play.registry)
        assert workload == before
        assert in_groups(pods) == {group.metadata.name}
        assert group.spec.workload_ref == WorkloadReference(workload_name="training", template_name="workers")
        assert [each.kind for each in group.metadata.owner_references] == ["Job"]
        await objects.edit(play.registry, WORKLOADS, "default", "training", _with_three)
        await play.still()
    assert (await both(play.registry))[1].spec.scheduling_policy.gang.min_count == 3


def _with_three(workload: Workload) -> Workload:
    (template,) = workload.spec.pod_group_templates
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=3))
    templates = (replace(template, scheduling_policy=policy),)
    return replace(workload, spec=replace(workload.spec, pod_group_templates=templates))


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_a_job_whose_pods_are_in_a_group_already_gets_none(play: Play) -> None:
    await play.submit(OF_4, pod={"schedulingGroup": {"podGroupName": "ours"}})
    async with play.running():
        pods = await play.there_are(4)

    assert in_groups(pods) == {"ours"}
    assert [len(pod.metadata.owner_references) for pod in pods] == [1] * 4
    assert await workloads(play.registry) == await groups(play.registry) == []


@pytest.mark.scenario("I30", "gangs: objects before pods, suspension, resizing, deletion, objects of others")
async def test_i30_what_somebody_else_made_for_the_job_is_not_touched(play: Play) -> None:
    theirs = msgspec.yaml.decode(WORKLOADS.example, type=Workload)
    theirs = replace(theirs, spec=replace(theirs.spec, controller_ref=replace(theirs.spec.controller_ref, name="pi")))
    before = await create(play.registry, WORKLOADS, theirs)
    await play.submit(OF_4)
    async with play.running():
        pods = await play.there_are(4)
        (group,) = await groups(play.registry)
        assert in_groups(pods) == {group.metadata.name}
        await play.still()

    assert before in await workloads(play.registry)
    assert len(await workloads(play.registry)) == 2


# --- where it is on


async def test_by_default_nothing_is_made(registry: Registry) -> None:
    play = Play(registry)
    await play.submit(OF_4, pod={"schedulingGroup": {"podGroupName": "ours"}})
    async with play.running():
        assert in_groups(await play.there_are(4)) == {""}

    assert await workloads(registry) == await groups(registry) == []
    assert (await play.job()).spec.scheduling is None


@pytest.mark.parametrize("labelled", ["Job", "namespace"])
async def test_a_label_is_enough(registry: Registry, labelled: str) -> None:
    registry = with_features(registry, features=frozenset({GENERIC_WORKLOAD}))
    play, label = Play(registry), {LABEL: "true"}
    if labelled == "namespace":
        await objects.edit(registry, NAMESPACES, "", "default", lambda each: _labelled(each, label))
    await play.submit(PLAIN, metadata={"labels": label} if labelled == "Job" else {})
    await play.submit(PLAIN, name="other")
    async with play.running():
        await play.there_are(4)
        await play.still()

    found = await groups(registry)
    assert [each.spec.scheduling_policy.gang.min_count for each in found] == [4] * (1 if labelled == "Job" else 2)


def _labelled(obj: Any, labels: dict[str, str]) -> Any:
    return replace(obj, metadata=replace(obj.metadata, labels={**obj.metadata.labels, **labels}))


async def test_jobs_that_were_there_before_go_on_without(registry: Registry, gated: Registry) -> None:
    play = Play(registry)
    await play.submit(OF_4)
    async with play.running():
        pods = await play.there_are(4)
        await play.fail(pods[0])
        await play.shows(failed=1)
    play = Play(gated)
    async with play.running() as controllers:
        controllers.move(seconds=20)
        assert in_groups(await play.there_are(4)) == {""}

    assert await groups(gated) == []


# --- what the API says


async def refusal(play: Play, spec: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        await play.alter(spec)
    assert caught.value.code == 422
    return caught.value.message


async def test_what_a_job_says_of_its_scheduling_is_kept_where_it_is_on(play: Play) -> None:
    await play.submit(OF_4)

    assert (await play.job()).spec.scheduling is not None
    assert "spec.scheduling.schedulingPolicy: Invalid value" in await refusal(
        play, {"scheduling": {"schedulingPolicy": {"gang": None, "basic": {}}}}
    )


async def test_a_job_keeps_what_it_says_when_the_gate_is_closed_again(play: Play, registry: Registry) -> None:
    await play.submit(OF_4)
    later = Play(registry)
    await later.alter({"backoffLimit": 3})
    assert (await later.job()).spec.scheduling is not None

    await later.submit(PLAIN, name="other")
    await later.alter(GANG, name="other")
    assert (await later.job("other")).spec.scheduling is None


async def test_a_cron_jobs_template_loses_it_too_where_it_is_off(registry: Registry, gated: Registry) -> None:
    kept = []
    for each, name in ((registry, "off"), (gated, "on")):
        made = await create(each, CRON_JOBS, a_cron_job(name, GANG))
        kept.append(made.spec.job_template.spec.scheduling is not None)

    assert kept == [False, True]


def a_cron_job(name: str, spec: dict[str, Any]) -> CronJob:
    job = msgspec.to_builtins(written({**PLAIN, **spec}))
    manifest = {"metadata": {"name": name}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job["spec"]}}}
    made: CronJob = msgspec.convert(manifest, CronJob)
    return made


async def test_each_job_of_a_cron_job_gets_its_own(gated: Registry) -> None:
    await create(gated, CRON_JOBS, a_cron_job("often", GANG))
    async with running(gated, CronJobController, JobController) as controllers:
        for wanted in (1, 2):
            controllers.move(minutes=1)

            async def so(wanted: int = wanted) -> bool:
                return len(await groups(gated)) == wanted

            await until(gated, so)
        await settled(gated)

    jobs = await every(gated, JOBS)
    assert {group.metadata.owner_references[0].uid for group in await groups(gated)} == {
        job.metadata.uid for job in jobs
    }
    assert len(await workloads(gated)) == len(jobs) == 2


async def test_quotas_count_the_objects_exactly(gated: Registry) -> None:
    name = "count/podgroups.scheduling.k8s.io"
    hard = {name: "1", "count/workloads.scheduling.k8s.io": "5", "pods": "10"}
    quota = ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard=hard))
    play = Play(gated)
    async with running(gated, JobController, ResourceQuotaController, GarbageCollector) as controllers:
        await create(gated, QUOTAS, quota)
        await _used(gated, dict.fromkeys(hard, "0"))
        await play.submit(OF_4)
        await play.there_are(4)
        await play.submit(OF_4, name="second")
        await settled(gated)
        await _used(gated, {name: "1", "count/workloads.scheduling.k8s.io": "1", "pods": "4"})
        assert "FailedWorkloadCreate" in [reason for reason, _ in await events(gated)]
        assert (await play.job("second")).status.start_time is None
        assert await play.pods(job="second") == []

        await play.delete("Background")
        await play.all_are_free()

        async def so() -> bool:
            return len(await play.pods(job="second")) == 4

        controllers.move(seconds=120)
        await until(gated, so)
        await _used(gated, {name: "1", "count/workloads.scheduling.k8s.io": "1", "pods": "4"})


async def _used(registry: Registry, wanted: dict[str, str]) -> None:
    async def so() -> bool:
        return (await get(registry, QUOTAS, "q")).status.used == wanted

    await until(registry, so)


async def test_a_group_that_somebody_deletes_is_made_again(play: Play) -> None:
    await play.submit(OF_4)
    async with play.running() as controllers:
        pods = await play.there_are(4)
        _, group = await both(play.registry)
        await objects.delete(play.registry, POD_GROUPS, "default", group.metadata.name, Demand())

        async def again() -> bool:
            return [each.metadata.uid for each in await groups(play.registry)] not in ([], [group.metadata.uid])

        await until(play.registry, again)
        await play.fail(pods[0])
        controllers.move(seconds=20)
        await play.there_are(4)
        await play.still()
        assert in_groups(await play.active()) == {group.metadata.name}
