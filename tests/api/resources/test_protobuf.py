"""Protobuf bodies: what kubectl sends is read, and whatever else comes is refused without harm."""

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from app.api.resources.protobuf import DEEPEST, decode
from app.kinds.batch.job import Job
from app.kinds.core.configmap import ConfigMap
from app.kinds.pod.pod import Pod
from app.machinery.base import (
    Int32,
    Int64,
    IntOrString,
    ManagedFieldsEntry,
    MicroTime,
    Opaque,
    Quantity,
    Struct,
    Time,
    at,
)
from app.machinery.errors import ApiError

# Recorded from kubectl 1.33: `create configmap c1 --from-literal=a=b`
CONFIGMAP = bytes.fromhex(
    "6b3873000a0f0a0276311209436f6e6669674d6170121c0a120a02633112001a0022002a0032003800420012060a01611201621a002200"
)
# and `create job j1 --image=busybox -- sh -c 'echo hi'`
JOB = bytes.fromhex(
    "6b3873000a0f0a0862617463682f763112034a6f62128b010a120a026a3112001a0022002a00320038004200126b32690a10"
    "0a0012001a0022002a00320038004200125512320a026a31120762757379626f781a0273681a022d631a076563686f206869"
    "2a0042006a007200800100880100900100a201001a054e65766572320042004a0052005800600068008201008a01009a0100"
    "c201001a082000280030003a001a002200"
)


class Leaf(Struct):
    text: Annotated[str, at(1)] = ""


class Everything(Struct):
    """One field of each sort."""

    text: Annotated[str, at(1)] = ""
    flag: Annotated[bool | None, at(2)] = None
    small: Annotated[Int32 | None, at(3)] = None
    large: Annotated[Int64 | None, at(4)] = None
    blob: Annotated[bytes, at(5)] = b""
    amount: Annotated[Quantity | None, at(6)] = None
    port: Annotated[IntOrString | None, at(7)] = None
    moment: Annotated[Time | None, at(8)] = None
    micro: Annotated[MicroTime | None, at(9)] = None
    texts: Annotated[tuple[str, ...], at(10)] = ()
    numbers: Annotated[tuple[Int32, ...], at(11)] = ()
    leaf: Annotated[Leaf | None, at(12)] = None
    leaves: Annotated[tuple[Leaf, ...], at(13)] = ()
    labels: Annotated[dict[str, str], at(14)] = msgspec.field(default_factory=dict)
    amounts: Annotated[dict[str, Quantity], at(15)] = msgspec.field(default_factory=dict)
    nested: Annotated["Everything | None", at(16)] = None
    opaque: Annotated[Opaque | None, at(17)] = None
    inner: Annotated[str, at(1, via=(18,))] = ""
    deeper: Annotated[str, at(1, via=(18, 2))] = ""


def varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = [value >> shift & 0x7F for shift in range(0, 70, 7)]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])


def put(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(message: bytes) -> bytes:
    return b"k8s\0" + put(1, put(1, "v1") + put(2, "Everything")) + put(2, message)


def read(message: bytes) -> dict[str, Any]:
    found = decode(envelope(message), Everything)
    assert (found.pop("apiVersion"), found.pop("kind")) == ("v1", "Everything")
    return found


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"", {}, id="nothing"),
        pytest.param(put(1, "ä"), {"text": "ä"}, id="a string"),
        pytest.param(put(2, 0), {"flag": False}, id="false"),
        pytest.param(put(3, -1), {"small": -1}, id="a negative number"),
        pytest.param(put(4, 2**62), {"large": 2**62}, id="a large number"),
        pytest.param(put(5, b"\0\1"), {"blob": "AAE="}, id="bytes, as base64"),
        pytest.param(put(6, put(1, "500m")), {"amount": "500m"}, id="a quantity"),
        pytest.param(put(6, b""), {"amount": "0"}, id="a quantity of nothing"),
        pytest.param(put(7, put(1, 0) + put(2, 80)), {"port": 80}, id="a number of either"),
        pytest.param(put(7, put(1, 1) + put(2, 0) + put(3, "http")), {"port": "http"}, id="a string of either"),
        pytest.param(put(8, put(1, 1)), {"moment": "1970-01-01T00:00:01Z"}, id="a time"),
        pytest.param(put(8, b""), {}, id="no time"),
        pytest.param(put(9, put(1, -1) + put(2, 1_000)), {"micro": "1969-12-31T23:59:59.000001Z"}, id="a microtime"),
        pytest.param(put(10, "a") + put(10, ""), {"texts": ["a", ""]}, id="a list of strings"),
        pytest.param(put(11, 1) + put(11, 2), {"numbers": [1, 2]}, id="a list of numbers"),
        pytest.param(put(11, varint(1) + varint(300)), {"numbers": [1, 300]}, id="a packed list of numbers"),
        pytest.param(put(12, put(1, "x")), {"leaf": {"text": "x"}}, id="a struct"),
        pytest.param(put(13, b"") + put(13, put(1, "x")), {"leaves": [{}, {"text": "x"}]}, id="a list of structs"),
        pytest.param(put(14, put(1, "k") + put(2, "v")), {"labels": {"k": "v"}}, id="a map"),
        pytest.param(put(14, put(1, "k")), {"labels": {"k": ""}}, id="a map to nothing"),
        pytest.param(put(15, put(1, "cpu") + put(2, put(1, "1"))), {"amounts": {"cpu": "1"}}, id="a map to quantities"),
        pytest.param(put(17, b""), {}, id="an unset part that is not read otherwise"),
        pytest.param(put(18, put(1, "a") + put(2, put(1, "b"))), {"inner": "a", "deeper": "b"}, id="embedded fields"),
        pytest.param(put(99, "new") + put(1, "x"), {"text": "x"}, id="fields of a newer client"),
        pytest.param(varint(99 << 3 | 1) + b"\0" * 8 + varint(98 << 3 | 5) + b"\0" * 4, {}, id="fields of fixed size"),
    ],
)
def test_reads(message: bytes, expected: dict[str, Any]) -> None:
    assert read(message) == expected


