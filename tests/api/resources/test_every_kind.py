"""What Kubernetes promises of every resource, asked of every kind that there is, over HTTP.

A kind needs nothing but its `Kind` record to be in here: its example is what is created. The last one is custom.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from app.kinds.core.namespace import FIRST
from app.machinery.base import Kind
from app.machinery.shape import shape_of
from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import custom_kind, define, definition
from tests.registry.examples import ORDINARY

CUSTOM = custom_kind()
EVERY = [*ORDINARY, CUSTOM]
every_kind = pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.resource)
with_status = pytest.mark.parametrize(
    "kind", [kind for kind in EVERY if kind.has_status], ids=lambda kind: kind.resource
)

PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
WRITTEN = {"resourceVersion", "managedFields", "generation"}  # what a write may change by itself

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def admin(
    request: pytest.FixtureRequest, lasting_admin: httpx.AsyncClient, restored: Registry
) -> httpx.AsyncClient:
    if "kind" in request.fixturenames and request.getfixturevalue("kind") is CUSTOM:
        await define(lasting_admin, definition())
    return lasting_admin


def collection(kind: Kind, namespace: str = "default") -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{namespace}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


def example(kind: Kind, **metadata: Any) -> dict[str, Any]:
    """The kind's example, in the default namespace."""
    manifest: dict[str, Any] = msgspec.yaml.decode(kind.example)
    manifest["metadata"].pop("namespace", None)
    manifest["metadata"] |= metadata
    return manifest


async def create(admin: httpx.AsyncClient, kind: Kind, **metadata: Any) -> dict[str, Any]:
    answer = await admin.post(collection(kind), json=example(kind, **metadata))
    assert answer.status_code == 201, answer.text
    return answer.json()


def stored_as(kind: Kind) -> str:
    """How messages name the resource: a second version of the same thing goes by the first one's name."""
    return (kind.storage or kind).resource


def path(kind: Kind, obj: dict[str, Any]) -> str:
    return f"{collection(kind)}/{obj['metadata']['name']}"


async def items(admin: httpx.AsyncClient, kind: Kind, **params: str) -> list[str]:
    """Names of what is listed, without what every cluster has from the start."""
    answer = await admin.get(collection(kind), params=params)
    assert answer.status_code == 200, answer.text
    return [each["metadata"]["name"] for each in answer.json()["items"]]


def without_written(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in WRITTEN}
    return {**obj, "metadata": metadata}


def failure(answer: httpx.Response, code: int, reason: str) -> dict[str, Any]:
    said = answer.json()
    assert (answer.status_code, said["kind"], said["reason"]) == (code, "Status", reason), said
    return said


# --- reading back


@every_kind
async def test_what_was_created_is_found_in_every_way(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind, labels={"suite": "x"})
    meta = made["metadata"]

    assert (made["apiVersion"], made["kind"]) == (kind.api_version, kind.name)
    assert meta["uid"]
    assert meta["creationTimestamp"]
    assert int(meta["resourceVersion"]) > 0
    assert (await admin.get(path(kind, made))).json() == made
    listed = (await admin.get(collection(kind), params={"labelSelector": "suite=x"})).json()
    assert (listed["kind"], listed["apiVersion"]) == (f"{kind.name}List", kind.api_version)
    said_by_list = () if kind.definition else ("apiVersion", "kind")
    item = {name: each for name, each in made.items() if name not in said_by_list}
    assert listed["items"] == [item]
    everywhere = collection(kind).replace("/namespaces/default/", "/") if kind.namespaced else collection(kind)
    assert item in (await admin.get(everywhere)).json()["items"]


@every_kind
async def test_a_name_is_taken_once(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind)

    said = failure(await admin.post(collection(kind), json=example(kind)), 409, "AlreadyExists")

    assert said["message"] == f'{stored_as(kind)} "{made["metadata"]["name"]}" already exists'
    assert said["details"]["kind"] == kind.plural


