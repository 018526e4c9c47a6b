"""Discovery as kubectl and the client libraries read it, for whatever kinds there are."""

from typing import Any

import msgspec
import pytest

from app.api.accept import JSON, Wanted
from app.api.discovery import VERBS, Discovery
from app.kinds import KINDS
from app.kinds.base import Kind

DISCOVERY = Discovery(KINDS)
by_resource = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)


def read(path: str, wanted: Wanted = JSON) -> Any:
    document = DISCOVERY.document(path, wanted)
    assert document is not None
    return msgspec.json.decode(document.body)


def entries(kind: Kind[Any]) -> dict[str, Any]:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return {entry["name"]: entry for entry in read(root)["resources"]}


def aggregated(kind: Kind[Any], version: str) -> dict[str, Any]:
    groups = read("/apis" if kind.group else "/api", Wanted("discovery", version))["items"]
    versions = next(group["versions"] for group in groups if group["metadata"]["name"] == kind.group)
    resources = next(each["resources"] for each in versions if each["version"] == kind.version)
    found: dict[str, Any] = next(each for each in resources if each["resource"] == kind.plural)
    return found


@by_resource
def test_every_kind_is_listed(kind: Kind[Any]) -> None:
    entry = entries(kind)[kind.plural]

    assert (entry["kind"], entry["namespaced"], entry["singularName"]) == (kind.name, kind.namespaced, kind.singular)
    assert tuple(entry["verbs"]) == VERBS
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


@pytest.mark.parametrize("path", ["/", "/apis/apps", "/apis/batch/v2", "/api/v1/pods"])
def test_there_is_nothing_else(path: str) -> None:
    assert DISCOVERY.document(path, JSON) is None


def test_an_aggregated_answer_says_so_in_its_content_type() -> None:
    document = DISCOVERY.document("/apis", Wanted("discovery", "v2"))

    assert document is not None
    assert document.content_type == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
