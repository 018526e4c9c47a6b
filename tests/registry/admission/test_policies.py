"""Admission policies on a real registry, with a real policy process: what is refused, warned of and audited, in what words."""

import asyncio
import os
import signal
import time
from typing import Any

import msgspec
import pytest

from app.kinds.admission.validating_admission_policy import KIND as POLICIES
from app.kinds.admission.validating_admission_policy_binding import KIND as BINDINGS
from app.kinds.core.configmap import KIND as CONFIG_MAPS
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.registry.admission.policy_evaluator import PolicyEvaluator
from app.registry.admission.requester import REQUESTER, ServiceAccountUser
from app.registry.verbs import deletion, objects
from app.registry.verbs.objects import Answer, Registry
from app.registry.verbs.versions import UpdateOptions
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, create, get, named

JOB_RULE = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["jobs"]}
POD_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
TEAM = {
    "expression": "has(object.metadata.labels) && 'team' in object.metadata.labels",
    "message": "needs the label team",
}
SLOW = "[{0}].all(a, [{0}].all(b, !object.metadata.annotations['a'].matches('(a|aa|aaa|b)*c')))".format(
    ",".join(map(str, range(90)))
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    """One for all tests: a policy process takes most of a second to start."""
    return restored


async def a_policy(registry: Registry, *validations: dict, rule: dict = JOB_RULE, name: str = "p", **spec: Any) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": list(validations)} | spec,
    }
    await create(registry, POLICIES, msgspec.convert(body, POLICIES.type))


async def a_binding(registry: Registry, *actions: str, name: str = "b", policy: str = "p", **spec: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"policyName": policy, "validationActions": actions or ["Deny"]} | spec}
    await create(registry, BINDINGS, msgspec.convert(body, BINDINGS.type))


