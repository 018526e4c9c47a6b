"""Custom objects over HTTP: a definition is posted, and its kind is there; what is sent is pruned, completed and checked."""

import json

import httpx
import pytest
import pytest_asyncio

from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import DEFINITIONS, GROUP, define, definition, path, version, widget

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def admin(lasting_admin: httpx.AsyncClient, restored: Registry) -> httpx.AsyncClient:
    return lasting_admin


@pytest_asyncio.fixture(loop_scope="module")
async def widgets(admin: httpx.AsyncClient) -> httpx.AsyncClient:
    await define(admin, definition())
    return admin


async def test_a_definition_is_served_from_its_answer_on(admin: httpx.AsyncClient) -> None:
    made = await define(admin, definition())

    assert made["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert made["spec"]["conversion"] == {"strategy": "None"}
    conditions = [(each["type"], each["status"], each["reason"]) for each in made["status"]["conditions"]]
    assert conditions == [("NamesAccepted", "True", "NoConflicts"), ("Established", "True", "InitialNamesAccepted")]
    assert made["status"]["acceptedNames"] == {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
    }
    assert made["status"]["storedVersions"] == ["v1"]

    listed = (await admin.get(f"/apis/{GROUP}/v1")).json()["resources"]
    assert [each["name"] for each in listed] == ["widgets", "widgets/scale", "widgets/status"]
    groups = (await admin.get("/apis")).json()["groups"]
    assert GROUP in [each["name"] for each in groups]


async def test_objects_are_pruned_completed_and_counted(widgets: httpx.AsyncClient) -> None:
    sent = widget(zzz=1, note=None, size=None, parts=[{"name": "a"}], free={"any": [None]})
    sent["status"] = {"phase": "Done"}
    made = await widgets.post(path(), json=sent)

    assert made.status_code == 201
    assert made.headers["Warning"] == '299 - "unknown field \\"spec.zzz\\""'
    said = made.json()
    assert said["spec"] == {
        "replicas": 1,
        "color": "red",
        "note": None,
        "free": {"any": [None]},
        "parts": [{"name": "a", "weight": 5}],
    }
    assert "status" not in said
    assert said["metadata"]["generation"] == 1

    said["spec"]["color"] = "blue"
    changed = (await widgets.put(path(name="w"), json=said)).json()
    assert changed["metadata"]["generation"] == 2

    status = await widgets.patch(
        f"{path(name='w')}/status",
        json={"status": {"phase": "Done", "zzz": 1}, "spec": {"color": "red"}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert status.json()["status"] == {"phase": "Done"}
    assert status.json()["spec"]["color"] == "blue"
    assert status.json()["metadata"]["generation"] == 2


async def test_invalid_objects_are_refused_in_kubernetes_words(widgets: httpx.AsyncClient) -> None:
    sent = widget(replicas="string", note="TOO LONG FOR THIS", tags=["a", "a"], since="noon", size=True)
    del sent["spec"]["color"]
    refused = (await widgets.post(path(), json=sent)).json()

    assert refused["code"] == 422
    assert [f"{each['field']}: {each['message']}" for each in refused["details"]["causes"]] == [
        'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"',
        "spec.note: Too long: may not be more than 10 bytes",
        'spec.since: Invalid value: "noon": spec.since in body must be of type date-time: "noon"',
        'spec.size: Invalid value: "boolean": spec.size in body must be of type integer,string: "boolean"',
        "spec.color: Required value",
        'spec.tags[1]: Duplicate value: "a"',
    ]
    for spec, text in (
        ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        ({"replicas": -1}, "Invalid value: -1: spec.replicas in body should be greater than or equal to 0"),
    ):
        assert text in (await widgets.post(path(), json=widget(**spec))).json()["message"]


async def test_strict_validation_refuses_unknown_and_duplicate_fields(widgets: httpx.AsyncClient) -> None:
    strict = {"fieldValidation": "Strict"}
    refused = (await widgets.post(path(), params=strict, json=widget(zzz=1))).json()
    assert refused["code"] == 400
    assert refused["message"].endswith('strict decoding error: unknown field "spec.zzz"')

    twice = json.dumps(widget()).replace('"color": "red"', '"color": "red", "color": "red"')
    refused = (await widgets.post(path(), params=strict, content=twice)).json()
    assert refused["message"].endswith('strict decoding error: duplicate field "spec.color"')


async def test_custom_objects_are_json_or_yaml_alone(widgets: httpx.AsyncClient) -> None:
    await widgets.post(path(), json=widget())
    media = {"Content-Type": "application/strategic-merge-patch+json"}
    refused = await widgets.patch(path(name="w"), json={}, headers=media)
    assert refused.status_code == 415
    assert refused.json()["message"].endswith(
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    )
    media = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    assert (await widgets.post(path(), content=b"k8s\0", headers=media)).status_code == 415
    accepts = {"Accept": "application/vnd.kubernetes.protobuf"}
    assert (await widgets.get(path(name="w"), headers=accepts)).status_code == 406


async def test_two_appliers_share_a_list_by_its_keys(widgets: httpx.AsyncClient) -> None:
    async def apply(manager: str, part: str) -> httpx.Response:
        sent = widget(parts=[{"name": part}])
        media = {"Content-Type": "application/apply-patch+yaml"}
        return await widgets.patch(path(name="w"), params={"fieldManager": manager}, json=sent, headers=media)

    assert (await apply("one", "a")).status_code == 201
    both = await apply("two", "b")
    assert both.status_code == 200, both.text
    said = both.json()
    assert said["spec"]["parts"] == [{"name": "a", "weight": 5}, {"name": "b", "weight": 5}]
    assert said["metadata"]["generation"] == 2
    owned = {each["manager"]: each["fieldsV1"]["f:spec"] for each in said["metadata"]["managedFields"]}
    assert owned == {
        "one": {"f:color": {}, "f:parts": {'k:{"name":"a"}': {".": {}, "f:name": {}}}},
        "two": {"f:color": {}, "f:parts": {'k:{"name":"b"}': {".": {}, "f:name": {}}}},
    }
    refused = (
        await apply("two", "b")
        if False
        else await widgets.patch(
            path(name="w"),
            params={"fieldManager": "two"},
            json=widget(zzz=1),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
    )
    assert refused.json()["message"].endswith(".spec.zzz: field not declared in schema")


async def test_tables_and_field_selectors_follow_the_definition(widgets: httpx.AsyncClient) -> None:
    await widgets.post(path(), json=widget("one"))
    await widgets.post(path(), json=widget("two", color="blue", replicas=3))
    accepts = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await widgets.get(path(), headers=accepts)).json()

    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Color", "Replicas"]
    assert [each["cells"] for each in table["rows"]] == [["one", "red", 1], ["two", "blue", 3]]
    found = (await widgets.get(path(), params={"fieldSelector": "spec.color=blue"})).json()
    assert (found["kind"], [each["metadata"]["name"] for each in found["items"]]) == ("WidgetList", ["two"])
    refused = (await widgets.get(path(), params={"fieldSelector": "spec.replicas=1"})).json()
    assert (refused["code"], refused["message"]) == (400, "field label not supported: spec.replicas")


async def test_versions_differ_by_their_name_alone(admin: httpx.AsyncClient) -> None:
    old = version("v1beta1", deprecated=True, deprecationWarning="Use v1 instead.")
    await define(admin, definition("widgets", "Widget", version(), old))
    sent = widget(api_version=f"{GROUP}/v1beta1")
    made = await admin.post(path(version="v1beta1"), json=sent)

    assert made.status_code == 201, made.text
    assert made.headers["Warning"] == '299 - "Use v1 instead."'
    assert made.json()["apiVersion"] == f"{GROUP}/v1beta1"
    read = (await admin.get(path(name="w"))).json()
    assert read == made.json() | {"apiVersion": f"{GROUP}/v1"}


async def test_names_that_are_taken_are_not_accepted(admin: httpx.AsyncClient) -> None:
    await define(admin, definition())
    made = await define(admin, definition("gadgets", "Widget"))

    accepted, established, *_ = made["status"]["conditions"]
    assert (accepted["status"], accepted["reason"]) == ("False", "ListKindConflict")
    assert (established["status"], established["reason"]) == ("False", "NotAccepted")
    assert (await admin.get(path("gadgets"))).status_code == 404


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (
            {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"default": 1}}}}},
            "spec.validation.openAPIV3Schema.properties[spec].properties[n].type: Required value: "
            "must not be empty for specified object fields",
        ),
        (
            {"type": "object", "properties": {"n": {"type": "integer", "default": "one"}}},
            'spec.validation.openAPIV3Schema.properties[n].default: Invalid value: "string": '
            ' in body must be of type integer: "string"',
        ),
    ],
)
async def test_schemas_that_are_not_structural_are_refused(
    admin: httpx.AsyncClient, schema: dict[str, object], text: str
) -> None:
    sent = definition("widgets", "Widget", version(schema={"openAPIV3Schema": schema}))
    refused = (await admin.post(DEFINITIONS, json=sent)).json()

    assert refused["code"] == 422
    assert text in refused["message"]


