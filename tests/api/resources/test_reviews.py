"""The reviews: what they answer, in the forms that clients send."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import User
from app.api.auth.tokens import issue
from app.registry.verbs.objects import Registry
from tests.api.people import People, bind, cluster_role, meeting, rule
from tests.conftest import NO_TLS

ACCESS, IDENTITY = "/apis/authorization.k8s.io/v1", "/apis/authentication.k8s.io/v1"


@pytest.fixture
async def people(registry: Registry, url: str) -> AsyncIterator[People]:
    async with meeting(registry, url) as found:
        yield found


async def ask(asking: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await asking.post(path, json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def may(asking: httpx.AsyncClient, **spec: Any) -> dict[str, Any]:
    return (await ask(asking, f"{ACCESS}/selfsubjectaccessreviews", spec=spec))["status"]


@pytest.fixture
async def ada(people: People, admin: httpx.AsyncClient) -> httpx.AsyncClient:
    """May read pods in the default namespace, and metrics."""
    metrics = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    await cluster_role(admin, "pods", rule("get,list", "pods,pods/log"))
    await cluster_role(admin, "metrics", metrics)
    await bind(admin, "pods", ["Group:dev"], "default")
    await bind(admin, "metrics", ["User:ada"])
    return await people.user("ada", "dev")


async def test_may_i(ada: httpx.AsyncClient, admin: httpx.AsyncClient) -> None:
    wanted = {"namespace": "default", "verb": "get", "resource": "pods", "subresource": "log"}
    whole = await ask(ada, f"{ACCESS}/selfsubjectaccessreviews", spec={"resourceAttributes": wanted})

    assert whole["kind"] == "SelfSubjectAccessReview"
    assert whole["apiVersion"] == "authorization.k8s.io/v1"
    assert whole["spec"] == {"resourceAttributes": wanted}
    assert whole["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "b/default" of ClusterRole "pods" to Group "dev"',
    }
    assert await may(ada, resourceAttributes=wanted | {"verb": "delete"}) == {"allowed": False}
    assert await may(ada, resourceAttributes=wanted | {"namespace": "other"}) == {"allowed": False}
    assert await may(admin, resourceAttributes={"verb": "*", "group": "*", "resource": "*"}) == {"allowed": True}


@pytest.mark.parametrize(
    ("path", "allowed"), [("/metrics", True), ("/version", True), ("/apis", True), ("/logs", False)]
)
async def test_may_i_get(ada: httpx.AsyncClient, path: str, allowed: bool) -> None:
    assert (await may(ada, nonResourceAttributes={"verb": "get", "path": path}))["allowed"] is allowed
    assert (await may(ada, nonResourceAttributes={"verb": "put", "path": path}))["allowed"] is False


async def test_may_they(admin: httpx.AsyncClient, ada: httpx.AsyncClient) -> None:
    wanted = {"verb": "list", "resource": "pods", "namespace": "default"}
    spec = {"resourceAttributes": wanted, "user": "x", "groups": ["dev"], "extra": {"a": ["b"]}, "uid": "1"}

    assert (await ask(admin, f"{ACCESS}/subjectaccessreviews", spec=spec))["status"]["allowed"]
    assert not (await ask(admin, f"{ACCESS}/subjectaccessreviews", spec=spec | {"groups": ["o"]}))["status"]["allowed"]
    assert (await ada.post(f"{ACCESS}/subjectaccessreviews", json={"spec": spec})).status_code == 403


async def test_may_a_node(admin: httpx.AsyncClient) -> None:
    about = {"user": "system:node:n1", "groups": ["system:nodes"]}
    for name, allowed in (("n1", True), ("n2", False)):
        requirement = {"key": "spec.nodeName", "operator": "In", "values": [name]}
        for selector in ({"rawSelector": f"spec.nodeName={name}"}, {"requirements": [requirement]}):
            wanted = {"verb": "list", "resource": "pods", "fieldSelector": selector}
            answer = await ask(admin, f"{ACCESS}/subjectaccessreviews", spec=about | {"resourceAttributes": wanted})
            assert answer["status"]["allowed"] is allowed


async def test_may_they_here(admin: httpx.AsyncClient, ada: httpx.AsyncClient) -> None:
    path = f"{ACCESS}/namespaces/default/localsubjectaccessreviews"
    wanted = {"verb": "list", "resource": "pods", "namespace": "default"}

    answer = await ask(admin, path, spec={"resourceAttributes": wanted, "groups": ["dev"]})
    assert (answer["metadata"]["namespace"], answer["status"]["allowed"]) == ("default", True)
    elsewhere = {"resourceAttributes": wanted | {"namespace": "other"}, "groups": ["dev"]}
    refused = await admin.post(path, json={"spec": elsewhere})
    assert refused.status_code == 422
    assert refused.json()["message"] == (
        'LocalSubjectAccessReview.authorization.k8s.io "" is invalid: '
        'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace'
    )


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({}, "spec.resourceAttributes", id="about nothing"),
        pytest.param(
            {"resourceAttributes": {}, "nonResourceAttributes": {}}, "spec.nonResourceAttributes", id="about two things"
        ),
        pytest.param(
            {"resourceAttributes": {"fieldSelector": {}}},
            "spec.resourceAttributes.fieldSelector.requirements",
            id="with an empty selector",
        ),
        pytest.param(
            {"resourceAttributes": {"labelSelector": {"rawSelector": "a", "requirements": [{"key": "a"}]}}},
            "spec.resourceAttributes.labelSelector.rawSelector",
            id="with two selectors",
        ),
    ],
)
async def test_a_question_is_refused_that_is(admin: httpx.AsyncClient, spec: dict, field: str) -> None:
    for plural, more in (("selfsubjectaccessreviews", {}), ("subjectaccessreviews", {"user": "ada"})):
        answer = await admin.post(f"{ACCESS}/{plural}", json={"spec": spec | more})
        assert answer.status_code == 422
        assert [cause["field"] for cause in answer.json()["details"]["causes"]] == [field]


async def test_a_question_about_nobody_is_refused(admin: httpx.AsyncClient) -> None:
    answer = await admin.post(f"{ACCESS}/subjectaccessreviews", json={"spec": {"resourceAttributes": {}}})

    assert answer.json()["details"]["causes"][0]["field"] == "spec.user"


async def test_a_review_has_no_metadata(admin: httpx.AsyncClient) -> None:
    body = {"metadata": {"name": "x"}, "spec": {"resourceAttributes": {}}}

    answer = await admin.post(f"{ACCESS}/selfsubjectaccessreviews", json=body)

    assert [cause["field"] for cause in answer.json()["details"]["causes"]] == ["metadata"]


async def test_what_may_i(ada: httpx.AsyncClient) -> None:
    status = (await ask(ada, f"{ACCESS}/selfsubjectrulesreviews", spec={"namespace": "default"}))["status"]

    assert status["incomplete"] is False
    assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]} in status["resourceRules"]
    assert {"verbs": ["get"], "nonResourceURLs": ["/metrics"]} in status["nonResourceRules"]
    other = (await ask(ada, f"{ACCESS}/selfsubjectrulesreviews", spec={"namespace": "other"}))["status"]
    assert "pods" not in str(other["resourceRules"])
    nowhere = await ada.post(f"{ACCESS}/selfsubjectrulesreviews", json={})
    assert (nowhere.status_code, nowhere.json()["message"]) == (400, "no namespace on request")


async def test_an_answer_has_all_that_clients_insist_on(admin: httpx.AsyncClient) -> None:
    headers = {"Impersonate-User": "system:anonymous", "Impersonate-Group": "nobody"}
    spec = {"namespace": "default"}
    anonymous = await admin.post(f"{ACCESS}/selfsubjectrulesreviews", json={"spec": spec}, headers=headers)

    assert anonymous.status_code == 403  # nobody known
    nobody = headers | {"Impersonate-Group": "system:authenticated"}
    answer = await admin.post(f"{ACCESS}/selfsubjectrulesreviews", json={"spec": spec}, headers=nobody)
    assert answer.json()["status"].keys() == {"resourceRules", "nonResourceRules", "incomplete"}
    assert (await may(admin, nonResourceAttributes={"path": "/", "verb": "get"})).keys() == {"allowed"}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
async def test_who_am_i(ada: httpx.AsyncClient, version: str) -> None:
    path = f"/apis/authentication.k8s.io/{version}/selfsubjectreviews"

    answer = await ask(ada, path, kind="SelfSubjectReview", apiVersion=f"authentication.k8s.io/{version}")

    assert answer["apiVersion"] == f"authentication.k8s.io/{version}"
    assert answer["status"] == {"userInfo": {"username": "ada", "groups": ["dev", "system:authenticated"]}}


async def test_whose_is_a_token(registry: Registry, admin: httpx.AsyncClient, ada: httpx.AsyncClient) -> None:
    token = await issue(registry, User(name="bob", groups=("dev",), uid="7"))
    home = "https://kubernetes.default.svc.cluster.local"

    known = (await ask(admin, f"{IDENTITY}/tokenreviews", spec={"token": token}))["status"]
    assert known == {
        "authenticated": True,
        "user": {"username": "bob", "uid": "7", "groups": ["dev", "system:authenticated"]},
        "audiences": [home],
    }
    unknown = (await ask(admin, f"{IDENTITY}/tokenreviews", spec={"token": "guess"}))["status"]
    assert unknown == {"user": {}, "error": "invalid bearer token"}
    empty = await admin.post(f"{IDENTITY}/tokenreviews", json={"spec": {}})
    assert (empty.status_code, empty.json()["message"]) == (400, "token is required for TokenReview in authentication")
    assert (await ada.post(f"{IDENTITY}/tokenreviews", json={"spec": {"token": token}})).status_code == 403


async def test_a_token_is_good_for_those_that_it_is_meant_for(url: str, admin: httpx.AsyncClient) -> None:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = (await ask(admin, path, spec={"audiences": ["vault", "bank"]}))["status"]["token"]

    async def status(*audiences: str) -> dict[str, Any]:
        spec = {"token": token, "audiences": audiences}
        return (await ask(admin, f"{IDENTITY}/tokenreviews", spec=spec))["status"]

    assert (await status("bank", "post"))["audiences"] == ["bank"]
    assert (await status("post"))["error"] == (
        '[invalid bearer token, token audiences ["vault" "bank"] is invalid for the target audiences ["post"]]'
    )
    assert "authenticated" not in await status()
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS) as holder:
        assert (await holder.get("/version")).status_code == 401


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


async def test_a_question_may_be_asked_in_protobuf(ada: httpx.AsyncClient) -> None:
    types = field(1, b"authorization.k8s.io/v1") + field(2, b"SelfSubjectAccessReview")
    wanted = field(1, b"default") + field(2, b"list") + field(5, b"pods")
    review = field(1, b"") + field(2, field(1, wanted)) + field(3, b"")
    body = b"k8s\0" + field(1, types) + field(2, review) + field(3, b"") + field(4, b"")
    headers = {
        "Content-Type": "application/vnd.kubernetes.protobuf",
        "Accept": "application/vnd.kubernetes.protobuf,application/json",
    }

    answer = await ada.post(f"{ACCESS}/selfsubjectaccessreviews", content=body, headers=headers)

    assert (answer.status_code, answer.json()["status"]["allowed"]) == (201, True)
    assert answer.headers["content-type"] == "application/json"


async def test_an_answer_is_no_table(ada: httpx.AsyncClient) -> None:
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    refused = await ada.post(f"{ACCESS}/selfsubjectaccessreviews", json=review, headers=headers)

    assert refused.status_code == 406


async def test_what_else_is_known_of_somebody_may_be_told_in_protobuf(admin: httpx.AsyncClient) -> None:
    types = field(1, b"authorization.k8s.io/v1") + field(2, b"SubjectAccessReview")
    extra = field(1, b"teams") + field(2, field(1, b"lab") + field(1, b"office"))
    spec = field(1, field(2, b"list") + field(5, b"pods")) + field(3, b"ada") + field(5, extra)
    body = b"k8s\0" + field(1, types) + field(2, field(2, spec))

    answer = await admin.post(
        f"{ACCESS}/subjectaccessreviews",
        content=body,
        headers={"Content-Type": "application/vnd.kubernetes.protobuf"},
    )

    assert answer.json()["spec"]["extra"] == {"teams": ["lab", "office"]}


async def test_a_question_may_be_asked_in_yaml(ada: httpx.AsyncClient) -> None:
    body = "spec:\n  resourceAttributes: {namespace: default, verb: get, resource: pods}\n"

    answer = await ada.post(
        f"{ACCESS}/selfsubjectaccessreviews", content=body, headers={"Content-Type": "application/yaml"}
    )

    assert answer.json()["status"]["allowed"] is True


async def test_unknown_fields_of_a_question_are_told_or_refused(ada: httpx.AsyncClient) -> None:
    path, body = f"{IDENTITY}/selfsubjectreviews", {"spec": {}}

    warned = await ada.post(path, json=body)
    assert 'unknown field "spec"' in warned.headers["Warning"].replace("\\", "")
    strict = await ada.post(path, json=body, params={"fieldValidation": "Strict"})
    assert strict.status_code == 400


async def test_a_review_is_only_ever_asked(admin: httpx.AsyncClient) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert (await admin.request(method, f"{ACCESS}/selfsubjectaccessreviews")).status_code == 405
    wrong = await admin.post(f"{ACCESS}/selfsubjectaccessreviews", json={"kind": "Pod", "apiVersion": "v1"})
    assert wrong.status_code == 400
