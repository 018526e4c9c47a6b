"""YAML bodies: read as Kubernetes reads them, as far as they say what JSON can say, and refused otherwise."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.batch.job import Job
from app.machinery.decoding.decode import decode
from app.machinery.decoding.json_document import ContentType, parse
from app.machinery.errors import ApiError


def outcome(body: bytes, content_type: ContentType) -> Any:
    """The value, or the code it is refused with."""
    try:
        return parse(body, content_type)
    except ApiError as error:
        return error.code


MANIFEST = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: pi
  creationTimestamp: 2025-01-02T03:04:05Z
  labels: &labels {app: "1", 2: two}
spec:
  suspend: yes
  backoffLimit: 010
  template:
    metadata: {labels: *labels}
    spec:
      containers:
      - args: [!!str 1, "yes", 1:30, ~]
"""


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    found = decode(MANIFEST.encode(), Job, content_type="yaml", validation="Strict").object

    assert found.metadata.creation_timestamp == datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert found.spec.template.metadata.labels == found.metadata.labels == {"app": "1", "2": "two"}
    assert (found.spec.suspend, found.spec.backoff_limit) == (True, 8)
    assert found.spec.template.spec.containers[0].args == ("1", "yes", "1:30", "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: 1\na: 2", id="duplicate keys"),
        pytest.param("--- {}\n--- {}", id="two documents"),
        pytest.param("a: !!python/object/apply:os.system [ls]", id="a Python tag"),
        pytest.param("a: !!binary YQ==", id="bytes"),
        pytest.param("!!set {a, b}", id="a set"),
        pytest.param("a: .nan", id="not a number"),
        pytest.param("a: -.inf", id="infinity"),
        pytest.param("a: !!int x", id="a number that is none"),
        pytest.param("{a: &a {b: 1}, c: {<<: *a}}", id="a merge key"),
        pytest.param("{[a]: b}", id="a list as key"),
        pytest.param("{~: b}", id="null as key"),
        pytest.param("a: *b", id="an unknown anchor"),
        pytest.param("a: &a [*a]", id="an anchor in itself"),
        pytest.param("a: &a [" + "x," * 999 + "]\nb: &b [" + "*a," * 99 + "]\nc: [" + "*b," * 99 + "]", id="a bomb"),
        pytest.param("[" * 101, id="too deep a nesting"),
        pytest.param("a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60, id="depth through aliases"),
        pytest.param("[" + "1," * 100_000 + "]", id="too many values"),
        pytest.param('a: "\\0"', id="a NUL"),
        pytest.param("a: [", id="half a list"),
        pytest.param("\t- a", id="a tab"),
        pytest.param("%YAML 9.9\n--- a", id="another version"),
    ],
)
def test_refuses_yaml_with(text: str) -> None:
    assert outcome(text.encode(), "yaml") == 400


leaves = some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5)
values = some.recursive(
    leaves, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text("ab1~", max_size=3), inner)
)


@given(some.text("ab:-[]{}&*!,#'\"|>%@ \n01.~", max_size=40))
def test_any_text_is_yaml_or_a_bad_request(text: str) -> None:
    found = outcome(text.encode(), "yaml")

    assert found == 400 or msgspec.json.encode(found)


@given(values)
def test_yaml_says_what_json_says(value: Any) -> None:
    try:
        text = yaml.safe_dump(value)
    except (yaml.YAMLError, UnicodeEncodeError):
        return

    by_json, by_yaml = outcome(json.dumps(value).encode(), "json"), outcome(text.encode(), "yaml")

    assert by_yaml in (400, by_json)


def test_a_key_that_comes_twice_is_told_with_its_line() -> None:
    with pytest.raises(ApiError) as refused:
        parse(b"a: 1\nb:\n  c: 1\n  c: 2\n", "yaml")

    assert refused.value.message == (
        'error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key "c" already set in map'
    )
