"""What a Job says of pods that do not come, on a real database: each thing once, however often it is looked at."""

import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from app.controllers.batch.job_pending_pods import JobPendingPods
from app.controllers.batch.jobs import JobController
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.node import KIND as NODES
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus
from app.kinds.pod.container import (
    Container,
    ContainerState,
    ContainerStateWaiting,
    ContainerStatus,
    ResourceRequirements,
)
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import ObjectMeta
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.build import a_template
from tests.controllers.batch.test_jobs import ends, pods, status_is, there_are
from tests.controllers.running import Running, events, every, running, settled, until
from tests.registry.examples import JOBS, a_job, create, get
from tests.scheduler.cluster import a_node

INDEXED = {"completion_mode": "Indexed", "parallelism": 2, "completions": 2}


@pytest.fixture
async def controllers(registry: Registry) -> AsyncIterator[Running]:
    async with running(registry, JobController) as found:
        yield found


async def told(controllers: Running, reason: str) -> list[str]:
    """The messages with this reason, once there are any and all has been looked at three times more."""

    async def so() -> list[str]:
        return [message for each, message in await events(controllers.registry) if each == reason]

    await until(controllers.registry, so)
    for _ in range(3):
        controllers.look_again()
        await settled(controllers.registry, 0.1)
    return await so()


async def test_when_it_tries_again(registry: Registry, controllers: Running) -> None:
    await create(registry, JOBS, a_job())
    await there_are(registry, 1)
    await ends(registry, await pods(registry), "Failed")

    (message,) = await told(controllers, "BackingOff")
    failures, at = (await get(registry, JOBS, "pi")).metadata.annotations["jobplane.dev/backoff"].split(";")
    assert (failures, message[:24]) == ("1", "Attempt 2 of 7 starts at")
    assert at.endswith("Z")

    controllers.move(seconds=10)
    await status_is(registry, failed=1, active=1)
    await ends(registry, await pods(registry, "Pending"), "Failed")
    await status_is(registry, failed=2, active=0)
    assert len(await told(controllers, "BackingOff")) == 2


async def test_that_the_deadline_comes_before_the_next_try(registry: Registry, controllers: Running) -> None:
    await create(registry, JOBS, a_job(active_deadline_seconds=5))
    await there_are(registry, 1)
    await ends(registry, await pods(registry), "Failed")

    (message,) = await told(controllers, "NoMoreTries")
    assert message.startswith("No more tries: no pod is created until ")
    controllers.move(seconds=5)
    assert await told(controllers, "DeadlineExceeded")
    assert len(await pods(registry)) == 1


async def test_which_index_waits_and_which_is_given_up(registry: Registry, controllers: Running) -> None:
    await create(registry, JOBS, a_job(backoff_limit_per_index=1, **INDEXED))
    await there_are(registry, 2)
    await ends(registry, [pod for pod in await pods(registry) if pod.spec.hostname == "pi-1"], "Failed")

    (message,) = await told(controllers, "BackingOff")
    assert re.match(r"Index 1 failed once \(pod pi-1-\w+ failed\) and is tried again at 2", message)
    controllers.move(seconds=10)
    await there_are(registry, 2, "Pending")
    again = [pod for pod in await pods(registry, "Pending") if pod.spec.hostname == "pi-1"]
    await ends(registry, again, "Failed")

    assert await told(controllers, "IndexFailed") == ["Index 1 failed 2 times and is not tried again"]
    job = await get(registry, JOBS, "pi")
    assert (job.status.failed_indexes, job.metadata.annotations) == ("1", {})


async def test_that_it_is_suspended_and_that_it_goes_on(registry: Registry, controllers: Running) -> None:
    """In Kubernetes' own words."""
    await create(registry, JOBS, a_job(suspend=True))

    assert await told(controllers, "Suspended") == ["Job suspended"]


# --- pods that are there, and do not start


@pytest.fixture
async def scheduling(registry: Registry) -> AsyncIterator[Running]:
    async with running(registry, JobController, JobPendingPods, Scheduler) as found:
        yield found


async def test_that_its_pods_fit_no_node_and_what_would_have_to_change(registry: Registry, scheduling: Running) -> None:
    """Once, however many pods it has; again only if another leader finds it so."""
    await create(registry, NODES, a_node(cpu="1"))
    needs = ResourceRequirements(requests={"cpu": "2"})
    template = a_template({"app": "pi"}, containers=(Container(name="main", image="busybox", resources=needs),))
    await create(registry, JOBS, a_job(template=template, parallelism=3, completions=3))
    await there_are(registry, 3)

    (message,) = await told(scheduling, "PodUnschedulable")
    pod, _, why = message.removeprefix("Pod ").partition(" is not placed: ")
    assert pod in {each.metadata.name for each in await pods(registry)}
    assert why.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert why.endswith("Fits if a node with 2 CPUs joins, or the pod requests less: the largest is n1 with 1.")
    (event,) = [each for each in await every(registry, EVENTS) if each.reason == "PodUnschedulable"]
    assert (event.involved_object.kind, event.involved_object.name, event.count) == ("Job", "pi", 1)


async def test_that_its_containers_do_not_start_once_for_each_cause(registry: Registry) -> None:
    async with running(registry, JobController, JobPendingPods) as controllers:
        await create(registry, JOBS, a_job(parallelism=2, completions=2))
        await there_are(registry, 2)
        for reason in ("ContainerCreating", "ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
            for pod in await pods(registry):
                await waits(registry, pod.metadata.name, reason, f"no such image, says {reason}")
        messages = await told(controllers, "PodStartFailed")

    assert [re.sub(r"pi-\w+", "pi-x", each) for each in messages] == [
        "Container main of pod pi-x does not start: ErrImagePull: no such image, says ErrImagePull",
        "Container main of pod pi-x does not start: ImagePullBackOff: no such image, says ImagePullBackOff",
    ]


async def waits(registry: Registry, pod: str, reason: str, message: str) -> None:
    """As the agent reports it."""
    state = ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))
    status = ContainerStatus(name="main", image="busybox", image_id="", state=state)

    def edit(old: Pod) -> Pod:
        return replace(old, status=replace(old.status, container_statuses=(status,)))

    await objects.rewrite(registry, PODS, "default", pod, edit)


async def test_that_a_quota_refuses_its_pods_and_that_it_has_room(registry: Registry, controllers: Running) -> None:
    quota = ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard={"pods": "0"}))
    await create(registry, QUOTAS, quota)
    await objects.rewrite(registry, QUOTAS, "default", "q", lambda old: replace(old, status=_used(old)))
    await create(registry, JOBS, a_job())

    (message,) = await told(controllers, "FailedCreate")
    assert "is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in message


def _used(quota: ResourceQuota) -> ResourceQuotaStatus:
    return ResourceQuotaStatus(hard=quota.spec.hard, used={"pods": "0"})