async def test_fields_that_cannot_be_compared_are_not_selectable(admin: httpx.AsyncClient) -> None:
    paths = (".spec.color", ".spec.parts", ".spec.nonsense", ".metadata.name", ".spec.labels.any")
    sent = definition("widgets", "Widget", version(selectableFields=[{"jsonPath": each} for each in paths]))
    causes = (await admin.post(DEFINITIONS, json=sent)).json()["details"]["causes"]

    assert [(each["field"].partition("selectableFields")[2], each["message"].split(": ", 2)[2]) for each in causes] == [
        ("[1].jsonPath", "must point to a field of type string, boolean or integer. "
                         "Enum string fields and strings with formats are allowed."),
        ("[2].jsonPath", "is an invalid path: does not refer to a valid field"),
        ("[3].jsonPath", "must not point to fields in metadata"),
    ]  # fmt: skip


async def test_an_object_is_scaled(widgets: httpx.AsyncClient) -> None:
    await widgets.post(path(), json=widget(replicas=2))
    url = f"{path(name='w')}/scale"
    scale = (await widgets.get(url)).json()
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 2}, {"replicas": 0})

    scale["spec"]["replicas"] = 5
    assert (await widgets.put(url, json=scale)).json()["spec"] == {"replicas": 5}
    assert (await widgets.put(url, json=scale)).status_code == 409
    media = {"Content-Type": "application/merge-patch+json"}
    assert (await widgets.patch(url, json={"spec": {"replicas": 7}}, headers=media)).json()["spec"] == {"replicas": 7}
    refused = (await widgets.patch(url, json={"spec": {"replicas": -1}}, headers=media)).json()
    assert refused["message"].endswith("spec.replicas: Invalid value: -1: must be greater than or equal to 0")
    made = (await widgets.get(path(name="w"))).json()
    assert (made["spec"]["replicas"], made["metadata"]["generation"]) == (7, 3)