@every_kind
async def test_a_name_can_be_made_from_a_prefix(kind: Kind, admin: httpx.AsyncClient) -> None:
    manifest = example(kind, generateName="made-")
    del manifest["metadata"]["name"]

    made = (await admin.post(collection(kind), json=manifest)).raise_for_status().json()

    assert made["metadata"]["name"].startswith("made-")
    assert len(made["metadata"]["name"]) == len("made-") + 5


@every_kind
async def test_what_is_not_there_is_not_found(kind: Kind, admin: httpx.AsyncClient) -> None:
    absent = f"{collection(kind)}/absent"
    manifest = example(kind, name="absent")

    for answer in (
        await admin.get(absent),
        await admin.put(absent, json=manifest),
        await admin.patch(absent, json={"metadata": {"labels": {"a": "b"}}}, headers=as_patch("merge")),
        await admin.delete(absent),
    ):
        said = failure(answer, 404, "NotFound")
        assert said["message"] == f'{stored_as(kind)} "absent" not found'


@every_kind
async def test_an_object_of_another_kind_is_refused(kind: Kind, admin: httpx.AsyncClient) -> None:
    wrong_kind = (422, "Invalid") if kind is CUSTOM else (400, "BadRequest")  # which is validated in Kubernetes, too
    for wrong, code in (({"kind": "Nonsense"}, wrong_kind), ({"apiVersion": "nonsense/v1"}, (400, "BadRequest"))):
        failure(await admin.post(collection(kind), json=example(kind) | wrong), *code)


@every_kind
async def test_a_table_has_the_kinds_columns(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind, labels={"suite": "x"})
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}

    listed = (await admin.get(collection(kind), params={"labelSelector": "suite=x"}, headers=accept)).json()

    assert listed["kind"] == "Table"
    if kind.columns:
        assert [each["name"] for each in listed["columnDefinitions"]] == [each.name for each in kind.columns]
    (row,) = listed["rows"]
    assert len(row["cells"]) == len(listed["columnDefinitions"])
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["uid"] == made["metadata"]["uid"]


# --- writing


@every_kind
async def test_a_stale_revision_is_a_conflict(kind: Kind, admin: httpx.AsyncClient) -> None:
    first = await create(admin, kind)
    changed = {**first, "metadata": first["metadata"] | {"labels": {"turn": "1"}}}
    second = (await admin.put(path(kind, first), json=changed)).raise_for_status().json()

    said = failure(await admin.put(path(kind, first), json=changed), 409, "Conflict")

    assert "the object has been modified; please apply your changes to the latest version" in said["message"]
    assert second["metadata"]["labels"]["turn"] == "1"
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert (await admin.get(path(kind, first))).json() == second


@every_kind
async def test_an_update_that_changes_nothing_makes_no_version(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind)

    again = (await admin.put(path(kind, made), json=made)).raise_for_status().json()

    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def as_patch(form: str) -> dict[str, str]:
    return {"Content-Type": PATCHES[form]}


def label_patch(form: str, kind: Kind, made: dict[str, Any]) -> Any:
    if form == "json":
        return [{"op": "add", "path": "/metadata/labels/patched", "value": form}]
    patch: dict[str, Any] = {"metadata": {"labels": {"patched": form}}}
    if form == "apply":
        patch |= {"apiVersion": kind.api_version, "kind": kind.name}
        patch["metadata"]["name"] = made["metadata"]["name"]
    return patch


@pytest.mark.parametrize("form", PATCHES)
@every_kind
async def test_every_form_of_patch_changes_one_thing(kind: Kind, form: str, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind, labels={"suite": "x"})

    params = {"fieldManager": "suite"}
    body = json.dumps(label_patch(form, kind, made))
    answer = await admin.patch(path(kind, made), params=params, content=body, headers=as_patch(form))

    if kind is CUSTOM and form == "strategic":  # which needs merge keys of structs
        failure(answer, 415, "UnsupportedMediaType")
        return
    assert answer.status_code == 200, answer.text
    patched = answer.json()
    assert patched["metadata"]["labels"].pop("patched") == form
    assert without_written(patched) == without_written(made)
    assert (await admin.get(path(kind, made))).json()["metadata"]["labels"]["patched"] == form


