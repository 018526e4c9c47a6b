"""OpenAPI: the committed documents are what the kinds give, and hold what kubectl looks for in them."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from app.api.http.content_negotiation import JSON, ResponseFormat
from app.api.openapi.v2 import EMPTY, OpenApiV2
from app.api.openapi.v3 import OpenApi
from app.api.resources.discovery import Discovery, EphemeralResource
from app.api.resources.ephemeral_resources import EPHEMERAL
from app.kinds import KINDS
from app.machinery.base import Kind

OPENAPI = OpenApi(KINDS, EPHEMERAL)
CONTENTS = dict(OPENAPI.contents())
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


def test_the_index_leads_to_every_document() -> None:
    index = OPENAPI.document("/openapi/v3/")
    assert index is not None

    for group, link in msgspec.json.decode(index.body)["paths"].items():
        path, _, digest = link["serverRelativeURL"].partition("?hash=")
        document = OPENAPI.document(path)
        assert document is not None, group
        assert document.etag == f'"{digest}"'


@pytest.mark.parametrize("path", ["/openapi/v3/apis/apps/v2", "/openapi", "/openapi/v3/x"])
def test_there_is_nothing_else(path: str) -> None:
    assert OPENAPI.document(path) is None


@every_document
def test_every_reference_leads_somewhere(name: str) -> None:
    components = CONTENTS[name]["components"]
    there = {f"#/components/{part}/{each}" for part in ("schemas", "responses") for each in components[part]}

    assert set(values(CONTENTS[name], "$ref")) <= there


@every_document
def test_every_operation_has_a_name_of_its_own(name: str) -> None:
    names = list(values(CONTENTS[name], "operationId"))

    assert len(names) == len(set(names))


@every_document
def test_no_schema_is_empty(name: str) -> None:
    assert all(CONTENTS[name]["components"]["schemas"].values())


@every_document
def test_no_list_of_properties_is_empty(name: str) -> None:
    assert all(values(CONTENTS[name]["components"]["schemas"], "properties"))


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
    mine = {path: each for path, each in paths.items() if path.startswith(single) and "/proxy" not in path}
    patches = [each["patch"] for each in mine.values() if "patch" in each]

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


@pytest.mark.parametrize(
    ("document", "name", "required"),
    [
        ("api_v1", "io.k8s.api.core.v1.Event", {"metadata", "involvedObject"}),
        ("apis_batch_v1", "io.k8s.api.batch.v1.CronJob", {"spec"}),
        ("apis_batch_v1", "io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern", {"type"}),
        ("apis_discovery.k8s.io_v1", "io.k8s.api.discovery.v1.EndpointSlice", {"addressType"}),
        ("apis_policy_v1", "io.k8s.api.policy.v1.PodDisruptionBudgetStatus", set()),
        ("apis_rbac.authorization.k8s.io_v1", "io.k8s.api.rbac.v1.RoleRef", {"kind", "name"}),
        ("apis_scheduling.k8s.io_v1", "io.k8s.api.scheduling.v1.PriorityClass", set()),
        ("api_v1", "io.k8s.api.authentication.v1.TokenRequestSpec", set()),
    ],
)
def test_what_is_required_is_what_kubernetes_requires(document: str, name: str, required: set[str]) -> None:
    assert set(CONTENTS[document]["components"]["schemas"][name].get("required", ())) == required


def test_formats_are_kubernetes_formats() -> None:
    schemas = CONTENTS["apis_batch_v1"]["components"]["schemas"]
    job = schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]

    assert (job["parallelism"]["format"], job["activeDeadlineSeconds"]["format"]) == ("int32", "int64")
    assert schemas["io.k8s.apimachinery.pkg.apis.meta.v1.Time"]["format"] == "date-time"
    assert job["template"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}]
    secret = CONTENTS["api_v1"]["components"]["schemas"]["io.k8s.api.core.v1.Secret"]["properties"]["data"]
    assert secret["additionalProperties"] == {"type": "string", "format": "byte"}


@every_document
def test_every_field_is_described(name: str) -> None:
    schemas = CONTENTS[name]["components"]["schemas"]
    silent = [
        f"{of}.{field}"
        for of, schema in schemas.items()
        for field, each in schema.get("properties", {}).items()
        if not each.get("description", "").strip()
    ]

    assert silent == []
    assert [of for of, schema in schemas.items() if not schema["description"].strip()] == []


@every_document
def test_every_operation_tells_how_it_may_fail(name: str) -> None:
    responses = CONTENTS[name]["components"]["responses"]
    for operation in operations(CONTENTS[name]):
        assert {"400", "401", "403", "404", "500", "503"} <= set(operation["responses"])
        for code, answer in operation["responses"].items():
            assert int(code) < 300 or answer["$ref"].rpartition("/")[2] in responses


@every_document
def test_every_path_parameter_is_declared(name: str) -> None:
    for path, item in CONTENTS[name]["paths"].items():
        assert re.findall(r"{(\w+)}", path) == [each["name"] for each in item.get("parameters", ())][::-1]


@every_document
def test_a_default_never_lacks_what_is_required(name: str) -> None:
    schemas = CONTENTS[name]["components"]["schemas"]
    for schema in schemas.values():
        for each in schema.get("properties", {}).values():
            for value in (each, each.get("items", {})):
                if value.get("default") == {} and "allOf" in value:
                    assert "required" not in schemas[value["allOf"][0]["$ref"].rpartition("/")[2]]


def test_what_is_posted_to_a_pod_is_described() -> None:
    posted = CONTENTS["api_v1"]["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/binding"]["post"]

    assert posted["operationId"] == "createCoreV1NamespacedPodBinding"
    assert posted["x-kubernetes-group-version-kind"] == {"group": "", "kind": "Binding", "version": "v1"}
    assert posted["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("io.k8s.api.core.v1.Binding")


def test_a_log_is_text_with_options_of_its_own() -> None:
    log = CONTENTS["api_v1"]["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/log"]["get"]

    assert list(log["responses"]["200"]["content"]) == ["text/plain"]
    assert "content" not in log["responses"]["204"]
    assert {"container", "follow", "previous", "sinceSeconds", "tailLines", "limitBytes", "timestamps"} <= {
        each["name"] for each in log["parameters"]
    }


def test_the_values_that_a_field_may_have_are_told() -> None:
    schemas = CONTENTS["apis_batch_v1"]["components"]["schemas"]

    spec = schemas["io.k8s.api.batch.v1.JobSpec"]["properties"]
    assert spec["completionMode"]["enum"] == ["Indexed", "NonIndexed"]
    quota = CONTENTS["api_v1"]["components"]["schemas"]["io.k8s.api.core.v1.ResourceQuotaSpec"]["properties"]
    assert "BestEffort" in quota["scopes"]["items"]["enum"]


@pytest.mark.parametrize(
    ("name", "told"),
    [("Pod", {"lastProbeTime", "observedGeneration"}), ("Namespace", set())],
)
def test_each_kind_has_conditions_of_its_own(name: str, told: set[str]) -> None:
    condition = CONTENTS["api_v1"]["components"]["schemas"][f"io.k8s.api.core.v1.{name}Condition"]["properties"]

    assert condition.keys() & {"lastProbeTime", "observedGeneration"} == told


@pytest.mark.parametrize("virtual", EPHEMERAL, ids=lambda virtual: f"{virtual.plural}.{virtual.group}")
def test_what_is_answered_on_the_spot_is_described(virtual: EphemeralResource) -> None:
    document = CONTENTS[f"apis_{virtual.group}_{virtual.version}"]
    scope = "/namespaces/{namespace}" if virtual.namespaced else ""
    path = document["paths"][f"/apis/{virtual.group}/{virtual.version}{scope}/{virtual.plural}"]
    mark = {"group": virtual.group, "kind": virtual.kind, "version": virtual.version}

    assert {"create": "post", "list": "get"}[next(each for each in virtual.verbs if each != "get")] in path
    assert any(
        mark in each.get("x-kubernetes-group-version-kind", ()) for each in document["components"]["schemas"].values()
    )


@every_kind
def test_the_verbs_of_discovery_are_the_operations(kind: Kind[Any]) -> None:
    discovered = Discovery(KINDS).document(f"/{root(kind)}", JSON)
    assert discovered is not None
    paths, single = document_of(kind)["paths"], f"{collection(kind)}/{{name}}"
    for entry in msgspec.json.decode(discovered.body)["resources"]:
        plural, _, part = entry["name"].partition("/")
        if plural == kind.plural:
            found = [paths[f"{single}/{part}"]] if part else [paths[collection(kind)], paths[single]]
            assert {verb for path in found for verb in done(path)} == set(entry["verbs"]) - {"watch"}


def test_version_two_is_empty_under_the_type_that_old_kubectl_parses() -> None:
    document = OpenApiV2(OPENAPI).document(ResponseFormat("openapi-v2"))

    assert document == EMPTY
    assert (document.body, document.content_type) == (b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")


def test_version_two_as_json_has_every_path_and_schema() -> None:
    swagger = msgspec.json.decode(OpenApiV2(OPENAPI).document(JSON).body)

    assert swagger["swagger"] == "2.0"
    assert set(swagger["paths"]) == {path for each in CONTENTS.values() for path in each["paths"]}
    assert {each.rpartition("/")[2] for each in values(swagger, "$ref")} <= {
        *swagger["definitions"],
        *swagger["responses"],
    }
    assert not {each for each in ("oneOf", "anyOf", "allOf") if f"'{each}'" in str(swagger)}
    create = swagger["paths"]["/apis/batch/v1/namespaces/{namespace}/jobs"]["post"]
    assert create["parameters"][0] == {
        "name": "body",
        "in": "body",
        "required": True,
        "schema": {"$ref": "#/definitions/io.k8s.api.batch.v1.Job"},
    }


def root(kind: Kind[Any]) -> str:
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def methods(path: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for method, each in path.items() if method != "parameters"]


VERBS = {"post": "create", "put": "update"}


def done(path: dict[str, Any]) -> Iterator[str]:
    """The verbs of a path's operations. Discovery has none for what only the proxy takes."""
    for method, each in path.items():
        if method not in ("parameters", "head", "options"):
            action = method if each["x-kubernetes-action"] == "connect" else each["x-kubernetes-action"]
            yield VERBS.get(action, action)


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in methods(path)]


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