async def test_a_watch_ends_when_its_kind_changes(widgets: httpx.AsyncClient) -> None:
    await widgets.post(path(), json=widget())
    async with widgets.stream("GET", path(), params={"watch": "true"}) as watch:
        lines = watch.aiter_lines()
        assert json.loads(await anext(lines))["type"] == "ADDED"
        crd = (await widgets.get(f"{DEFINITIONS}/widgets.{GROUP}")).json()
        del crd["spec"]["versions"][0]["additionalPrinterColumns"]
        assert (await widgets.put(f"{DEFINITIONS}/widgets.{GROUP}", json=crd)).status_code == 200
        assert [line async for line in lines] == []
    accepts = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await widgets.get(path(), headers=accepts)).json()
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Age"]


async def test_rules_in_cel_are_checked(admin: httpx.AsyncClient) -> None:
    spec = {
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.low <= self.high", "message": "too many"},
            {"rule": "!has(oldSelf.color) || self.color == oldSelf.color", "reason": "FieldValueForbidden",
             "fieldPath": ".color", "message": "color is immutable"},
            {"rule": "self.max__dash__runs > 0.5", "messageExpression": "'runs: ' + string(self.max__dash__runs)"},
        ],
        "properties": {
            "low": {"type": "integer", "default": 0},
            "high": {"type": "integer", "default": 1},
            "color": {"type": "string"},
            "max-runs": {"type": "number", "default": 1},
            "parts": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 0}},
                    "x-kubernetes-validations": [{"rule": "self.weight >= oldSelf.weight"}],
                },
            },
        },
    }  # fmt: skip
    schema = {"type": "object", "properties": {"spec": spec}}
    await define(
        admin, definition("widgets", "Widget", version(schema={"openAPIV3Schema": schema}, selectableFields=[]))
    )

    async def refusals(answer: httpx.Response) -> list[str]:
        assert answer.status_code == 422, answer.text
        return [f"{each['field']}: {each['message']}" for each in answer.json()["details"]["causes"]]

    refused = await admin.post(path(), json=widget(low=2, **{"max-runs": 0}))
    assert await refusals(refused) == ["spec: Invalid value: too many", "spec: Invalid value: runs: 0"]
    made = (await admin.post(path(), json=widget(parts=[{"name": "a"}, {"name": "b", "weight": 3}]))).json()
    made["spec"] |= {"color": "blue", "parts": [{"name": "b", "weight": 2}, {"name": "a", "weight": 1}, {"name": "c"}]}
    refused = await admin.put(path(name="w"), json=made)
    assert await refusals(refused) == [
        "spec.color: Forbidden: color is immutable",
        "spec.parts[0]: Invalid value: failed rule: self.weight >= oldSelf.weight",
    ]
    wrong = definition("gadgets", "Gadget", version(schema={"openAPIV3Schema": {
        "type": "object", "x-kubernetes-validations": [{"rule": "self."}]}}, selectableFields=[]))  # fmt: skip
    refused = await admin.post(DEFINITIONS, json=wrong)
    assert ".x-kubernetes-validations[0].rule: Invalid value: " in (await refusals(refused))[0]
    assert "compilation failed: ERROR: <input>:1:6" in (await refusals(refused))[0]


