"""OpenAPI: the committed documents are what the kinds give, and hold what kubectl looks for in them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.api import openapi_v2
from app.api.openapi import OpenApi, write
from app.kinds import KINDS
from app.kinds.base import Kind

OPENAPI = OpenApi(KINDS)
CONTENTS = dict(OPENAPI.contents())
COMMITTED = Path(__file__).parents[2] / "openapi"
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
every_document = pytest.mark.parametrize("name", CONTENTS)


def document_of(kind: Kind[Any]) -> dict[str, Any]:
    return CONTENTS[f"apis_{kind.group}_{kind.version}" if kind.group else f"api_{kind.version}"]


def schema_of(kind: Kind[Any]) -> dict[str, Any]:
    wanted = {"group": kind.group, "kind": kind.name, "version": kind.version}
    schemas = document_of(kind)["components"]["schemas"].values()
    found = [schema for schema in schemas if wanted in schema.get("x-kubernetes-group-version-kind", ())]
    assert len(found) == 1
    schema: dict[str, Any] = found[0]
    return schema


def test_the_committed_documents_are_current(tmp_path: Path) -> None:
    write(tmp_path, KINDS)

    made, committed = ({path.name: path.read_bytes() for path in each.glob("*.json")} for each in (tmp_path, COMMITTED))
    assert made == committed, "run `python -m app.api.openapi openapi/` and read what changed"


def test_writing_removes_the_documents_of_groups_that_are_no_more(tmp_path: Path) -> None:
    (tmp_path / "apis_gone_v1.json").write_text("{}")
    write(tmp_path, KINDS)

    assert not (tmp_path / "apis_gone_v1.json").exists()


def test_the_index_leads_to_every_document() -> None:
    index = OPENAPI.document("/openapi/v3/")
    assert index is not None

    for group, link in msgspec.json.decode(index.body)["paths"].items():
        path, _, digest = link["serverRelativeURL"].partition("?hash=")
        document = OPENAPI.document(path)
        assert document is not None, group
        assert document.etag == f'"{digest}"'


@pytest.mark.parametrize("path", ["/openapi/v3/apis/apps/v1", "/openapi", "/openapi/v3/x"])
def test_there_is_nothing_else(path: str) -> None:
    assert OPENAPI.document(path) is None


@every_document
def test_every_reference_leads_somewhere(name: str) -> None:
    schemas = CONTENTS[name]["components"]["schemas"]

    assert {reference.rpartition("/")[2] for reference in values(CONTENTS[name], "$ref")} <= set(schemas)


@every_document
def test_every_operation_has_a_name_of_its_own(name: str) -> None:
    names = list(values(CONTENTS[name], "operationId"))

    assert len(names) == len(set(names))


@every_document
def test_no_schema_is_empty(name: str) -> None:
    assert all(CONTENTS[name]["components"]["schemas"].values())


@every_kind
def test_explain_finds_the_kind_by_its_path(kind: Kind[Any]) -> None:
    operations = document_of(kind)["paths"][collection(kind)]

    for method in ("get", "post"):
        mark = operations[method]["x-kubernetes-group-version-kind"]
        assert mark == {"group": kind.group, "kind": kind.name, "version": kind.version}
    assert {"apiVersion", "kind", "metadata"} <= set(schema_of(kind)["properties"])


@every_kind
def test_every_patch_knows_field_validation_and_strategic_merges(kind: Kind[Any]) -> None:
    paths = document_of(kind)["paths"]
    single = collection(kind) + "/{name}"
    patches = [each["patch"] for path, each in paths.items() if path.startswith(single) and "patch" in each]

    assert patches
    for patch in patches:
        assert {"fieldValidation", "fieldManager", "dryRun", "force"} <= {each["name"] for each in patch["parameters"]}
        assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]


def test_schemas_bear_kubernetes_names() -> None:
    batch = CONTENTS["apis_batch_v1"]["components"]["schemas"]

    assert {
        "io.k8s.api.batch.v1.Job",
        "io.k8s.api.batch.v1.JobCondition",
        "io.k8s.api.batch.v1.JobList",
        "io.k8s.api.batch.v1.JobSpec",
        "io.k8s.api.batch.v1.PodFailurePolicyRule",
        "io.k8s.api.core.v1.Container",
        "io.k8s.api.core.v1.LocalObjectReference",
        "io.k8s.api.core.v1.PodTemplateSpec",
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
    } <= set(batch)


def test_lists_say_how_they_merge() -> None:
    schemas = CONTENTS["api_v1"]["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    command = schemas["io.k8s.api.core.v1.Container"]["properties"]["command"]

    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert (containers["x-kubernetes-list-type"], containers["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    assert command["x-kubernetes-list-type"] == "atomic"


def test_formats_are_kubernetes_formats() -> None:
    schemas = CONTENTS["apis_batch_v1"]["components"]["schemas"]
    job = schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]

    assert (job["parallelism"]["format"], job["activeDeadlineSeconds"]["format"]) == ("int32", "int64")
    assert schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"]["format"] == "date-time"
    assert job["template"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}]
    secret = CONTENTS["api_v1"]["components"]["schemas"]["io.k8s.api.core.v1.Secret"]["properties"]["data"]
    assert secret["additionalProperties"] == {"type": "string", "format": "byte"}


def test_version_two_is_empty_under_the_type_that_old_kubectl_parses() -> None:
    assert openapi_v2.BODY == b""
    assert openapi_v2.CONTENT_TYPE == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def collection(kind: Kind[Any]) -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def values(document: Any, key: str) -> Iterator[str]:
    """Every value under `key`, however deep."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key and isinstance(value, str):
                yield value
            else:
                yield from values(value, key)
    elif isinstance(document, list):
        for each in document:
            yield from values(each, key)