def test_reads_the_configmap_that_kubectl_sends() -> None:
    found = decode(CONFIGMAP, ConfigMap)

    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")
    assert msgspec.convert(found, ConfigMap).data == {"a": "b"}


def test_reads_the_job_that_kubectl_sends() -> None:
    job = msgspec.convert(decode(JOB, Job), Job)
    container = job.spec.template.spec.containers[0]

    assert (job.api_version, job.kind, job.metadata.name) == ("batch/v1", "Job", "j1")
    assert (container.image, container.command) == ("busybox", ("sh", "-c", "echo hi"))
    assert job.spec.template.spec.restart_policy == "Never"
    assert (job.metadata.creation_timestamp, job.spec.parallelism) == (None, None)


def test_reads_the_json_inside_managed_fields() -> None:
    found = decode(envelope(put(7, put(1, '{"f:data":{}}'))), ManagedFieldsEntry)

    assert found["fieldsV1"] == {"f:data": {}}


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(b'{"f:\xed": {}}', id="no UTF-8"),
        pytest.param(b"[" * 5_000, id="too deep"),
        pytest.param(b'{"f:\\u0000": {}}', id="with a NUL"),
    ],
)
def test_refuses_the_json_inside_that_is(inside: bytes) -> None:
    with pytest.raises(ApiError, match="the JSON inside") as refused:
        decode(envelope(put(7, put(1, inside))), ManagedFieldsEntry)

    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(b"{}", "provided data does not appear to be a protobuf message", id="JSON"),
        pytest.param(b"k8s\0\x12\xff", "it ends too early", id="a length cut short"),
        pytest.param(b"k8s\0\x12\x7f", "it ends too early", id="a length beyond the end"),
        pytest.param(b"k8s\0" + b"\xff" * 11, "a number is too long", id="a number without end"),
        pytest.param(b"k8s\0\x0b", "unknown wire type 3", id="a group"),
        pytest.param(b"k8s\0" + put(2, 7), "a number where a message or string belongs", id="a number for a message"),
        pytest.param(b"k8s\0" + put(3, "gzip"), "a content encoding is not supported", id="compressed"),
        pytest.param(envelope(put(1, b"\xff")), "a string is no UTF-8", id="a string in Latin 1"),
        pytest.param(envelope(put(2, "x")), "bytes where a number belongs", id="a string for a boolean"),
        pytest.param(envelope(put(8, put(1, 2**62))), "a time is out of range", id="a time after all time"),
        pytest.param(envelope(put(17, put(1, "x"))), "opaque is read in JSON only", id="a part without numbers"),
    ],
)
def test_refuses(body: bytes, problem: str) -> None:
    with pytest.raises(ApiError, match=problem) as refused:
        decode(body, Everything)

    assert refused.value.code == 400


def test_refuses_to_go_deeper_than_any_object_does() -> None:
    def nested(times: int) -> bytes:
        message = b""
        for _ in range(times):
            message = put(16, message)
        return envelope(message)

    assert decode(nested(DEEPEST), Everything)
    with pytest.raises(ApiError, match="nests too deeply"):
        decode(nested(DEEPEST + 1), Everything)


@given(message=some.binary(max_size=200))
@example(message=put(1, "a") * 50)
def test_no_bytes_do_worse_than_a_400(message: bytes) -> None:
    for struct in (Everything, Pod):
        try:
            decode(envelope(message), struct)
        except ApiError as error:
            code = error.code
        else:
            code = 400
        assert code == 400


@given(
    text=some.text(),
    large=some.integers(-(2**63), 2**63 - 1),
    numbers=some.lists(some.integers(-(2**31), 2**31 - 1)),
    labels=some.dictionaries(some.text(), some.text()),
)
def test_what_was_written_is_read(text: str, large: int, numbers: list[int], labels: dict[str, str]) -> None:
    message = put(1, text) + put(4, large) + b"".join(put(11, each) for each in numbers)
    message += b"".join(put(14, put(1, key) + put(2, value)) for key, value in labels.items())

    found = msgspec.convert(read(message), Everything)

    assert (found.text, found.large, found.numbers, found.labels) == (text, large, tuple(numbers), labels)
