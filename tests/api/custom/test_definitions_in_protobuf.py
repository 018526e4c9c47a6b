"""Definitions in protobuf: what Kubernetes' Go client makes of a schema is read as if it were sent in JSON."""

import json
import struct
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.api.resources.protobuf import decode
from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition
from app.machinery.errors import ApiError
from tests.api.resources.test_protobuf import put

PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SCHEMA: dict[str, Any] = json.loads("""
{"type": "object", "description": "A widget.", "properties": {"spec": {
  "type": "object", "required": ["size"], "nullable": true,
  "x-kubernetes-validations": [
    {"rule": "self.size > 1", "message": "too small", "reason": "FieldValueInvalid", "optionalOldSelf": false}],
  "properties": {
    "size": {"type": "integer", "minimum": 0, "maximum": 10.5, "exclusiveMaximum": true, "default": 0, "enum": [0,
      1, null]},
    "name": {"type": "string", "minLength": 0, "maxLength": 9, "pattern": "^a", "format": "hostname", "default": "",
      "example": "b"},
    "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "not":
      {"type": "boolean"}},
    "parts": {"type": "array", "minItems": 1, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
      "items": {"type": "object", "properties": {"id": {"type": "string"}}}},
    "labels": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
    "any": {"type": "object", "additionalProperties": true, "default": {"a": [1, {"b": null}]}},
    "none": {"type": "object", "additionalProperties": false},
    "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "dependencies": {"a": ["b"], "c":
      {"type": "string"}}},
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true,
      "externalDocs": {"url": "https://example.com"}},
    "kept": {"x-kubernetes-preserve-unknown-fields": false, "multipleOf": 0.5}
}}}}
""")
# A definition with this schema, as the protobuf serializer of k8s.io/apimachinery 0.37.2 writes it.
RECORDED = bytes.fromhex(
    "6b3873000a330a17617069657874656e73696f6e732e6b38732e696f2f76311218437573746f6d5265736f75726365446566696e697469"
    "6f6e12970a0a270a17776964676574732e6c61622e6578616d706c652e636f6d12001a0022002a0032003800420012dd090a0f6c61622e"
    "6578616d706c652e636f6d1a150a0777696467657473120022065769646765742a00220a4e616d657370616365643aa4090a0276311001"
    "18012297090a94090a001200220941207769646765742e2a066f626a65637432003a00500060007a00900100ea01e3080a047370656312"
    "da080a00120022002a066f626a65637432003a00500060007a00900100ba010473697a65ea01480a03616e7912410a00120022002a066f"
    "626a65637432003a0042160a147b2261223a5b312c7b2262223a6e756c6c7d5d7d500060007a00900100f201020801a80200b80200c002"
    "00ea01a0010a066569746865721295010a00120022002a0032003a00500060007a00900100da01250a00120022002a07696e7465676572"
    "32003a00500060007a00900100a80200b80200c00200da01240a00120022002a06737472696e6732003a00500060007a00900100a80200"
    "b80200c00200e201250a00120022002a07626f6f6c65616e32003a00500060007a00900100a80200b80200c00200a80200b80200c00201"
    "ea01330a046b657074122b0a00120022002a0032003a00500060007a009001009901000000000000e03fa80200b00200b80200c00200ea"
    "01620a066c6162656c7312580a00120022002a066f626a65637432003a00500060007a00900100f20128080112240a00120022002a0673"
    "7472696e6732003a00500060007a00900100a80200b80200c00200a80200b80200c00200da020661746f6d6963ea01480a046e616d6512"
    "400a00120022002a06737472696e673208686f73746e616d653a0042040a02222250006000680970007a025e61900100a202050a032262"
    "22a80200b80200c00200ea01310a046e6f6e6512290a00120022002a066f626a65637432003a00500060007a00900100f201020800a802"
    "00b80200c00200ea01490a046f70656e12410a00120022002a066f626a65637432003a00500060007a009001009a02170a001213687474"
    "70733a2f2f6578616d706c652e636f6da80200b00201b80201c00200ea01b5010a047061697212ac010a00120022002a05617272617932"
    "003a00500060007a00900100c2014d12240a00120022002a06737472696e6732003a00500060007a00900100a80200b80200c002001225"
    "0a00120022002a07696e746567657232003a00500060007a00900100a80200b80200c002008202080a0161120312016282022b0a016312"
    "260a240a00120022002a06737472696e6732003a00500060007a00900100a80200b80200c00200a80200b80200c00200ea0191010a0570"
    "617274731287010a00120022002a05617272617932003a00500060007a00880101900100c201530a510a00120022002a066f626a656374"
    "32003a00500060007a00900100ea012a0a02696412240a00120022002a06737472696e6732003a00500060007a00900100a80200b80200"
    "c00200a80200b80200c00200a80200b80200c00200ca02026964d202036d6170ea01530a0473697a65124b0a00120022002a07696e7465"
    "67657232003a0042030a0130490000000000002540500159000000000000000060007a00900100a201030a0130a201030a0131a20100a8"
    "0200b80200c00200a80201b80200c00200e202330a0d73656c662e73697a65203e20311209746f6f20736d616c6c1a0022114669656c64"
    "56616c7565496e76616c69642a003000a80200b80200c00200380050001a0c12080a00120022002a0020001a002200"
)