async def test_an_update_is_not_refused_for_what_it_leaves(widgets: httpx.AsyncClient) -> None:
    made = (await widgets.post(path(), json=widget(tags=["a"], parts=[{"name": "a", "weight": -1}]))).json()
    crd = (await widgets.get(f"{DEFINITIONS}/widgets.{GROUP}")).json()
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["tags"]["items"]["minLength"] = 2
    spec["parts"]["items"]["properties"]["weight"]["minimum"] = 0
    assert (await widgets.put(f"{DEFINITIONS}/widgets.{GROUP}", json=crd)).status_code == 200

    made["spec"]["color"] = "blue"
    made["spec"]["parts"].insert(0, {"name": "b"})
    changed = await widgets.put(path(name="w"), json=made)
    assert changed.status_code == 200, changed.text
    made = changed.json()
    made["spec"]["tags"].append("bb")
    refused = (await widgets.put(path(name="w"), json=made)).json()
    assert refused["message"].endswith("spec.tags[0] in body should be at least 2 chars long")


FREE = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        }
    },
}
NOTES = f"/apis/{GROUP}/v1/notes"


async def test_a_kind_without_a_namespace_may_leave_its_fields_open(admin: httpx.AsyncClient) -> None:
    plain = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": FREE}}
    await define(admin, definition("notes", "Note", plain, scope="Cluster"))
    sent = {"apiVersion": f"{GROUP}/v1", "kind": "Note", "metadata": {"name": "n", "labels": {"a": "b"}}}
    inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}
    sent |= {"any": [1, None, {"deep": True}], "status": {"phase": "Done"}, "template": inner}
    made = await admin.post(NOTES, params={"fieldValidation": "Strict"}, json=sent)
    assert made.status_code == 201, made.text
    assert {name: made.json()[name] for name in sent if name != "metadata"} == {
        name: each for name, each in sent.items() if name != "metadata"
    }
    media = {"Content-Type": "application/json-patch+json"}
    steps = [{"op": "test", "path": "/any/0", "value": 1}, {"op": "replace", "path": "/status/phase", "value": "More"}]
    changed = (await admin.patch(f"{NOTES}/n", json=steps, headers=media)).json()
    assert (changed["status"], changed["metadata"]["generation"]) == ({"phase": "More"}, 2)
    assert (await admin.patch(f"{NOTES}/n", json=steps[:1] * 2, headers=media)).status_code == 200
    steps[0]["value"] = 2
    assert (await admin.patch(f"{NOTES}/n", json=steps, headers=media)).status_code == 422
    refused = (await admin.post(NOTES, json=sent | {"metadata": {"name": "m"}, "template": {"kind": "Pod"}})).json()
    assert refused["message"].endswith("template.apiVersion: Required value")

    accepts = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    listed = (await admin.get(NOTES, params={"labelSelector": "a=b"}, headers=accepts)).json()
    assert (listed["kind"], [each["metadata"]["name"] for each in listed["items"]]) == (
        "PartialObjectMetadataList",
        ["n"],
    )
    assert (await admin.get(f"{NOTES}/n/status")).status_code == 404
    assert (await admin.delete(NOTES, params={"labelSelector": "a=b"})).status_code == 200
    assert (await admin.get(NOTES)).json()["items"] == []


