"""What admission notes of a request stands in its audit event, under Kubernetes' keys: admitted and refused, by every write."""

import json
from collections.abc import Mapping
from typing import Any

import httpx

from app.registry.verbs.objects import Registry
from tests.api.audit.following import EVERYTHING, Audited, audited
from tests.api.audit.test_auditor import clients
from tests.registry.admission.test_policies import a_binding, a_policy

BASE = "/api/v1/namespaces"
PODS, MAPS, JOBS = f"{BASE}/shared/pods", f"{BASE}/shared/configmaps", "/apis/batch/v1/namespaces/shared/jobs"
PREFIX = "pod-security.kubernetes.io/"
BASELINE = {f"{PREFIX}enforce": "baseline", f"{PREFIX}audit": "restricted"}
MAP_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
NOTED = {
    "validations": [],
    "auditAnnotations": [{"key": "owner", "valueExpression": "'owner is ' + object.data.owner"}],
}


def pod(name: str, **security: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "securityContext": security}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


async def create_namespace(admin: httpx.AsyncClient, **labels: str) -> None:
    made = await admin.post(BASE, json={"metadata": {"name": "shared", "labels": labels}})
    assert made.status_code == 201, made.text


async def annotations(process: Audited, count: int) -> list[Mapping[str, str]]:
    """Those of the last events that are about more than who was allowed to."""
    found = [event.get("annotations", {}) for event in (await process.events(count))[-count:]]
    return [{key: text for key, text in each.items() if "authorization" not in key} for each in found]


async def test_pod_security_is_noted_of_pods_that_are_admitted_and_refused(registry: Registry) -> None:
    async with audited(registry) as process, clients(registry, process) as (admin, _):
        await create_namespace(admin, **BASELINE)
        admitted = await admin.post(PODS, json=pod("admitted"))
        refused = await admin.post(PODS, json=pod("refused", privileged=True))
        exempt = await admin.post(PODS.replace("shared", "kube-system"), json=pod("exempt", privileged=True))
        privileged = await admin.post(PODS.replace("shared", "default"), json=pod("free", privileged=True))
        template = {"template": {"spec": pod("")["spec"] | {"restartPolicy": "Never"}}}
        job = await admin.post(JOBS, json={"metadata": {"name": "j"}, "spec": template})
        found = await annotations(process, 6)

    codes = [each.status_code for each in (admitted, refused, exempt, privileged, job)]
    assert codes == [201, 403, 201, 201, 201]
    enforced, violated = f"{PREFIX}enforce-policy", f"{PREFIX}audit-violations"
    assert found[1][enforced] == found[2][enforced] == "baseline:latest"
    assert found[1][violated].startswith(
        'would violate PodSecurity "restricted:latest": allowPrivilegeEscalation != false'
    )
    assert 'privileged (container "main" must not set securityContext.privileged=true)' in found[2][violated]
    assert found[3] == {f"{PREFIX}exempt": "namespace"}
    assert found[4] == {}
    assert list(found[5]) == [violated]


async def test_admission_policies_are_noted_by_every_write(registry: Registry) -> None:
    await a_policy(registry, **NOTED, rule=MAP_RULE)  # type: ignore[arg-type]
    await a_binding(registry)
    url, body = f"{MAPS}/m", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
    async with audited(registry) as process, clients(registry, process) as (admin, _):
        await create_namespace(admin)
        answers = [
            await admin.post(MAPS, json=body | {"data": {"owner": "a"}}),
            await admin.put(url, json=body | {"data": {"owner": "b"}}),
            await admin.patch(
                url, json={"data": {"owner": "c"}}, headers={"Content-Type": "application/merge-patch+json"}
            ),
            await admin.patch(
                f"{MAPS}/n?fieldManager=t",
                content=json.dumps(body | {"metadata": {"name": "n"}, "data": {"owner": "d"}}),
                headers={"Content-Type": "application/apply-patch+yaml"},
            ),
            await admin.post(f"{MAPS}?dryRun=All", json={"metadata": {"generateName": "x-"}, "data": {"owner": "e"}}),
        ]
        found = await annotations(process, len(answers))
    assert [each.status_code for each in answers] == [201, 200, 200, 201, 201], [each.text for each in answers]
    assert found == [{"p/owner": f"owner is {owner}"} for owner in "abcde"]


async def test_a_failure_that_is_only_audited_and_one_that_is_denied_are_noted(registry: Registry) -> None:
    rule = {"expression": "object.data.owner == 'team'", "message": "needs an owner"}
    await a_policy(registry, rule, rule=MAP_RULE)
    await a_binding(registry, "Audit", name="audits")
    async with audited(registry, EVERYTHING % "RequestResponse") as process, clients(registry, process) as (admin, _):
        await create_namespace(admin)
        admitted = await admin.post(MAPS, json={"metadata": {"name": "m"}, "data": {"owner": "me"}})
        await process.events(2)
        await a_binding(registry, "Deny", "Audit", name="denies")
        denied = await admin.post(MAPS, json={"metadata": {"name": "n"}, "data": {"owner": "me"}})
        found = [each for each in await annotations(process, 6) if each]
    assert (admitted.status_code, denied.status_code) == (201, 422)
    failures = [json.loads(each["validation.policy.admission.k8s.io/validation_failure"]) for each in found]
    audited_only = {"message": "needs an owner", "policy": "p", "binding": "audits", "validationActions": ["Audit"]}
    assert failures[0] == [audited_only]
    assert {"policy": "p", "binding": "denies"}.items() <= failures[-1][-1].items()
    assert len(failures[-1]) == 2
