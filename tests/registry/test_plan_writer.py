"""From plans to write sets: of two plans that were made from the same state, one is carried out."""

import pytest
from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.plans.jobs.job import plan
from app.plans.plan import Create, Emit, SetStatus
from app.registry.plan_writer import write_set
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import random_name
from app.store import Conflict
from tests.build import stored
from tests.controllers.running import every
from tests.registry.examples import JOBS, PODS, a_job, create, get


async def test_a_plan_that_changes_no_status_is_still_refused_if_another_came_first(registry: Registry) -> None:
    """A pod is gone that nobody counted. Its replacement leaves the figures as they are, and names nothing that exists."""
    await create(registry, JOBS, a_job())
    begun = stored(plan(await get(registry, JOBS, "pi"), [], registry.now(), random_name), a_job())
    await objects.rewrite(registry, JOBS, "default", "pi", lambda old: replace(old, status=begun.status))
    job = await get(registry, JOBS, "pi")
    first, second = (plan(job, [], registry.now(), random_name) for _ in range(2))
    assert [type(each) for each in first.actions] == [Create, Emit]

    await registry.store.commit(write_set(first, [job], "job-controller", registry.now()))
    with pytest.raises(Conflict):
        await registry.store.commit(write_set(second, [job], "job-controller", registry.now()))

    (pod,) = await every(registry, PODS)
    assert pod.metadata.name == next(each.object.metadata.name for each in first.actions if isinstance(each, Create))


async def test_an_object_that_a_plan_writes_is_written_once(registry: Registry) -> None:
    await create(registry, JOBS, a_job())
    job = await get(registry, JOBS, "pi")
    made = plan(job, [], registry.now(), random_name)
    assert any(isinstance(each, SetStatus) for each in made.actions)

    writes = write_set(made, [job], "job-controller", registry.now())

    assert [each.change for each in writes if each.uid == job.metadata.uid] == ["M"]
    assert sum(isinstance(each.object, Pod) for each in writes) == 1
