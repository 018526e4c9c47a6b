"""What a Job says of pods that do not come, on a real database: each thing once, however often it is looked at."""

import re
from collections.abc import AsyncIterator

import pytest

from app.controllers.jobs import JobController
from app.registry.objects import Registry
from tests.controllers.running import Running, events, running, settled, until
from tests.controllers.test_jobs import ends, pods, status_is, there_are
from tests.registry.examples import JOBS, a_job, create, get

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
