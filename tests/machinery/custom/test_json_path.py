"""JSON paths of printer columns: the forms that operators use."""

from typing import Any

import pytest

from app.machinery.custom.json_path import JsonPathError, compile_path, find_first

DOCUMENT = {
    "metadata": {"labels": {"a.b/c": "d"}},
    "spec": {"list": [1, 2], "on": True, "map": {"x": 1}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Done", "status": "False"}]},
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".spec.list", [1, 2]),
        (".spec.list[0]", 1),
        (".spec.list[-1]", 2),
        (".spec.list[7]", None),
        (".spec.list[1:]", 2),
        (".spec.map.*", 1),
        ("spec.on", True),
        (r".metadata.labels.a\.b/c", "d"),
        (".metadata.labels['a.b/c']", "d"),
        ('.status.conditions[?(@.type=="Done")].status', "False"),
        (".status.conditions[?(@.type=='None')].status", None),
        (".status.conditions[-1:].type", "Done"),
        (".status.conditions[*].type", "Ready"),
        (".spec.list.name", None),
    ],
)
def test_the_first_value_at_a_path(path: str, value: Any) -> None:
    assert find_first(path, DOCUMENT) == value


@pytest.mark.parametrize("path", [".spec.list[", ".spec..list", ".a[b]"])
def test_a_path_that_cannot_be_read_is_an_error(path: str) -> None:
    with pytest.raises(JsonPathError):
        compile_path(path)
