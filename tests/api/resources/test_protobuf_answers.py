"""Answers in protobuf, for clients that accept nothing else: what is decoded from them is what is stored."""

import base64
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated, Any

import httpx
import msgspec
import pytest

from app.api.openapi.meta import ListMeta, Status
from app.api.resources import lists, protobuf_encoding
from app.api.resources.protobuf import decode
from app.api.resources.protobuf_encoding import encode_object
from app.kinds import KINDS
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition
from app.kinds.core.configmap import ConfigMap
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.machinery.base import Kind, Struct, at
from app.machinery.errors import ApiError
from app.registry.verbs import lists as registry_lists
from app.registry.verbs.objects import Registry
from tests.api.custom.definitions import define, definition, path
from tests.api.custom.test_definitions_in_protobuf import SCHEMA
from tests.api.resources.test_lists import MAPS, make
from tests.api.resources.test_protobuf import Everything, Leaf, put
from tests.registry.examples import example

ACCEPT = {"Accept": "application/vnd.kubernetes.protobuf"}


class ConfigMapList(Struct):
    metadata: Annotated[ListMeta, at(1)] = msgspec.field(default_factory=ListMeta)
    items: Annotated[tuple[ConfigMap, ...], at(2)] = ()


class RawExtension(Struct):
    raw: Annotated[bytes, at(1)] = b""


class WatchEvent(Struct):
    type: Annotated[str, at(1)] = ""
    object: Annotated[RawExtension, at(2)] = msgspec.field(default_factory=RawExtension)


def document_of(obj: Struct) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(obj))
    return found


def again(obj: Struct) -> Struct:
    """The object, encoded and decoded."""
    document = document_of(obj)
    document |= {"apiVersion": document.get("apiVersion", "v1"), "kind": document.get("kind", "Everything")}
    read: Struct = msgspec.convert(
        decode(encode_object(json.dumps(document).encode(), type(obj)), type(obj)), type(obj)
    )
    return read


def with_texts(value: Any) -> Any:
    """The document with texts for numbers: a quantity may be either in JSON, and is a text in protobuf."""
    if isinstance(value, dict):
        return {name: with_texts(each) for name, each in value.items()}
    return [with_texts(each) for each in value] if isinstance(value, list) else str(value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.resource}/{kind.version}")
def test_every_kind_comes_out_as_it_went_in(kind: Kind[Any]) -> None:
    obj = kind.prepare(example(kind))

    assert with_texts(document_of(again(obj))) == with_texts(document_of(obj))


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(Everything(text="ä", flag=False, small=-1, large=2**62, blob=b"\0\1"), id="scalars"),
        pytest.param(Everything(amount="500m", port=80), id="a quantity, and a number of either"),
        pytest.param(Everything(port="http"), id="a string of either"),
        pytest.param(
            Everything(moment=datetime(1969, 12, 31, 23, 59, tzinfo=UTC), micro="1969-12-31T23:59:59.000001Z"),
            id="moments before 1970",
        ),
        pytest.param(Everything(texts=("a", ""), numbers=(1, -300)), id="lists"),
        pytest.param(Everything(leaves=(Leaf(), Leaf(text="x")), labels={"k": ""}, amounts={"cpu": "1"}), id="maps"),
        pytest.param(Everything(nested=Everything(nested=Everything(text="x"))), id="structs in structs"),
        pytest.param(Everything(inner="a", deeper="b"), id="embedded fields"),
    ],
)
def test_every_sort_comes_out_as_it_went_in(obj: Everything) -> None:
    assert again(obj) == obj


def test_a_schema_comes_out_as_it_went_in() -> None:
    document = document_of(example(DEFINITIONS))
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = SCHEMA
    found = decode(encode_object(json.dumps(document).encode(), CustomResourceDefinition), CustomResourceDefinition)

    assert found["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == SCHEMA


def test_a_plain_reference_comes_out_as_it_went_in() -> None:
    source = {"kind": "VolumeSnapshot", "name": "s", "apiGroup": "snapshot.storage.k8s.io"}
    document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"dataSource": source}}
    found = decode(encode_object(json.dumps(document).encode(), PersistentVolumeClaim), PersistentVolumeClaim)

    assert found["spec"]["dataSource"] == source


def test_what_has_no_numbers_here_is_refused_rather_than_left_out() -> None:
    with pytest.raises(ApiError, match="opaque is written in JSON only") as refused:
        encode_object(b'{"apiVersion":"v1","kind":"Everything","opaque":{"a":1}}', Everything)
    assert refused.value.code == 406


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": 5}},
        {"maximum": "a"},
        {"required": 5},
        {"maxLength": 1e300},
        {"externalDocs": {"url": 5}},
        {"x-kubernetes-validations": [5]},
        {"additionalProperties": 5},
    ],
)
def test_a_schema_with_another_type_than_the_message_has_is_refused(schema: dict[str, Any]) -> None:
    document = document_of(example(DEFINITIONS))
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    with pytest.raises(ApiError, match="is written in JSON only") as refused:
        encode_object(json.dumps(document).encode(), CustomResourceDefinition)
    assert refused.value.code == 406


