"""Decoding: what comes out of a body, in which words another is refused, and that nothing else ever happens."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from app.kinds.batch.job import Job
from app.kinds.core.lease import Lease
from app.kinds.core.secret import Secret
from app.machinery.base import Struct
from app.machinery.decoding import json_document
from app.machinery.decoding.decode import _passes_strict_decoding, convert, decode
from app.machinery.decoding.json_document import parse
from app.machinery.decoding.strict_decoding import ConversionError, Converter
from app.machinery.errors import ApiError
from app.machinery.shape import shape_of

UNFIT = 'Job in version "v1" cannot be handled as a Job: '


def job(doc: Any, validation: Any = "Ignore", **more: Any) -> Job:
    body = doc if isinstance(doc, bytes) else json.dumps(doc).encode()
    return decode(body, Job, api_version="batch/v1", validation=validation, **more).object


def refusal(call: Any, *arguments: Any, **more: Any) -> str:
    with pytest.raises(ApiError) as refused:
        call(*arguments, **more)
    assert (refused.value.code, refused.value.reason) == (400, "BadRequest")
    return refused.value.message


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
def test_fills_in_what_kind_of_thing_it_is(validation: str) -> None:
    found = job({"spec": {"parallelism": 2}}, validation)

    assert (found.api_version, found.kind, found.spec.parallelism) == ("batch/v1", "Job", 2)


def test_without_an_api_version_any_will_do() -> None:
    assert decode(b'{"apiVersion": "meta.k8s.io/v1"}', Job).object.api_version == "meta.k8s.io/v1"


@pytest.mark.parametrize("validation", ["Ignore", "Strict"])
def test_null_means_absent(validation: str) -> None:
    doc = {"metadata": {"name": None, "labels": None, "creationTimestamp": None}, "spec": {"template": None}}

    assert job(doc, validation) == job({})


def test_null_in_a_map_or_list_is_zero() -> None:
    pod = {"containers": [None], "tolerations": [{"key": "a"}]}
    found = job({"metadata": {"labels": {"a": None}}, "spec": {"template": {"spec": pod}}})

    assert found.metadata.labels == {"a": ""}
    assert found.spec.template.spec.containers[0].name == ""


@pytest.mark.parametrize("sent", [1, 1.5, "100m"], ids=["an integer", "a fraction", "a text"])
def test_a_quantity_may_be(sent: Any) -> None:
    doc = {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": sent}}}]}}}}

    assert job(doc).spec.template.spec.containers[0].resources.limits == {"cpu": sent}


TYPO = {"spec": {"backofLimit": 1, "template": {"spec": {"containers": [{"imag": "x"}]}}}}
UNKNOWN = ['unknown field "spec.backofLimit"', 'unknown field "spec.template.spec.containers[0].imag"']


def test_unknown_fields_are_dropped() -> None:
    doc = job(TYPO)

    assert "backofLimit" not in msgspec.json.encode(doc).decode()


def test_unknown_fields_are_warned_of() -> None:
    assert decode(json.dumps(TYPO).encode(), Job, validation="Warn").warnings == UNKNOWN
    assert convert(TYPO, Job, validation="Warn").warnings == UNKNOWN


def test_unknown_fields_are_refused() -> None:
    assert refusal(job, TYPO, "Strict") == f"{UNFIT}strict decoding error: {', '.join(UNKNOWN)}"


def test_duplicate_fields_are_refused_when_strict_and_the_last_counts_otherwise() -> None:
    body = b'{"spec": {"parallelism": 1, "x": {"a": 1, "a": 2}, "parallelism": 2}, "metadata": {}, "metadata": {}}'

    assert job(body).spec.parallelism == 2
    assert refusal(job, body, "Strict") == (
        f'{UNFIT}strict decoding error: unknown field "spec.x", duplicate field "spec.parallelism", '
        'duplicate field "metadata"'
    )


def test_a_hundred_faults_are_enough() -> None:
    doc = {f"x{index}": 1 for index in range(1_000)}

    assert len(decode(json.dumps(doc).encode(), Job, validation="Warn").warnings) == 100


@pytest.mark.parametrize(
    ("doc", "why"),
    [
        pytest.param(
            {"spec": {"parallelism": "a"}},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
            id="a text for a number",
        ),
        pytest.param(
            {"spec": {"parallelism": 1.5}},
            "json: cannot unmarshal number 1.5 into Go struct field JobSpec.spec.parallelism of type int32",
            id="a fraction for an integer",
        ),
        pytest.param(
            {"spec": {"parallelism": 2**31}},
            "json: cannot unmarshal number 2147483648 into Go struct field JobSpec.spec.parallelism of type int32",
            id="a number that is too large",
        ),
        pytest.param(
            {"spec": {"suspend": "no"}},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.suspend of type bool",
            id="a text for a boolean",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            id="a number for a label",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": True}}},
            "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
            id="a boolean for a label",
        ),
        pytest.param(
            {"spec": {"template": {"spec": {"containers": [{"env": [{"value": 1}]}]}}}},
            "json: cannot unmarshal number into Go struct field EnvVar.spec.template.spec.containers.env.value "
            "of type string",
            id="deep inside lists",
        ),
        pytest.param(
            {"spec": {"template": {"spec": {"containers": {}}}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers "
            "of type []v1.Container",
            id="an object for a list",
        ),
        pytest.param(
            {"spec": []},
            "json: cannot unmarshal array into Go struct field Job.spec of type v1.JobSpec",
            id="a list for an object",
        ),
        pytest.param([], "json: cannot unmarshal array into Go value of type v1.Job", id="a list for all"),
        pytest.param(
            {"status": {"startTime": "soon"}},
            'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"',
            id="no time",
        ),
        pytest.param(
            {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": True}}}]}}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="no quantity",
        ),
    ],
)
@pytest.mark.parametrize("validation", ["Ignore", "Strict"])
def test_refuses(doc: Any, why: str, validation: str) -> None:
    assert refusal(job, doc, validation) == UNFIT + why


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        pytest.param(
            {"apiVersion": "batch/v2", "kind": "Job", "spec": 5},
            "the API version in the data (batch/v2) does not match the expected API version (batch/v1)",
            id="version",
        ),
        pytest.param(
            {"apiVersion": "batch/v1", "kind": "CronJob"},
            'CronJob in version "v1" cannot be handled as a Job: '
            "converting (v1.CronJob) to (v1.Job): unknown conversion",
            id="kind",
        ),
    ],
)
@pytest.mark.parametrize("validation", ["Ignore", "Strict"])
def test_refuses_another(doc: dict, message: str, validation: str) -> None:
    assert refusal(job, doc, validation) == message


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        pytest.param("2025-01-02T03:04:05.999Z", datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), id="in whole seconds"),
        pytest.param("2025-01-02T03:04:05+02:00", datetime(2025, 1, 2, 1, 4, 5, tzinfo=UTC), id="in UTC"),
    ],
)
def test_times_come_out(sent: str, stored: datetime) -> None:
    found = job({"metadata": {"creationTimestamp": sent}, "status": {"conditions": [{"lastTransitionTime": sent}]}})

    assert found.metadata.creation_timestamp == found.status.conditions[0].last_transition_time == stored
    assert found.metadata.creation_timestamp.tzinfo is UTC


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        pytest.param("2025-01-02T03:04:05.123456Z", "2025-01-02T03:04:05.123456Z", id="as they are"),
        pytest.param("2025-01-02T03:04:05Z", "2025-01-02T03:04:05.000000Z", id="with six decimals"),
        pytest.param("2025-01-02T03:04:05.123456789+01:00", "2025-01-02T02:04:05.123456Z", id="in UTC"),
    ],
)
def test_micro_times_come_out(sent: str, stored: str) -> None:
    assert convert({"spec": {"renewTime": sent}}, Lease).object.spec.renew_time == stored


@pytest.mark.parametrize("text", ["2025-13-02T03:04:05Z", "0001-01-01T00:00:00+02:00", "2025-01-02T03:04:05Z\n", "x"])
def test_refuses_times_that_cannot_be(text: str) -> None:
    assert "parsing time" in refusal(job, {"metadata": {"creationTimestamp": text}})
    assert "parsing time" in refusal(convert, {"spec": {"renewTime": text}}, Lease)


def test_base64_may_have_line_breaks() -> None:
    assert convert({"data": {"a": "YWJj\nZGVm\r\n"}}, Secret).object.data == {"a": b"abcdef"}


@pytest.mark.parametrize("text", ["YQ", "Y!==", "=", "é"])
def test_refuses_what_is_no_base64(text: str) -> None:
    assert "illegal base64 data at input byte" in refusal(convert, {"data": {"a": text}}, Secret)


def test_bytes_of_a_document_may_be_bytes() -> None:
    assert convert({"data": {"a": b"\xff\x00"}}, Secret).object.data == {"a": b"\xff\x00"}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="half an object"),
        pytest.param(b"{} {}", id="two objects"),
        pytest.param(b'{"x": NaN}', id="not a number"),
        pytest.param(b'{"spec": {"parallelism": 1e999}}', id="infinity"),
        pytest.param(b'{"metadata": {"name": "\xff"}}', id="invalid UTF-8"),
        pytest.param(b'{"x": "\xff"}', id="invalid UTF-8 in an unknown field"),
        pytest.param(b'{"metadata": {"name": "\\ud800"}}', id="a lone surrogate"),
        pytest.param(b'{"metadata": {"name": "a\\u0000b"}}', id="an escaped NUL"),
        pytest.param(b'{"metadata": {"labels": {"\\\\\\u0000": ""}}}', id="a NUL behind a backslash"),
        pytest.param(b'{"metadata": {"name": "a\x00b"}}', id="a NUL"),
        pytest.param(b"\xef\xbb\xbf{}", id="a byte order mark"),
        pytest.param(b'{"x":' * 101 + b"1" + b"}" * 101, id="too many objects in another"),
        pytest.param(b"[" * 100_000, id="too many lists in another"),
    ],
)
@pytest.mark.parametrize("validation", ["Ignore", "Strict"])
def test_a_malformed_body_is_a_bad_request(body: bytes, validation: str) -> None:
    refusal(job, body, validation)
    refusal(parse, body) if b"1e999" not in body else None


def test_a_body_of_too_many_values_is_too_large() -> None:
    commas = json.dumps({"metadata": {"annotations": {"a": "," * 200_000}}})

    assert job(commas.encode()).metadata.annotations
    with pytest.raises(ApiError) as refused:
        job(b'{"metadata": {"finalizers": [' + b'"",' * 100_000 + b'""]}}')
    assert (refused.value.code, refused.value.reason) == (413, "RequestEntityTooLarge")


def test_a_backslash_before_u0000_is_only_a_backslash() -> None:
    assert job(b'{"metadata": {"name": "\\\\u0000"}}').metadata.name == "\\u0000"


def test_many_brackets_are_not_deep() -> None:
    doc = {"metadata": {"annotations": {"a": "[{" * 200 + '"'}, "ownerReferences": [{}] * 200}}

    assert len(job(doc).metadata.owner_references) == 200
    assert parse(b"[" * 100 + b"]" * 100)


class Meeting(Struct):
    """Some of everything, to decode into."""

    name: str = ""
    size: int | None = None
    starts: dict[str, datetime] = msgspec.field(default_factory=dict)
    parts: tuple["Meeting", ...] = ()
    data: dict[str, bytes] = msgspec.field(default_factory=dict)
    more: dict[str, Any] | None = None
    either: int | str | None = None


def test_a_struct_may_hold_itself() -> None:
    body = b'{"parts": [{"parts": [{"nam": 1}]}], "starts": {"a": "2025-01-02T03:04:05.5Z"}}'

    found = decode(body, Meeting, validation="Warn")

    assert found.warnings == ['unknown field "parts[0].parts[0].nam"']
    assert found.object.starts == {"a": datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)}


leaves = some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5) | some.just("YQ==")
names = some.sampled_from(["name", "size", "starts", "parts", "data", "more", "either", "x"])
values = some.recursive(leaves, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(names, inner))
VALIDATIONS = ("Ignore", "Warn", "Strict")


def outcome(call: Any, *arguments: Any, **more: Any) -> Any:
    try:
        return call(*arguments, **more)
    except ApiError as error:
        return error.code


@given(some.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
@example(b'{"size": ' + b"9" * 5_000 + b"}")
@example(b'{"more": {"a": ' + b"9" * 5_000 + b"}}")
@example(b'{"either": 1e400}')
def test_any_body_is_decoded_or_a_bad_request(body: bytes) -> None:
    for validation in VALIDATIONS:
        for content_type in ("json", "yaml"):
            found = outcome(decode, body, Meeting, content_type=content_type, validation=validation)
            assert found == 400 or isinstance(found.object, Meeting)


@given(some.dictionaries(names, values))
@example({"name": "\ud800"})
@example({"more": {"a": float("nan")}})
@example({"more": {"a": 10**5_000}})
@example({"more": {"a": {1, 2}}})
def test_any_document_is_converted_or_a_bad_request(doc: dict) -> None:
    found = outcome(convert, doc, Meeting)

    assert found == 400 or convert(msgspec.to_builtins(found.object), Meeting) == found


@given(some.dictionaries(names, values))
def test_fast_and_slow_agree(doc: dict) -> None:
    body = json.dumps(doc).encode()

    fast, slow = (outcome(decode, body, Meeting, validation=each) for each in ("Ignore", "Warn"))

    assert fast == slow == 400 or fast.object == slow.object


def text_of(value: Any) -> str:
    """JSON in which a list of pairs is an object, whose keys may repeat."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}: {text_of(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return "{" + ",".join(f"{json.dumps(key)} :{text_of(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text_of, value)) + "]"
    return json.dumps(value)


strings = some.text(max_size=5) | some.sampled_from(['a":b', "\\", '\\"', '":"', "é:", "\\u003a"])
repeating = some.recursive(
    strings | some.integers(0, 9),
    lambda inner: some.lists(inner, max_size=3) | some.lists(some.tuples(names, inner), min_size=1, max_size=4),
)


@given(some.lists(some.tuples(names, repeating), min_size=1, max_size=5))
def test_the_quick_look_finds_fault_exactly_where_the_walk_does(pairs: list[tuple[str, Any]]) -> None:
    body = text_of(pairs).encode()
    walk = Converter()
    try:
        walk.convert_document(json_document.decode_with_duplicates(body), shape_of(Meeting))
    except ConversionError:
        return  # the quick look is for bodies that fit

    assert _passes_strict_decoding(body, Meeting) == (not walk.faults)