async def test_admission_policies_are_asked_about_custom_objects(widgets: httpx.AsyncClient) -> None:
    root = "/apis/admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}
    policy = {
        "metadata": {"name": "no-blue"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.spec.color != 'blue'", "message": "no blue"}],
        },
    }
    binding = {"metadata": {"name": "no-blue"}, "spec": {"policyName": "no-blue", "validationActions": ["Deny"]}}
    assert (await widgets.post(f"{root}/validatingadmissionpolicies", json=policy)).status_code == 201
    assert (await widgets.post(f"{root}/validatingadmissionpolicybindings", json=binding)).status_code == 201
    assert (await widgets.post(path(), json=widget())).status_code == 201
    refused = (await widgets.post(path(), json=widget("b", color="blue"))).json()
    assert refused["message"].endswith("with binding 'no-blue' denied request: no blue")


async def test_unknown_keywords_of_a_schema_are_fields_too(admin: httpx.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "optional": True}}}
    sent = definition("widgets", "Widget", version(schema={"openAPIV3Schema": schema}, selectableFields=[]))
    refused = (await admin.post(DEFINITIONS, params={"fieldValidation": "Strict"}, json=sent)).json()
    unknown = 'unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.optional"'
    assert refused["message"].endswith(f"strict decoding error: {unknown}")
    warned = await admin.post(DEFINITIONS, json=sent)
    assert warned.headers["Warning"] == '299 - "{}"'.format(unknown.replace('"', '\\"'))


async def test_another_version_becomes_the_stored_one(admin: httpx.AsyncClient) -> None:
    await define(admin, definition("widgets", "Widget", version("v1beta1", storage=True)))
    await admin.post(path(version="v1beta1"), json=widget(api_version=f"{GROUP}/v1beta1"))
    url = f"{DEFINITIONS}/widgets.{GROUP}"
    crd = (await admin.get(url)).json()
    crd["spec"]["versions"] = [version(), version("v1beta1", storage=False)]
    crd = (await admin.put(url, json=crd)).json()
    assert crd["status"]["storedVersions"] == ["v1beta1", "v1"]
    for name in ("v1", "v1beta1"):
        assert (await admin.get(path(name="w", version=name))).json()["apiVersion"] == f"{GROUP}/{name}"
        assert (await admin.get(path(version=name))).json()["items"][0]["apiVersion"] == f"{GROUP}/{name}"

    crd["spec"]["versions"] = [version()]
    refused = (await admin.put(url, json=crd)).json()
    assert 'status.storedVersions[0]: Invalid value: "v1beta1": missing from spec.versions' in refused["message"]
    stored = (await admin.get(path(name="w"))).json()
    stored["spec"]["color"] = "blue"
    assert (await admin.put(path(name="w"), json=stored)).json()["apiVersion"] == f"{GROUP}/v1"
    media = {"Content-Type": "application/merge-patch+json"}
    patched = await admin.patch(f"{url}/status", json={"status": {"storedVersions": ["v1"]}}, headers=media)
    crd["metadata"] = patched.json()["metadata"]
    assert (await admin.put(url, json=crd)).status_code == 200
    assert (await admin.get(path(version="v1beta1"))).status_code == 404
    assert (await admin.get(path(name="w"))).json()["apiVersion"] == f"{GROUP}/v1"


async def test_openapi_v2_names_no_field_of_a_kind_that_takes_any(admin: httpx.AsyncClient) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await define(
        admin, definition("things", "Thing", version(schema={"openAPIV3Schema": anything}, selectableFields=[]))
    )
    schemas = (await admin.get("/openapi/v2")).json()["definitions"]

    gvk = [{"group": GROUP, "version": "v1", "kind": "Thing"}]
    assert schemas["com.example.lab.v1.Thing"] == {"type": "object", "x-kubernetes-group-version-kind": gvk}