@every_kind
async def test_an_apply_creates_what_is_absent(kind: Kind, admin: httpx.AsyncClient) -> None:
    manifest = example(kind)
    params = {"fieldManager": "suite"}

    answers = [
        await admin.patch(path(kind, manifest), params=params, content=json.dumps(manifest), headers=as_patch("apply"))
        for _ in range(2)
    ]

    assert [answer.status_code for answer in answers] == [201, 200], answers[0].text
    first, second = (answer.json() for answer in answers)
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]
    if kind.tracked:
        (entry,) = first["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("suite", "Apply", "FieldsV1")


@every_kind
async def test_a_dry_run_says_what_would_happen_and_does_nothing(kind: Kind, admin: httpx.AsyncClient) -> None:
    dry = {"dryRun": "All", "fieldManager": "suite"}
    would = await admin.post(collection(kind), json=example(kind, name="dry"), params=dry)
    assert would.status_code == 201
    assert would.json()["metadata"]["name"] == "dry"
    assert "dry" not in await items(admin, kind)
    made = await create(admin, kind)

    changed = {**made, "metadata": made["metadata"] | {"labels": {"turn": "1"}}}
    updated = await admin.put(path(kind, made), json=changed, params=dry)
    patched = await admin.patch(
        path(kind, made),
        content=json.dumps({"metadata": {"labels": {"turn": "2"}}}),
        params=dry,
        headers=as_patch("merge"),
    )
    deleted = await admin.delete(path(kind, made), params=dry)

    assert updated.json()["metadata"]["labels"]["turn"] == "1"
    assert patched.json()["metadata"]["labels"]["turn"] == "2"
    assert deleted.status_code == 200
    assert (await admin.get(path(kind, made))).json() == made


@every_kind
async def test_unknown_fields_are_refused_warned_of_or_dropped(kind: Kind, admin: httpx.AsyncClient) -> None:
    odd = example(kind) | {"nonsense": 1}

    said = failure(
        await admin.post(collection(kind), json=odd, params={"fieldValidation": "Strict"}), 400, "BadRequest"
    )
    assert 'strict decoding error: unknown field "nonsense"' in said["message"]
    warned = await admin.post(
        collection(kind), json=odd | {"metadata": {"generateName": "warned-"}}, params={"fieldValidation": "Warn"}
    )
    ignored = await admin.post(collection(kind), json=odd, params={"fieldValidation": "Ignore"})

    assert 'unknown field \\"nonsense\\"' in warned.headers["Warning"]
    assert ignored.status_code == 201
    assert "nonsense" not in ignored.headers.get("Warning", "") + ignored.text


@every_kind
async def test_a_field_given_twice_is_refused(kind: Kind, admin: httpx.AsyncClient) -> None:
    body = json.dumps(example(kind))[:-1] + f',"kind":"{kind.name}"}}'

    answer = await admin.post(collection(kind), content=body, params={"fieldValidation": "Strict"})

    assert 'strict decoding error: duplicate field "kind"' in failure(answer, 400, "BadRequest")["message"]


# --- status


def a_status(kind: Kind) -> dict[str, Any]:
    """A change to the kind's status that its rules allow."""
    names = set(shape_of(kind.type).fields["status"].shape.fields)
    if "conditions" in names:
        since = "2026-01-02T03:04:05Z"
        condition = {"type": "suite.example/Seen", "status": "True", "reason": "Seen", "message": "by the suite"}
        return {"conditions": [condition | {"lastTransitionTime": since}]}
    if "lastScheduleTime" in names:
        return {"lastScheduleTime": "2026-01-02T03:04:05Z"}
    if "phase" in names:
        return {"phase": "Failed"}
    return {"used": {"pods": "1"}}


@with_status
async def test_a_status_is_written_through_its_own_path_only(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind)
    change = json.dumps({"metadata": {"labels": {"turn": "1"}}, "status": a_status(kind)})

    plain = await admin.patch(path(kind, made), content=change, headers=as_patch("merge"))
    assert plain.status_code == 200, plain.text
    assert plain.json().get("status") == made.get("status")
    answer = await admin.patch(f"{path(kind, made)}/status", content=change, headers=as_patch("merge"))
    assert answer.status_code == 200, answer.text
    seen = answer.json()

    (name,) = a_status(kind)
    assert seen["status"][name] == a_status(kind)[name]
    assert seen.get("spec") == made.get("spec")
    assert (await admin.get(f"{path(kind, made)}/status")).json() == seen


@every_kind
async def test_a_kind_without_status_has_no_path_for_one(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind)

    assert (await admin.get(f"{path(kind, made)}/status")).status_code == (200 if kind.has_status else 404)
    assert (await admin.get(f"{path(kind, made)}/nonsense")).status_code == 404


# --- selecting


@every_kind
async def test_selectors_select(kind: Kind, admin: httpx.AsyncClient) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        await create(admin, kind, name=name, labels={"color": color})
    theirs = {"labelSelector": "color"}

    assert await items(admin, kind, labelSelector="color=red") == ["a", "c"]
    assert await items(admin, kind, labelSelector="color in (blue,green)") == ["b"]
    assert await items(admin, kind, labelSelector="color,color!=red") == ["b"]
    assert await items(admin, kind, fieldSelector="metadata.name=b") == ["b"]
    assert await items(admin, kind, fieldSelector="metadata.name!=b", **theirs) == ["a", "c"]
    refused = await admin.get(collection(kind), params={"fieldSelector": "spec.nonsense=1"})
    assert "field label not supported: spec.nonsense" in failure(refused, 400, "BadRequest")["message"]


@every_kind
async def test_a_list_comes_in_pages(kind: Kind, admin: httpx.AsyncClient) -> None:
    for name in "abcde":
        await create(admin, kind, name=f"page-{name}")
    expected = await items(admin, kind)
    found: list[str] = []
    token = ""
    while True:
        page = (await admin.get(collection(kind), params={"limit": "2", "continue": token})).raise_for_status().json()
        found += [each["metadata"]["name"] for each in page["items"]]
        token = page["metadata"].get("continue", "")
        assert page["metadata"].get("remainingItemCount", 0) == len(expected) - len(found)
        if not token:
            break

    assert found == expected


# --- deleting


def lingers(kind: Kind) -> bool:
    """A namespace is emptied first, by its controller."""
    return kind.plural == "namespaces"


@every_kind
async def test_what_is_deleted_is_gone(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind)
    uid = made["metadata"]["uid"]
    wrong = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    refused = failure(await admin.request("DELETE", path(kind, made), json=wrong), 409, "Conflict")
    assert f"UID in object meta: {uid}" in refused["message"]

    right = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
    answer = await admin.request("DELETE", path(kind, made), json=right)

    assert answer.status_code == 200, answer.text
    left = await admin.get(path(kind, made))
    if lingers(kind):
        assert left.json()["metadata"]["deletionTimestamp"]
    else:
        assert left.status_code == 404


ANSWERED = {
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "storageclasses",
}  # ReturnDeletedObject in Kubernetes


@every_kind
async def test_a_deletion_that_ends_at_once_answers_the_object_or_a_status_as_in_kubernetes(
    kind: Kind, admin: httpx.AsyncClient
) -> None:
    made = await create(admin, kind)

    dry, real = [
        (
            await admin.delete(
                path(kind, made), params={"gracePeriodSeconds": "0", "propagationPolicy": "Background"} | dry
            )
        )
        .raise_for_status()
        .json()
        for dry in ({"dryRun": "All"}, {})
    ]

    if not lingers(kind) and kind.plural not in ANSWERED:
        assert (real["kind"], real["status"], real["details"]["name"]) == (
            "Status",
            "Success",
            made["metadata"]["name"],
        )
        return
    assert real["kind"] == dry["kind"] == kind.name
    assert real["metadata"]["uid"] == dry["metadata"]["uid"] == made["metadata"]["uid"]
    assert int(real["metadata"]["resourceVersion"]) > int(dry["metadata"]["resourceVersion"])
    assert real.get("spec") == dry.get("spec")


@every_kind
async def test_an_object_waits_for_its_finalizers(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind, finalizers=["suite.example/wait"])

    await admin.request("DELETE", path(kind, made), json={"propagationPolicy": "Background"})
    waiting = (await admin.get(path(kind, made))).raise_for_status().json()
    free = json.dumps({"metadata": {"finalizers": None}})
    await admin.patch(path(kind, made), content=free, headers=as_patch("merge"))

    assert waiting["metadata"]["deletionTimestamp"]
    assert waiting["metadata"]["finalizers"] == ["suite.example/wait"]
    if not lingers(kind):
        assert (await admin.get(path(kind, made))).status_code == 404


@pytest.mark.parametrize("kind", [kind for kind in EVERY if not lingers(kind)], ids=lambda kind: kind.resource)
async def test_all_that_is_selected_is_deleted(kind: Kind, admin: httpx.AsyncClient) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        await create(admin, kind, name=name, labels={"color": color})

    answer = await admin.delete(
        collection(kind), params={"labelSelector": "color=red", "propagationPolicy": "Background"}
    )

    assert answer.status_code == 200, answer.text
    assert await items(admin, kind, labelSelector="color") == ["b"]


# --- watching


@asynccontextmanager
async def watching(admin: httpx.AsyncClient, kind: Kind, **params: str) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a watch, as they come."""
    async with admin.stream("GET", collection(kind), params={"watch": "true"} | params) as answer:
        assert answer.status_code == 200
        lines = answer.aiter_lines()

        async def events() -> AsyncIterator[Any]:
            async for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]

        yield events()


@every_kind
async def test_a_watch_tells_of_every_change_in_order(kind: Kind, admin: httpx.AsyncClient) -> None:
    start = (await admin.get(collection(kind))).json()["metadata"]["resourceVersion"]
    async with watching(admin, kind, resourceVersion=start) as events:
        made = await create(admin, kind, name="seen")
        change = json.dumps({"metadata": {"labels": {"turn": "1"}}})
        changed = (await admin.patch(path(kind, made), content=change, headers=as_patch("merge"))).json()
        await admin.request("DELETE", path(kind, made), json={"propagationPolicy": "Background"})
        seen = [await anext(events) for _ in range(3)]

    assert [type_ for type_, _ in seen] == ["ADDED", "MODIFIED", "MODIFIED" if lingers(kind) else "DELETED"]
    assert [obj for _, obj in seen[:2]] == [made, changed]
    revisions = [int(obj["metadata"]["resourceVersion"]) for _, obj in seen]
    assert sorted(set(revisions)) == revisions


@every_kind
async def test_objects_enter_and_leave_a_selective_watch(kind: Kind, admin: httpx.AsyncClient) -> None:
    made = await create(admin, kind, labels={"color": "blue"})
    start = made["metadata"]["resourceVersion"]
    async with watching(admin, kind, resourceVersion=start, labelSelector="color=red") as events:
        turns = []
        for color in ("red", "blue"):
            change = json.dumps({"metadata": {"labels": {"color": color}}})
            turns.append((await admin.patch(path(kind, made), content=change, headers=as_patch("merge"))).json())
        seen = [await anext(events) for _ in turns]

    assert [type_ for type_, _ in seen] == ["ADDED", "DELETED"]
    assert seen[0][1] == turns[0]
    left = seen[1][1]
    assert left["metadata"]["resourceVersion"] == turns[1]["metadata"]["resourceVersion"]
    assert left["metadata"]["labels"]["color"] == "red", "the last state that the selector matched"


async def test_the_first_namespaces_are_told_apart() -> None:
    """The suite counts what it made; nothing else of these names may come into its way."""
    assert not set(FIRST) & set("abc")
