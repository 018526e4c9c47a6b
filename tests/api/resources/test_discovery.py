"""Discovery as kubectl and the client libraries read it, for whatever kinds there are."""

from typing import Any

import httpx
import msgspec
import pytest

from app.api.http.content_negotiation import JSON, ResponseFormat
from app.api.resources.discovery import Discovery, EphemeralResource, verbs
from app.api.resources.unsupported_kinds import UNSUPPORTED
from app.kinds import KINDS
from app.machinery.base import Kind

DISCOVERY = Discovery((*KINDS, *UNSUPPORTED))
by_resource = pytest.mark.parametrize("kind", [*KINDS, *UNSUPPORTED], ids=lambda kind: kind.resource)


def read(path: str, wanted: ResponseFormat = JSON) -> Any:
    document = DISCOVERY.document(path, wanted)
    assert document is not None
    return msgspec.json.decode(document.body)


def entries(kind: Kind[Any]) -> dict[str, Any]:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return {entry["name"]: entry for entry in read(root)["resources"]}


def aggregated(kind: Kind[Any], version: str) -> dict[str, Any]:
    groups = read("/apis" if kind.group else "/api", ResponseFormat("discovery", version))["items"]
    versions = next(group["versions"] for group in groups if group["metadata"]["name"] == kind.group)
    resources = next(each["resources"] for each in versions if each["version"] == kind.version)
    found: dict[str, Any] = next(each for each in resources if each["resource"] == kind.plural)
    return found


@by_resource
def test_every_kind_is_listed(kind: Kind[Any]) -> None:
    entry = entries(kind)[kind.plural]

    assert (entry["kind"], entry["namespaced"], entry["singularName"]) == (kind.name, kind.namespaced, kind.singular)
    assert tuple(entry["verbs"]) == verbs(kind)
    assert tuple(entry.get("shortNames", ())) == kind.short_names
    assert tuple(entry.get("categories", ())) == kind.categories


@by_resource
def test_status_is_listed_where_there_is_one(kind: Kind[Any]) -> None:
    status = entries(kind).get(f"{kind.plural}/status")

    assert (status is not None) == kind.has_status
    assert status is None or status["verbs"] == ["get", "patch", "update"]


@by_resource
@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_aggregated_discovery_says_the_same(kind: Kind[Any], version: str) -> None:
    plain, found = entries(kind), aggregated(kind, version)

    assert found["responseKind"] == {"group": kind.group, "version": kind.version, "kind": kind.name}
    assert found["scope"] == ("Namespaced" if kind.namespaced else "Cluster")
    assert found["verbs"] == plain[kind.plural]["verbs"]
    parts = {f"{kind.plural}/{part['subresource']}" for part in found.get("subresources", ())}
    assert parts == {name for name in plain if name.startswith(f"{kind.plural}/")}


def test_jobs_are_in_the_category_all() -> None:
    listed = {entry["name"]: entry for entry in read("/apis/batch/v1")["resources"]}

    assert listed["jobs"]["categories"] == ["all"]
    assert "jobs/scale" not in listed


