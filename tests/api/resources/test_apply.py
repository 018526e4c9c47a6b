"""Server-side apply and managed fields over HTTP, as clients meet them."""

import json
from typing import Any

import httpx
import pytest
from httpx import AsyncClient, Response

from tests.conftest import NO_TLS

MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
APPLY = "application/apply-patch+yaml"


def config_map(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **more}


JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: pi
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: busybox
"""


async def patch(client: AsyncClient, path: str, body: Any, form: str = APPLY, **params: Any) -> Response:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    return await client.patch(path, content=content, params=params, headers={"Content-Type": form})


async def apply(client: AsyncClient, body: Any, manager: str = "a", path: str = f"{MAPS}/c", **params: Any) -> Response:
    return await patch(client, path, body, fieldManager=manager, **params)


def managers(answer: Response) -> list[tuple[str, str]]:
    return [(each["manager"], each["operation"]) for each in answer.json()["metadata"].get("managedFields", [])]


async def test_an_apply_creates_then_updates(admin: AsyncClient) -> None:
    first = await apply(admin, JOB, path=f"{JOBS}/pi")
    second = await apply(admin, JOB.replace("true", "false"), path=f"{JOBS}/pi")

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["metadata"]["generation"] == 1
    assert second.json()["metadata"]["generation"] == 2
    assert second.json()["spec"]["suspend"] is False
    assert managers(second) == [("a", "Apply")]


async def test_an_apply_that_breaks_the_rules_of_updates_is_refused_like_one(admin: AsyncClient) -> None:
    await apply(admin, JOB, path=f"{JOBS}/pi")
    answer = await apply(admin, JOB.replace("busybox", "perl"), path=f"{JOBS}/pi")

    assert answer.status_code == 422
    assert "spec.template: Invalid value" in answer.json()["message"]
    assert "field is immutable" in answer.json()["message"]


async def test_a_conflict_is_told_until_it_is_forced(admin: AsyncClient) -> None:
    await apply(admin, config_map(data={"k": "1"}))
    refused = await apply(admin, config_map(data={"k": "2"}), "b")
    forced = await apply(admin, config_map(data={"k": "2"}), "b", force="true")

    assert refused.status_code == 409
    assert refused.json()["message"] == 'Apply failed with 1 conflict: conflict with "a": .data.k'
    assert forced.status_code == 200
    assert managers(forced) == [("b", "Apply")]


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        pytest.param({}, 422, "fieldManager: Required value: is required for apply patch", id="no manager"),
        pytest.param({"fieldManager": "m" * 129}, 422, "fieldManager: Too long: may not be more than 128", id="long"),
        pytest.param(
            {"fieldManager": "a\tb"}, 422, "invalid character U+0009 (at position 1)", id="an unprintable character"
        ),
    ],
)
async def test_an_apply_must_say_who_applies(
    admin: AsyncClient, params: dict[str, str], code: int, message: str
) -> None:
    answer = await patch(admin, f"{MAPS}/c", config_map(), **params)

    assert answer.status_code == code
    assert message in answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param("[]", "error decoding YAML: an object is expected", id="a list"),
        pytest.param("", "error decoding YAML: an object is expected", id="nothing"),
        pytest.param("{", "yaml", id="no YAML"),
        pytest.param({"metadata": {"name": "c"}}, "invalid object type: /, Kind=", id="no kind"),
        pytest.param(
            config_map(metadata={}), "(c based on URL) was undeterminable: name must be provided", id="no name"
        ),
        pytest.param(
            config_map(metadata={"name": "d"}),
            "the name of the object (d) does not match the name on the URL (c)",
            id="another name",
        ),
        pytest.param(
            config_map(metadata={"name": "c", "namespace": "elsewhere"}),
            "the namespace of the provided object does not match the namespace sent on the request",
            id="another namespace",
        ),
        pytest.param(config_map(metadata=7), ".metadata: expected map, got &{7}", id="metadata that are none"),
        pytest.param(config_map(metadata={"name": "c", "creationTimestamp": "soon"}), "parsing time", id="no time"),
        pytest.param(config_map(data={"a": 1}), ".data.a: expected string", id="a number for text"),
    ],
)
async def test_bodies_that_are_no_configuration_are_bad_requests(admin: AsyncClient, body: Any, message: str) -> None:
    answer = await apply(admin, body)

    assert answer.status_code == 400, answer.text
    assert message in answer.json()["message"]


async def test_an_existing_object_may_be_applied_to_without_a_name(admin: AsyncClient) -> None:
    await apply(admin, config_map())
    answer = await apply(admin, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}})

    assert (answer.status_code, answer.json()["data"]) == (200, {"a": "1"})


async def test_a_resource_version_in_the_body_is_a_precondition(admin: AsyncClient) -> None:
    made = (await apply(admin, config_map(data={"a": "1"}))).json()
    version = made["metadata"]["resourceVersion"]
    pinned = {"name": "c", "resourceVersion": version}

    right = await apply(admin, config_map(metadata=pinned, data={"a": "2"}))
    stale = await apply(admin, config_map(metadata=pinned, data={"a": "3"}))

    assert (right.status_code, stale.status_code) == (200, 409)
    assert "the object has been modified" in stale.json()["message"]


async def test_a_uid_of_what_does_not_exist_is_a_conflict(admin: AsyncClient) -> None:
    answer = await apply(admin, config_map(metadata={"name": "c", "uid": "u"}))

    assert answer.status_code == 409
    assert "uid mismatch: the provided object specified uid u, and no existing object was found" in answer.text


async def test_fields_that_come_twice_are_refused_warned_of_or_ignored(admin: AsyncClient) -> None:
    body = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1","a":"2"}}'
    answers = {
        validation: await apply(admin, body, fieldValidation=validation) for validation in ("Strict", "Warn", "Ignore")
    }

    assert [each.status_code for each in answers.values()] == [400, 201, 200]
    assert 'error strict decoding YAML: duplicate field "data.a"' in answers["Strict"].json()["message"]
    assert answers["Warn"].headers["Warning"] == '299 - "duplicate field \\"data.a\\""'
    assert "Warning" not in answers["Ignore"].headers


async def test_a_status_is_applied_to_what_exists_only(admin: AsyncClient) -> None:
    status = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "pi"}, "status": {"ready": 0}}
    absent = await apply(admin, status, path=f"{JOBS}/pi/status")
    await apply(admin, JOB, path=f"{JOBS}/pi")
    present = await apply(admin, status, "s", path=f"{JOBS}/pi/status")

    assert (absent.status_code, present.status_code) == (404, 200)
    assert ("s", "status") in [
        (each["manager"], each.get("subresource")) for each in present.json()["metadata"]["managedFields"]
    ]


async def test_cbor_is_an_unsupported_media_type(admin: AsyncClient) -> None:
    answer = await patch(admin, f"{MAPS}/c", b"\xa0", "application/apply-patch+cbor", fieldManager="a")

    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        pytest.param("kubectl/v1.33.1 (linux/amd64)", "kubectl", id="the program of the user agent"),
        pytest.param("", "unknown", id="unknown without one"),
        pytest.param("x" * 200, "x" * 128, id="cut to 128 characters"),
    ],
)
async def test_who_names_no_manager_is_known_by(admin: AsyncClient, agent: str, manager: str) -> None:
    answer = await admin.post(MAPS, json=config_map(data={"a": "1"}), headers={"User-Agent": agent})

    assert managers(answer) == [(manager, "Update")]


async def test_each_way_to_write_is_recorded(admin: AsyncClient) -> None:
    made = await admin.post(MAPS, json=config_map(data={"a": "1"}), params={"fieldManager": "creator"})
    body = made.json() | {"data": {"a": "1", "b": "1"}}
    await admin.put(f"{MAPS}/c", json=body, params={"fieldManager": "putter"})
    patches = {
        "application/merge-patch+json": {"data": {"c": "1"}},
        "application/strategic-merge-patch+json": {"data": {"d": "1"}},
        "application/json-patch+json": [{"op": "add", "path": "/data/e", "value": "1"}],
    }
    for form, each in patches.items():
        answer = await patch(admin, f"{MAPS}/c", each, form, fieldManager=form[12:17])

    owned = {
        each["manager"]: [mark for mark in each["fieldsV1"]["f:data"] if mark != "."]
        for each in answer.json()["metadata"]["managedFields"]
    }
    assert owned == {"creator": ["f:a"], "putter": ["f:b"], "merge": ["f:c"], "strat": ["f:d"], "json-": ["f:e"]}


@pytest.mark.parametrize(
    ("form", "body"),
    [
        pytest.param("merge-patch", {"metadata": {"managedFields": [{}]}}, id="an empty entry in a merge patch"),
        pytest.param("merge-patch", {"metadata": {"managedFields": []}}, id="an empty list in a merge patch"),
        pytest.param(
            "json-patch",
            [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}],
            id="an empty entry in a JSON patch",
        ),
        pytest.param(
            "strategic-merge-patch", {"metadata": {"managedFields": [{}]}}, id="an empty entry in a strategic patch"
        ),
    ],
)
async def test_managed_fields_are_cleared_by(admin: AsyncClient, form: str, body: Any) -> None:
    await apply(admin, config_map(data={"a": "1"}))
    answer = await patch(admin, f"{MAPS}/c", body, f"application/{form}+json")

    assert answer.status_code == 200
    assert "managedFields" not in answer.json()["metadata"]
    assert "managedFields" not in (await admin.get(f"{MAPS}/c")).json()["metadata"]


async def test_an_update_that_leaves_them_out_does_not_clear_them(admin: AsyncClient) -> None:
    await apply(admin, config_map(data={"a": "1"}))
    answer = await admin.put(f"{MAPS}/c", json=config_map(data={"a": "1"}))

    assert managers(answer) == [("a", "Apply")]


async def test_who_may_not_create_may_not_apply_what_is_absent(admin: AsyncClient, url: str) -> None:
    role = {
        "metadata": {"name": "patcher"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await admin.post(f"{rbac}/clusterroles", json=role)
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patcher"}
    binding = {"metadata": {"name": "patcher"}, "roleRef": reference, "subjects": [subject]}
    await admin.post(f"{rbac}/clusterrolebindings", json=binding)
    asked = await admin.post("/api/v1/namespaces/default/serviceaccounts/default/token", json={"spec": {}})
    headers = {"Authorization": f"Bearer {asked.json()['status']['token']}"}

    async with httpx.AsyncClient(base_url=url, headers=headers, verify=NO_TLS) as client:
        absent = await apply(client, config_map())
        await apply(admin, config_map())
        present = await apply(client, config_map(data={"a": "1"}), "b")

    assert (absent.status_code, present.status_code) == (403, 200)
    assert 'cannot create resource "configmaps"' in absent.json()["message"]
