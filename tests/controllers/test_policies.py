"""Admission policies for what controllers create: refused with an event, and asked once for pods that are alike."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.jobs import JobController
from app.kinds.admission.validating_admission_policy import KIND as POLICIES
from app.kinds.admission.validating_admission_policy_binding import KIND as BINDINGS
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.core.event import KIND as EVENTS
from app.machinery.base import Object
from app.plans.admission.policies.sharing import distinct_pods, looks_at_one_pod
from app.registry.verbs import deletion, objects
from app.registry.verbs.objects import Registry
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create, example

RULES = {
    "pods": {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
    "jobs": {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]},
}


async def a_policy(registry: Registry, expression: str, resource: str = "pods") -> None:
    spec = {
        "matchConstraints": {"resourceRules": [RULES[resource]]},
        "validations": [{"expression": expression, "messageExpression": "'not for ' + request.userInfo.username"}],
    }
    await create(registry, POLICIES, msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, POLICIES.type))
    spec = {"policyName": "p", "validationActions": ["Deny"]}
    await create(registry, BINDINGS, msgspec.convert({"metadata": {"name": "b"}, "spec": spec}, BINDINGS.type))


async def failures(registry: Registry) -> list[str]:
    return [each.message for each in await every(registry, EVENTS) if each.reason == "FailedCreate"]


async def test_pods_of_a_job_are_refused_with_pauses_and_come_when_the_policy_is_gone(registry: Registry) -> None:
    await a_policy(registry, "object.spec.containers.all(c, c.image.startsWith('registry.lab/'))")
    await create(registry, JOBS, a_job(parallelism=3, completions=3))

    async with running(registry, JobController):
        await until(registry, lambda: failures(registry))
        await settled(registry, 0.1)
        (message,) = await failures(registry)
        assert message.startswith('Error creating: pods "pi-')
        assert (
            "\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
            "not for system:serviceaccount:kube-system:job-controller; tried again in 1s" in message
        )
        revision = await registry.revision()
        await settled(registry, 0.3)
        assert await registry.revision() == revision, "nothing is tried before the pause is over"

        await objects.delete(registry, BINDINGS, "", "b", deletion.Demand())

        async def are_there() -> bool:
            return len(await every(registry, PODS)) == 3

        await until(registry, are_there)


async def test_the_job_of_a_cronjob_is_refused(registry: Registry) -> None:
    await a_policy(registry, "has(object.metadata.labels) && 'team' in object.metadata.labels", "jobs")
    cron_job: Any = example(CRON_JOBS)
    await create(
        registry, CRON_JOBS, replace(cron_job, spec=replace(cron_job.spec, schedule="* * * * *", time_zone=None))
    )

    async with running(registry, CronJobController) as controllers:
        controllers.move(seconds=61)
        await until(registry, lambda: failures(registry))

    assert (
        "denied request: not for system:serviceaccount:kube-system:cronjob-controller" in (await failures(registry))[0]
    )
    assert not await every(registry, JOBS)


class Counting:
    """What the policy process was asked, by the number of objects."""

    def __init__(self, registry: Registry) -> None:
        self.asked = 0
        evaluator = registry.admission.reviewer.evaluator
        self._evaluate = evaluator.evaluate
        evaluator.evaluate = self.evaluate  # type: ignore[method-assign]

    async def evaluate(self, specs: Any, documents: Sequence[Any], asks: Sequence[Any]) -> Any:
        self.asked += len(asks)
        return await self._evaluate(specs, documents, asks)


@pytest.mark.parametrize("indexed", [False, True])
async def test_pods_that_are_alike_are_evaluated_once(registry: Registry, indexed: bool) -> None:
    await a_policy(registry, "object.spec.containers.all(c, c.image != 'evil')")
    mode = {"completion_mode": "Indexed"} if indexed else {}
    counting = Counting(registry)
    await create(registry, JOBS, a_job(parallelism=1200, completions=1200, **mode))

    async with running(registry, JobController):

        async def are_there() -> bool:
            return len(await every(registry, PODS)) == 1200

        await until(registry, are_there)

    assert counting.asked <= 8, "one for each plan of 500 pods, and for plans that were refused meanwhile"


async def test_a_policy_that_looks_at_the_name_sees_each_pod(registry: Registry) -> None:
    await a_policy(registry, "!object.metadata.name.startsWith('pi-2-')")
    await create(registry, JOBS, a_job(parallelism=4, completions=4, completion_mode="Indexed"))

    async with running(registry, JobController):
        await until(registry, lambda: failures(registry))

    assert 'pods "pi-2-' in (await failures(registry))[0]


@pytest.mark.parametrize(
    ("expression", "own"),
    [
        ("object.spec.containers.all(c, c.image == 'x')", False),
        ("has(object.spec.nodeSelector) && object.spec.nodeSelector['pool'] in ['a']", False),
        ("has(object.metadata.labels) && 'team' in object.metadata.labels", False),
        ("object.metadata.labels['team'] == 'a' && object.metadata.labels.app == 'b'", False),
        ("request.userInfo.username == 'x' || request.namespace == 'y'", False),
        ("oldObject == null", False),
        ("object.metadata.name == 'x'", True),
        ("object.spec.hostname == 'x'", True),
        ("object.metadata.labels.all(k, k != 'x')", True),
        ("object.metadata.labels['batch.kubernetes.io/job-completion-index'] == '1'", True),
        ("object.metadata.annotations.a == 'b'", True),
        ("dyn(object) == 1", True),
        ("[object].all(o, o.spec.hostname == 'x')", True),
        ("request.name == 'x'", True),
        ("request.uid == 'x'", True),
    ],
)
def test_which_expressions_may_differ_between_pods_of_a_job(expression: str, own: bool) -> None:
    spec = msgspec.convert({"spec": {"validations": [{"expression": expression}]}}, POLICIES.type).spec

    assert looks_at_one_pod(spec) == own


def test_pods_of_one_sort() -> None:
    pods = [a_pod("a"), a_pod("b", hostname="x"), a_pod("c", host_pid=True), a_pod("d", {"labels": {"x": "y"}})]

    found: Sequence[Object] = distinct_pods(pods)

    assert [each.metadata.name for each in found] == ["a", "c", "d"]