def test_groups_have_documents_of_their_own() -> None:
    group = read("/apis/batch")

    assert (group["kind"], group["name"]) == ("APIGroup", "batch")
    assert group["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    assert read("/api")["versions"] == ["v1"]


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/batch", "/apis/batch/v1"])
def test_a_slash_at_the_end_changes_nothing(path: str) -> None:
    assert DISCOVERY.document(f"{path}/", JSON) == DISCOVERY.document(path, JSON)


@pytest.mark.parametrize("path", ["/", "/apis/autoscaling", "/apis/batch/v2", "/api/v1/pods"])
def test_there_is_nothing_else(path: str) -> None:
    assert DISCOVERY.document(path, JSON) is None


def test_an_aggregated_answer_says_so_in_its_content_type() -> None:
    document = DISCOVERY.document("/apis", ResponseFormat("discovery", "v2"))

    assert document is not None
    assert document.content_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def test_namespaces_cannot_be_deleted_all_at_once() -> None:
    listed = {entry["name"]: entry for entry in read("/api/v1")["resources"]}

    assert "deletecollection" not in listed["namespaces"]["verbs"]
    assert "deletecollection" in listed["pods"]["verbs"]


@pytest.mark.parametrize(
    ("path", "name", "expected"), [("/api/v1", "pods", "xPOwRZ+Yhw8="), ("/apis/batch/v1", "jobs", "mudhfqk/qZY=")]
)
def test_storage_versions_have_the_hashes_of_kubernetes(path: str, name: str, expected: str) -> None:
    listed = {entry["name"]: entry for entry in read(path)["resources"]}

    assert listed[name]["storageVersionHash"] == expected
    assert "storageVersionHash" not in listed[f"{name}/status"]


GROUPS = (
    EphemeralResource("z.example.com", "v1", "things", "Thing", ("get", "list")),
    EphemeralResource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", ("get", "list"), namespaced=True),
    EphemeralResource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    EphemeralResource("z.example.com", "v1beta1", "things", "Thing", ("get", "list")),
    EphemeralResource("z.example.com", "v2", "things", "Thing", ("get", "list")),
    EphemeralResource("policy", "v1"),
)


def test_groups_come_in_the_order_of_kubernetes_and_others_after_them() -> None:
    document = Discovery((), GROUPS).document("/apis", JSON)
    assert document is not None

    names = [group["name"] for group in msgspec.json.decode(document.body)["groups"]]
    assert names == ["authorization.k8s.io", "policy", "metrics.k8s.io", "z.example.com"]


def test_new_and_stable_versions_are_preferred() -> None:
    document = Discovery((), GROUPS).document("/apis/z.example.com", JSON)
    assert document is not None

    group = msgspec.json.decode(document.body)
    assert [each["version"] for each in group["versions"]] == ["v2", "v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v2"


def test_a_group_may_have_nothing_but_parts_of_other_resources() -> None:
    document = Discovery((), GROUPS).document("/apis/policy/v1", JSON)
    assert document is not None

    assert msgspec.json.decode(document.body)["resources"] == []


async def test_who_has_the_newest_document_is_not_sent_it_again(admin: httpx.AsyncClient) -> None:
    for path, accept in ((path, accept) for path in PATHS for accept in ("application/json", AGGREGATED)):
        first = await admin.get(path, headers={"Accept": accept})
        again = await admin.get(path, headers={"Accept": accept, "If-None-Match": first.headers["ETag"]})

        assert (first.status_code, again.status_code, again.content) == (200, 304, b""), path
        assert "Accept" in first.headers["Vary"].split(", ")
        assert (await admin.get(path, headers={"Accept": accept, "If-None-Match": '"x"'})).status_code == 200


PATHS = ("/api", "/apis", "/api/v1", "/apis/batch", "/openapi/v3", "/openapi/v3/apis/batch/v1", "/openapi/v2")
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_what_is_found_by_its_hash_may_be_kept_for_ever(admin: httpx.AsyncClient) -> None:
    link = (await admin.get("/openapi/v3")).json()["paths"]["apis/batch/v1"]["serverRelativeURL"]
    found = await admin.get(link)

    assert found.headers["Cache-Control"] == "public, immutable"
    assert found.headers["Expires"].endswith("GMT")
    moved = await admin.get("/openapi/v3/apis/batch/v1?hash=0123")
    assert (moved.status_code, moved.headers["Location"]) == (301, link)


async def test_clients_that_ask_for_openapi_version_two_get_the_form_they_read(admin: httpx.AsyncClient) -> None:
    old = await admin.get(
        "/openapi/v2", headers={"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    )
    new = await admin.get("/openapi/v2")

    assert (old.content, old.headers["Content-Type"]) == (
        b"",
        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    )
    assert new.json()["swagger"] == "2.0"


async def test_namespaces_refuse_to_be_deleted_all_at_once(admin: httpx.AsyncClient) -> None:
    assert (await admin.delete("/api/v1/namespaces")).status_code == 405