def test_an_object_is_written_as_go_writes_it() -> None:
    wire = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"b"}}'
    message = put(1, put(1, "c")) + put(2, put(1, "a") + put(2, "b"))

    assert encode_object(wire, ConfigMap) == (
        b"k8s\0" + put(1, put(1, "v1") + put(2, "ConfigMap")) + put(2, message) + put(3, b"") + put(4, b"")
    )


async def test_objects_and_lists_are_answered_in_protobuf(registry: Registry, admin: httpx.AsyncClient) -> None:
    await make(registry, "m1", "m2")
    one = await admin.get(f"{MAPS}/m1", headers=ACCEPT)
    page = await admin.get(MAPS, params={"limit": 1}, headers=ACCEPT)
    plain = (await admin.get(f"{MAPS}/m1")).json()

    assert one.headers["Content-Type"] == page.headers["Content-Type"] == ACCEPT["Accept"]
    assert msgspec.convert(decode(one.content, ConfigMap), ConfigMap) == msgspec.convert(plain, ConfigMap)
    found = decode(page.content, ConfigMapList)
    assert found["kind"] == "ConfigMapList"
    assert len(found["items"]) == 1
    assert found["metadata"]["continue"]


@pytest.mark.parametrize("limit", [None, 3], ids=["all", "a limit"])
async def test_a_list_of_several_pages_is_answered_in_one_piece(
    registry: Registry, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 1_000)
    await make(registry, *(f"m{number}" for number in range(5)), text="x" * 900)
    query = {"limit": str(limit)} if limit else {}
    answer = await admin.get(MAPS, params=query, headers=ACCEPT)
    plain = (await admin.get(MAPS, params=query)).json()

    found = msgspec.convert(decode(answer.content, ConfigMapList), ConfigMapList)
    assert [each.metadata.name for each in found.items] == [each["metadata"]["name"] for each in plain["items"]]
    assert (found.metadata.remaining_item_count, bool(found.metadata.continue_)) == (
        plain["metadata"].get("remainingItemCount"),
        bool(limit),
    )


async def test_a_list_that_is_too_long_for_one_piece_is_refused(
    registry: Registry, admin: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_lists, "PAGE_BYTES", 1_000)
    monkeypatch.setattr(lists, "LONGEST_PROTOBUF", 2_000)
    await make(registry, *(f"m{number}" for number in range(5)), text="x" * 900)
    refused = await admin.get(MAPS, headers=ACCEPT)

    assert refused.status_code == 406
    assert "ask for pages by limit" in refused.json()["message"]


async def events_of(answer: httpx.Response) -> AsyncGenerator[tuple[str, bytes], None]:
    """Type and enveloped object of each event, from frames with their length in front."""
    data = b""
    async for piece in answer.aiter_bytes():
        data += piece
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            event = decode(b"k8s\0" + put(2, data[4:end]), WatchEvent)
            yield event["type"], base64.b64decode(event["object"]["raw"])
            data = data[end:]


async def test_a_watch_sends_events_with_their_length(registry: Registry, admin: httpx.AsyncClient) -> None:
    await make(registry, "m1")
    query = {
        "watch": "true",
        "fieldSelector": "metadata.name=m1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    async with admin.stream("GET", MAPS, params=query, headers=ACCEPT) as answer:
        assert answer.headers["Content-Type"] == f"{ACCEPT['Accept']};stream=watch"
        events = events_of(answer)
        type_, obj = await anext(events)
        assert (type_, decode(obj, ConfigMap)["metadata"]["name"]) == ("ADDED", "m1")
        type_, obj = await anext(events)
        assert (type_, decode(obj, ConfigMap)["kind"]) == ("BOOKMARK", "ConfigMap")
        await admin.delete(f"{MAPS}/m1")
        type_, obj = await anext(events)
        assert (type_, decode(obj, ConfigMap)["metadata"]["name"]) == ("DELETED", "m1")
        await events.aclose()


def test_an_error_event_has_a_status() -> None:
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "metadata": {},
    }
    found = decode(protobuf_encoding.encode_status(json.dumps(status).encode()), Status)

    assert found == status


async def test_custom_objects_have_no_protobuf(admin: httpx.AsyncClient) -> None:
    await define(admin, definition())
    refused = await admin.get(path(), headers=ACCEPT)

    assert refused.status_code == 406
    assert (await admin.get(path(), headers={"Accept": f"{ACCEPT['Accept']},application/json"})).status_code == 200