def definition_message(schema: bytes) -> bytes:
    """A definition with one version of this schema."""
    version = put(1, "v1") + put(2, 1) + put(3, 1) + put(4, put(1, schema))
    names = put(1, "widgets") + put(4, "Widget")
    spec = put(1, "lab.example.com") + put(3, names) + put(4, "Namespaced") + put(7, version)
    named = put(1, "apiextensions.k8s.io/v1") + put(2, "CustomResourceDefinition")
    return b"k8s\0" + put(1, named) + put(2, put(1, put(1, "widgets.lab.example.com")) + put(2, spec))


def schema_message(schema: bytes) -> Any:
    """Decode a schema as part of a definition."""
    found = decode(definition_message(schema), CustomResourceDefinition)
    return found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def test_reads_the_schema_that_go_writes() -> None:
    found = decode(RECORDED, CustomResourceDefinition)
    (version,) = msgspec.convert(found, CustomResourceDefinition).spec.versions

    assert (version.name, version.served, version.storage) == ("v1", True, True)
    assert version.schema is not None
    assert version.schema.open_apiv3_schema == SCHEMA


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"", {}, id="an empty schema"),
        pytest.param(put(5, "") + put(18, 0) + put(37, 0), {}, id="what Go writes for nothing"),
        pytest.param(
            put(38, 0) + put(42, ""),
            {"x-kubernetes-preserve-unknown-fields": False, "x-kubernetes-list-type": ""},
            id="pointers to nothing",
        ),
        pytest.param(put(8, b""), {}, id="a default of null"),
        pytest.param(put(20, b"") + put(20, put(1, '"a"')), {"enum": [None, "a"]}, id="an enum with null"),
        pytest.param(put(24, b""), {}, id="items of nothing"),
        pytest.param(put(24, put(1, b"")), {"items": {}}, id="items of one schema"),
        pytest.param(put(30, b""), {"additionalProperties": False}, id="no more properties"),
        pytest.param(
            put(30, put(1, 1) + put(2, put(5, "string"))),
            {"additionalProperties": {"type": "string"}},
            id="more properties of a type",
        ),
    ],
)
def test_reads_schemas(message: bytes, expected: dict[str, Any]) -> None:
    assert schema_message(message) == expected


def nest(levels: int) -> bytes:
    message = b""
    for _ in range(levels):
        message = put(28, message)
    return message


@pytest.mark.parametrize(
    ("message", "why"),
    [
        pytest.param(nest(200), "nests too deeply", id="deep schemas"),
        pytest.param(put(8, put(1, "[" * 200 + "]" * 200)), "max depth", id="a deep default"),
        pytest.param(put(8, put(1, "{")), "JSON inside", id="a default that is no JSON"),
        pytest.param(put(9, b"\0" * 4), "8 bytes", id="half a double"),
        pytest.param(put(9, b"\0" * 6 + b"\xf0\x7f"), "not finite", id="infinity"),
        pytest.param(put(30, put(1, b"a")), "where a number belongs", id="a text for a flag"),
    ],
)
def test_refuses_schemas(message: bytes, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        schema_message(message)
    assert refused.value.code == 400


@given(some.binary(max_size=300))
def test_any_bytes_are_a_schema_or_a_400(message: bytes) -> None:
    try:
        msgspec.json.encode(schema_message(message))
    except ApiError as refused:
        code = refused.code
    else:
        code = 400
    assert code == 400


@pytest.mark.asyncio
async def test_a_definition_is_posted_and_put_in_protobuf(admin: httpx.AsyncClient) -> None:
    size = put(5, "integer") + put(8, put(1, "3")) + put(11, struct.pack("<d", 1.0))
    schema = put(5, "object") + put(29, put(1, "size") + put(2, size))
    body = definition_message(schema)
    made = await admin.post(DEFINITIONS, content=body, headers=PROTOBUF)
    assert made.status_code == 201, made.text
    (version,) = made.json()["spec"]["versions"]
    assert version["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "properties": {"size": {"type": "integer", "default": 3, "minimum": 1}},
    }

    again = await admin.put(f"{DEFINITIONS}/widgets.lab.example.com", content=body, headers=PROTOBUF)
    assert again.status_code == 200, again.text
    assert again.json()["metadata"]["generation"] == 1


@pytest.mark.asyncio
async def test_unknown_formats_of_a_definition_are_still_refused(admin: httpx.AsyncClient) -> None:
    refused = await admin.post(DEFINITIONS, content=b"", headers={"Content-Type": "application/cbor"})
    assert refused.status_code == 415
    assert "application/vnd.kubernetes.protobuf" in refused.json()["message"]
