"""Pod Security and admission policies over HTTP: Warning headers, Statuses, and the user that a policy sees."""

from typing import Any

import httpx

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = f"{POLICIES[:-3]}ybindings"
NAMESPACE = "/api/v1/namespaces/default"
CONFIG_MAPS = f"{NAMESPACE}/configmaps"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def label(admin: httpx.AsyncClient, **labels: str) -> httpx.Response:
    given = {f"pod-security.kubernetes.io/{key}": value for key, value in labels.items()}
    return await admin.patch(NAMESPACE, json={"metadata": {"labels": given}}, headers=MERGE)


def a_pod(name: str) -> dict[str, Any]:
    spec = {"hostPID": True, "restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    return {"metadata": {"name": name}, "spec": spec}


async def test_pod_security_in_headers_and_statuses(admin: httpx.AsyncClient) -> None:
    assert (await label(admin, warn="baseline")).status_code == 200
    warned = await admin.post(f"{NAMESPACE}/pods", json=a_pod("warned"))
    labelled = await label(admin, enforce="baseline")
    refused = await admin.post(f"{NAMESPACE}/pods", json=a_pod("refused"))
    bad = await label(admin, enforce="strict")

    fault = r"would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"
    assert (warned.status_code, warned.headers["Warning"]) == (201, f'299 - "{fault}"')
    assert labelled.headers["Warning"].endswith('299 - "warned: host namespaces"')
    assert (refused.status_code, refused.json()["reason"]) == (403, "Forbidden")
    assert bad.status_code == 422
    assert bad.json()["details"]["causes"][0]["field"] == "metadata.labels[pod-security.kubernetes.io/enforce]"


async def test_a_policy_sees_the_user_of_each_verb_impersonation_included(admin: httpx.AsyncClient) -> None:
    everything = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    rule = {
        "expression": "request.userInfo.username != 'ada'",
        "messageExpression": "request.operation + ' by ' + request.userInfo.username + ' of ' + request.userInfo.groups[0]",
    }
    policy = {
        "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [everything]}, "validations": [rule]},
    }
    assert (await admin.post(POLICIES, json=policy)).status_code == 201
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    assert (await admin.post(BINDINGS, json=binding)).status_code == 201
    as_ada = {"Impersonate-User": "ada", "Impersonate-Group": "system:masters"}
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    apply = {"Content-Type": "application/apply-patch+yaml"}

    created = await admin.post(CONFIG_MAPS, json=one, headers=as_ada)
    applied = await admin.patch(f"{CONFIG_MAPS}/c?fieldManager=x", json=one, headers=as_ada | apply)
    assert (await admin.post(CONFIG_MAPS, json=one)).status_code == 201
    changed = await admin.patch(f"{CONFIG_MAPS}/c", json={"data": {"a": "b"}}, headers=as_ada | MERGE)
    replaced = await admin.put(f"{CONFIG_MAPS}/c", json=one, headers=as_ada)
    deleted = await admin.delete(f"{CONFIG_MAPS}/c", headers=as_ada)

    verbs = {"CREATE": (created, applied), "UPDATE": (changed, replaced), "DELETE": (deleted,)}
    for operation, answers in verbs.items():
        for answer in answers:
            assert answer.status_code == 422
            assert answer.json()["message"].endswith(f"denied request: {operation} by ada of system:masters")
    assert (await admin.get(f"{CONFIG_MAPS}/c")).json().get("data") is None