async def refusal(call: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        await call
    return error.value


async def made(registry: Registry, obj: Object) -> Answer:
    return await objects.create(registry, JOBS, "default", obj)


def denied(message: str, name: str = "pi") -> str:
    return (
        f"jobs.batch \"{name}\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}"
    )


async def test_a_policy_is_in_force_where_a_binding_names_it(registry: Registry) -> None:
    await a_policy(registry, TEAM)
    await create(registry, JOBS, a_job("before"))
    await a_binding(registry)

    error = await refusal(create(registry, JOBS, a_job()))

    assert (error.code, error.reason, error.message) == (422, "Invalid", denied("needs the label team"))
    assert error.details["causes"] == [{"message": error.message.partition("forbidden: ")[2]}]
    await create(registry, JOBS, named(a_job(), labels={"team": "a"}))
    await objects.delete(registry, BINDINGS, "", "b", deletion.Demand())
    await create(registry, JOBS, a_job("after"))


async def test_updates_are_judged_with_the_old_object_and_deletes_by_it(registry: Registry) -> None:
    rule = JOB_RULE | {"operations": ["UPDATE", "DELETE"]}
    keeps = {
        "expression": "request.operation == 'DELETE' ? oldObject.metadata.name != 'pi' : "
        "object.metadata.?labels.team == oldObject.metadata.?labels.team",
        "messageExpression": "'not by ' + request.userInfo.username",
        "reason": "Forbidden",
    }
    await a_policy(registry, keeps, rule=rule)
    await a_binding(registry)
    await create(registry, JOBS, named(a_job(), labels={"team": "a"}))

    def relabel(old: Object) -> Object:
        return named(old, labels={"team": "b"})

    def annotate(old: Object) -> Object:
        return named(old, annotations={"a": "b"})

    token = REQUESTER.set(ServiceAccountUser("ada"))
    try:
        error = await refusal(objects.edit(registry, JOBS, "default", "pi", relabel))
        assert (error.code, error.message) == (403, denied("not by ada"))
        await objects.edit(registry, JOBS, "default", "pi", annotate)
        error = await refusal(objects.delete(registry, JOBS, "default", "pi", deletion.Demand()))
        assert error.message == denied("not by ada")
    finally:
        REQUESTER.reset(token)
    assert (await get(registry, JOBS, "pi")).metadata.labels["team"] == "a"


async def test_subresources_are_matched_by_name_only(registry: Registry) -> None:
    await a_policy(registry, {"expression": "false", "message": "no"}, rule=JOB_RULE | {"resources": ["jobs/status"]})
    await a_binding(registry)
    await create(registry, JOBS, a_job())

    def annotate(old: Object) -> Object:
        return named(old, annotations={"a": "b"})

    await objects.edit(registry, JOBS, "default", "pi", annotate)
    error = await refusal(objects.edit(registry, JOBS, "default", "pi", annotate, UpdateOptions(status=True)))
    assert error.message == denied("no")


async def test_warnings_and_audit_annotations(registry: Registry) -> None:
    await a_policy(
        registry,
        TEAM,
        auditAnnotations=[
            {"key": "name", "valueExpression": "object.metadata.name"},
            {"key": "none", "valueExpression": "null"},
        ],
    )
    await a_binding(registry, "Warn", "Audit")

    said = await made(registry, a_job())

    assert said.warnings[-1] == (
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': needs the label team"
    )
    assert said.audit_annotations is not None
    assert said.audit_annotations["p/name"] == "pi"
    assert msgspec.json.decode(said.audit_annotations["validation.policy.admission.k8s.io/validation_failure"]) == [
        {"message": "needs the label team", "policy": "p", "binding": "b", "validationActions": ["Warn", "Audit"]}
    ]


async def test_selectors_conditions_and_exclusions_narrow_a_policy(registry: Registry) -> None:
    await a_policy(
        registry,
        {"expression": "false", "message": "no"},
        matchConstraints={
            "resourceRules": [JOB_RULE],
            "excludeResourceRules": [JOB_RULE | {"resourceNames": ["exempt"]}],
            "objectSelector": {"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
        },
        matchConditions=[
            {"name": "gpu", "expression": "object.metadata.name.startsWith('gpu') || object.metadata.name == 'exempt'"}
        ],
    )
    await a_binding(registry, matchResources={"namespaceSelector": {"matchLabels": {"strict": "yes"}}})

    await create(registry, JOBS, a_job("gpu-1"))

    def strict(old: Object) -> Object:
        return named(old, labels={"strict": "yes"})

    await objects.edit(registry, NAMESPACES, "", "default", strict)
    assert (await refusal(create(registry, JOBS, a_job("gpu-2")))).message == denied("no", "gpu-2")
    await create(registry, JOBS, a_job("cpu"))
    await create(registry, JOBS, a_job("exempt"))
    await create(registry, JOBS, named(a_job("gpu-3"), labels={"skip": "x"}))


async def test_parameters_are_read_from_a_configmap(registry: Registry) -> None:
    allowed = {
        "expression": "object.spec.template.spec.containers.all(c, c.image.startsWith(params.data.registry))",
        "messageExpression": "'images must be from ' + params.data.registry",
    }
    await a_policy(registry, allowed, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    await a_binding(registry, paramRef={"name": "images", "parameterNotFoundAction": "Deny"})

    assert "no params found" in (await refusal(create(registry, JOBS, a_job()))).message
    config = msgspec.convert({"metadata": {"name": "images"}, "data": {"registry": "registry.lab/"}}, CONFIG_MAPS.type)
    await create(registry, CONFIG_MAPS, config)
    assert (await refusal(create(registry, JOBS, a_job()))).message == denied("images must be from registry.lab/")


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    ("expression", "why"),
    [
        pytest.param("object.spec.nothing == 1", "Key not found in map", id="a missing field"),
        pytest.param("object.metadata.name + 1 == 2", "No matching overloads", id="a wrong type"),
        pytest.param(SLOW, "running out of cost budget", id="too slow"),
        pytest.param(
            "variables.v30.size() > 0",
            "running out of cost budget",
            id="too large",
        ),
    ],
)
async def test_what_cannot_be_evaluated_is_never_ignored_by_itself(
    registry: Registry, failure_policy: str, expression: str, why: str
) -> None:
    doubling = [{"name": "v0", "expression": "object.metadata.annotations['a']"}]
    doubling += [{"name": f"v{n}", "expression": f"variables.v{n - 1} + variables.v{n - 1}"} for n in range(1, 31)]
    await a_policy(registry, {"expression": expression}, failurePolicy=failure_policy, variables=doubling)
    await a_binding(registry)
    job = named(a_job(), annotations={"a": "aab" * 60_000})
    slowest, ticking = 0.0, True

    async def tick() -> None:
        nonlocal slowest
        while ticking:
            began = time.thread_time()
            await asyncio.sleep(0.005)
            slowest = max(slowest, time.thread_time() - began)

    watching = asyncio.create_task(tick())
    try:
        if failure_policy == "Fail":
            error = await refusal(create(registry, JOBS, job))
            assert why in error.message
        else:
            await create(registry, JOBS, job)
        await create(registry, CONFIG_MAPS, CONFIG_MAPS.type(metadata=named(job, name="c").metadata))
    finally:
        ticking = False
        await watching
    assert slowest < 0.05, "seconds of this thread's CPU time between two turns of the loop"


async def test_a_policy_that_runs_too_long_does_not_speak_for_others(registry: Registry) -> None:
    await a_policy(registry, {"expression": SLOW}, failurePolicy="Ignore", name="a-slow")
    await a_binding(registry, name="slow", policy="a-slow")
    await a_policy(registry, TEAM)
    await a_binding(registry)

    job = named(a_job(), annotations={"a": "aab" * 60_000})
    assert (await refusal(create(registry, JOBS, job))).message == denied("needs the label team")
    await create(registry, JOBS, named(job, labels={"team": "a"}))


async def test_a_policy_process_that_was_killed_is_started_anew(registry: Registry) -> None:
    await a_policy(registry, TEAM)
    await a_binding(registry)
    await refusal(create(registry, JOBS, a_job()))
    process = registry.admission.reviewer.evaluator._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)

    assert (await refusal(create(registry, JOBS, a_job()))).message == denied("needs the label team")
    await create(registry, JOBS, named(a_job(), labels={"team": "a"}))


async def test_a_refusal_never_comes_from_a_binding_that_is_gone(registry: Registry) -> None:
    other = Registry(registry.store, registry.clock)
    await a_policy(registry, TEAM)
    await a_binding(registry)
    await refusal(create(other, JOBS, a_job()))
    await objects.delete(registry, BINDINGS, "", "b", deletion.Demand())

    await create(other, JOBS, a_job())


async def test_without_a_policy_about_it_nothing_is_started(registry: Registry) -> None:
    registry.admission.reviewer.evaluator = PolicyEvaluator()
    await a_policy(registry, TEAM)
    await a_binding(registry)

    await create(registry, PODS, a_pod())

    assert registry.admission.reviewer.evaluator._process is None


async def test_policies_are_never_subject_to_policies(registry: Registry) -> None:
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}
    await a_policy(registry, {"expression": "false"}, rule=everything)
    await a_binding(registry)

    await objects.delete(registry, BINDINGS, "", "b", deletion.Demand())
    await objects.delete(registry, POLICIES, "", "p", deletion.Demand())


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"validations": [{"expression": "object.("}]},
            "spec.validations[0].expression",
            "compilation failed: ERROR: <input>:1:8",
        ),
        (
            {"validations": [{"expression": "nosuch == 1"}]},
            "spec.validations[0].expression",
            "undeclared reference to 'nosuch'",
        ),
        ({"validations": [{"expression": "1 + 1"}]}, "spec.validations[0].expression", "must evaluate to bool"),
        ({"validations": [{"expression": "variables.x"}]}, "spec.validations[0].expression", "undefined field 'x'"),
        (
            {"validations": [{"expression": "params.a == 1"}]},
            "spec.validations[0].expression",
            "undeclared reference to 'params.a'",
        ),
        (
            {"validations": [{"expression": "authorizer.path('/').check('get').allowed()"}]},
            "spec.validations[0].expression",
            "'authorizer'",
        ),
        (
            {"validations": [{"expression": "true" + " && true" * 600}]},
            "spec.validations[0].expression",
            "no longer than 4096",
        ),
        ({"validations": []}, "spec.validations", "must contain at least one item"),
        (
            {"validations": [{"expression": "true", "reason": "Teapot"}]},
            "spec.validations[0].reason",
            "Unsupported value",
        ),
        ({"failurePolicy": "Maybe"}, "spec.failurePolicy", "Unsupported value"),
        ({"paramKind": {"apiVersion": "v1", "kind": "Secret"}}, "spec.paramKind", "only v1 ConfigMap is supported"),
        ({"matchConstraints": {"resourceRules": []}}, "spec.matchConstraints.resourceRules", "Required value"),
        (
            {"matchConstraints": {"resourceRules": [JOB_RULE | {"operations": ["PATCH"]}]}},
            "spec.matchConstraints.resourceRules[0].operations[0]",
            'Unsupported value: "PATCH"',
        ),
        ({"variables": [{"name": "a-b", "expression": "1"}]}, "spec.variables[0].name", "not a valid CEL identifier"),
        (
            {"matchConditions": [{"name": "x", "expression": "variables.a"}]},
            "spec.matchConditions[0].expression",
            "'variables.a'",
        ),
    ],
)
async def test_a_policy_that_cannot_work_is_refused(registry: Registry, spec: dict, field: str, message: str) -> None:
    error = await refusal(a_policy(registry, {"expression": "true"}, **spec))

    assert (error.code, error.reason) == (422, "Invalid")
    assert any(each["field"] == field and message in each["message"] for each in error.details["causes"]), error.details


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"validationActions": ["Deny", "Warn"]}, "spec.validationActions"),
        ({"validationActions": ["Shout"]}, "spec.validationActions[0]"),
        ({"policyName": ""}, "spec.policyName"),
        ({"paramRef": {"selector": {}, "parameterNotFoundAction": "Deny"}}, "spec.paramRef.selector"),
        ({"paramRef": {"name": "x"}}, "spec.paramRef.parameterNotFoundAction"),
    ],
)
async def test_a_binding_that_cannot_work_is_refused(registry: Registry, spec: dict, field: str) -> None:
    error = await refusal(a_binding(registry, **spec))

    assert field in [each["field"] for each in error.details["causes"]]
