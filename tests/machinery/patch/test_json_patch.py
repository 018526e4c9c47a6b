"""Patches of the three sorts: what they do, what they refuse, and that they leave their input alone."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.batch.job import Job
from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError
from app.machinery.patch.json_patch import apply_json_patch, apply_merge_patch
from app.machinery.patch.strategic_merge_patch import apply_strategic_merge_patch

DOC = {"a": {"b": [1, 2, 3], "c/d": "x"}, "m~n": None}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        pytest.param({"a": {"c/d": "y"}}, {"a": {"b": [1, 2, 3], "c/d": "y"}, "m~n": None}, id="merges objects"),
        pytest.param({"a": None}, {"m~n": None}, id="removes what is null"),
        pytest.param({"z": None}, DOC, id="does not mind removing nothing"),
        pytest.param({"a": {"b": [4]}}, {"a": {"b": [4], "c/d": "x"}, "m~n": None}, id="replaces lists"),
        pytest.param({"z": {"y": None, "x": {}}}, DOC | {"z": {"x": {}}}, id="adds objects without their nulls"),
        pytest.param({"a": 1}, {"a": 1, "m~n": None}, id="replaces an object with a number"),
        pytest.param({"m~n": {"o": 1}}, DOC | {"m~n": {"o": 1}}, id="replaces null with an object"),
    ],
)
def test_merge_patch(patch: dict, expected: dict) -> None:
    assert apply_merge_patch(DOC, patch) == expected


@pytest.mark.parametrize("patch", [[], "x", 1, None, True], ids=repr)
def test_a_merge_patch_that_is_no_object_is_a_bad_request(patch: Any) -> None:
    for refuse in (lambda: apply_merge_patch({}, patch), lambda: apply_strategic_merge_patch({}, patch, Job)):
        with pytest.raises(ApiError) as refused:
            refuse()
        assert refused.value.code == 400


def op(name: str, path: str, **more: Any) -> dict:
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param([op("add", "/a/b/1", value=9)], [1, 9, 2, 3], id="inserts"),
        pytest.param([op("add", "/a/b/-", value=9)], [1, 2, 3, 9], id="appends"),
        pytest.param([op("add", "/a/b/3", value=9)], [1, 2, 3, 9], id="inserts at the end"),
        pytest.param([op("remove", "/a/b/0")], [2, 3], id="removes"),
        pytest.param([op("replace", "/a/b/0", value=[])], [[], 2, 3], id="replaces"),
        pytest.param([{"op": "move", "from": "/a/b/0", "path": "/a/b/2"}], [2, 3, 1], id="moves"),
        pytest.param([{"op": "move", "from": "/a/b", "path": "/a/b"}], [1, 2, 3], id="moves nowhere"),
        pytest.param([{"op": "copy", "from": "/a/b/0", "path": "/a/b/0"}], [1, 1, 2, 3], id="copies"),
        pytest.param([op("test", "/a/b/0", value=1.0), op("remove", "/a/b/0")], [2, 3], id="goes on after a test"),
        pytest.param([op("test", "/a/c~1d", value="x"), op("test", "/m~0n", value=None)], [1, 2, 3], id="unescapes"),
    ],
)
def test_json_patch(operations: list, expected: list) -> None:
    assert apply_json_patch(DOC, operations)["a"]["b"] == expected


def test_a_json_patch_may_replace_the_whole_document() -> None:
    assert apply_json_patch(DOC, [op("replace", "", value={"x": 1})]) == {"x": 1}
    assert apply_json_patch(DOC, [op("add", "", value={"x": 1})]) == {"x": 1}


def test_values_that_a_json_patch_copies_are_independent() -> None:
    patch = [{"op": "copy", "from": "/a", "path": "/z"}, op("remove", "/z/b/0")]

    assert apply_json_patch(DOC, patch)["a"]["b"] == [1, 2, 3]


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(op("test", "/a/b/0", value=2), id="a test of another value"),
        pytest.param(op("test", "/a/b/0", value=True), id="a test of 1 against true"),
        pytest.param(op("test", "/z", value=1), id="a test of what is not there"),
        pytest.param(op("remove", "/z"), id="removal of what is not there"),
        pytest.param(op("replace", "/z", value=1), id="replacement of what is not there"),
        pytest.param(op("add", "/z/y", value=1), id="a missing parent"),
        pytest.param(op("add", "/a/b/4", value=1), id="an index past the end"),
        pytest.param(op("add", "/a/b/01", value=1), id="an index with a leading zero"),
        pytest.param(op("remove", "/a/b/-"), id="removal past the end"),
        pytest.param(op("remove", "/a/b/-1"), id="a negative index"),
        pytest.param(op("add", "/a/b/0/c", value=1), id="a number as parent"),
        pytest.param(op("remove", "/a/b/0/c"), id="removal from a number"),
        pytest.param({"op": "move", "from": "/a/c~1d/x", "path": "/z"}, id="a move out of a text"),
        pytest.param(op("remove", ""), id="removal of all"),
        pytest.param(op("replace", "", value=[]), id="a document that is a list"),
        pytest.param({"op": "move", "from": "/a", "path": "/a/b/0"}, id="a move into itself"),
        pytest.param({"path": "/a"}, id="without op"),
        pytest.param(op("increase", "/a"), id="unknown op"),
        pytest.param({"op": ["add"], "path": "/a"}, id="an op that is no text"),
        pytest.param({"op": "remove"}, id="without path"),
        pytest.param(op("remove", "a"), id="a path without slash"),
        pytest.param(op("remove", "/~2"), id="an unknown escape"),
        pytest.param(op("add", "/a"), id="without value"),
        pytest.param(op("move", "/a"), id="without from"),
        pytest.param(op("add", "/x" * 101, value=1), id="a path too deep"),
    ],
)
def test_a_json_patch_that_does_not_apply_is_unprocessable(operation: dict) -> None:
    with pytest.raises(ApiError) as refused:
        apply_json_patch(DOC, [operation])

    assert (refused.value.code, refused.value.reason) == (422, "Invalid")
    assert refused.value.message == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    "operations",
    [
        pytest.param({}, id="no list"),
        pytest.param([1], id="a number"),
    ],
)
def test_a_malformed_json_patch_is_a_bad_request(operations: Any) -> None:
    with pytest.raises(ApiError) as refused:
        apply_json_patch(DOC, operations)

    assert refused.value.code == 400


def test_a_json_patch_has_at_most_ten_thousand_operations() -> None:
    test = op("test", "/m~0n", value=None)

    assert apply_json_patch(DOC, [test] * 10_000) == DOC
    with pytest.raises(ApiError) as refused:
        apply_json_patch(DOC, [test] * 10_001)
    assert refused.value.code == 413


@pytest.mark.parametrize("path", ["/x", "/a/x"], ids=["wider", "deeper"])
def test_copies_of_copies_are_stopped(path: str) -> None:
    operations = [{"op": "copy", "from": "/a", "path": f"/a/{index}"} for index in range(40)]
    nested = [{"op": "copy", "from": "", "path": path} for _ in range(2_000)]

    for each in (operations, nested):
        with pytest.raises(ApiError) as refused:
            apply_json_patch({"a": {"x": "y" * 100}}, each)
        assert refused.value.code == 422


def pod(*containers: dict, **spec: Any) -> dict:
    return {"spec": ({"containers": list(containers)} if containers else {}) | spec}


A, B = {"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        pytest.param(
            pod(A, B), pod({"name": "b", "image": "b:2"}), pod(A, B | {"image": "b:2"}), id="merges by key in place"
        ),
        pytest.param(pod(A), pod(B), pod(B, A), id="puts new elements first, as Kubernetes does"),
        pytest.param(
            pod(A),
            {"spec": {"$setElementOrder/containers": [{"name": "a"}, {"name": "b"}], "containers": [B]}},
            pod(A, B),
            id="puts new elements where the order says",
        ),
        pytest.param(
            pod(A, B),
            {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
            pod(B, A),
            id="reorders",
        ),
        pytest.param(pod(A, B), pod({"name": "a", "$patch": "delete"}), pod(B), id="deletes an element"),
        pytest.param(pod(A, B), pod({"$patch": "replace"}, B), pod(B), id="replaces a list"),
        pytest.param(
            pod(A), {"spec": {"$patch": "replace", "nodeName": "n"}}, {"spec": {"nodeName": "n"}}, id="replaces a map"
        ),
        pytest.param(pod(A), {"spec": {"$patch": "delete"}}, {"spec": {}}, id="empties a map"),
        pytest.param(pod(A, nodeName="n"), {"spec": {"nodeName": None, "x": None}}, pod(A), id="removes what is null"),
        pytest.param(
            pod(A | {"env": [{"name": "X", "value": "1"}]}),
            pod({"name": "a", "env": [{"name": "X", "value": None, "valueFrom": {}}]}),
            pod(A | {"env": [{"name": "X", "valueFrom": {}}]}),
            id="removes what is null in an element",
        ),
        pytest.param(
            pod(tolerations=[{"key": "a"}]),
            pod(tolerations=[{"key": "b"}]),
            pod(tolerations=[{"key": "b"}]),
            id="replaces lists without a key",
        ),
        pytest.param(
            pod(volumes=[{"name": "v", "emptyDir": {}}]),
            pod(volumes=[{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]),
            pod(volumes=[{"name": "v", "hostPath": {"path": "/x"}}]),
            id="keeps only the keys to retain",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["a", "b"]}},
            {"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}},
            {"metadata": {"finalizers": ["c", "b"]}},
            id="adds to and deletes from lists of texts",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"b": "2", "a": None}}},
            {"metadata": {"labels": {"b": "2"}}},
            id="merges labels",
        ),
        pytest.param(
            {"other": {"a": [1], "b": {"c": 1}}},
            {"other": {"a": [2], "b": {"d": 2}}},
            {"other": {"a": [2], "b": {"c": 1, "d": 2}}},
            id="merges unknown maps and replaces unknown lists",
        ),
        pytest.param(
            {},
            {"spec": {"containers": [A, {"$patch": "delete", "name": "x"}], "nodeName": None}},
            pod(A),
            id="adds what is new without nulls and directives",
        ),
    ],
)
def test_strategic_patch_of_a_pod(before: dict, patch: dict, after: dict) -> None:
    assert apply_strategic_merge_patch(before, patch, Pod) == after


def test_conditions_are_merged_by_type_in_a_list_that_keeps_its_order() -> None:
    before = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}

    patched = apply_strategic_merge_patch(before, patch, Node)

    assert patched["status"]["conditions"] == [{"type": "Ready", "status": "False"}, {"type": "DiskPressure"}]


def test_taints_are_replaced_as_a_whole() -> None:
    """A key may come twice, with two effects: it cannot tell taints apart."""
    patched = apply_strategic_merge_patch(
        {"spec": {"taints": [{"key": "a"}]}}, {"spec": {"taints": [{"key": "b"}]}}, Node
    )

    assert patched == {"spec": {"taints": [{"key": "b"}]}}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param({"spec": {"$patch": "grow"}}, "unknown patch type", id="an unknown directive"),
        pytest.param(
            {"spec": {"containers": [{"image": "x"}]}}, "does not contain declared merge key: name", id="no key"
        ),
        pytest.param({"spec": {"containers": [{"$patch": "delete"}]}}, "merge key: name", id="a deletion without key"),
        pytest.param({"spec": {"containers": ["a"]}}, "error in our request", id="a text among maps"),
        pytest.param({"spec": {"containers": [[]]}}, "error in our request", id="a list of lists"),
        pytest.param({"spec": {"$retainKeys": ["a"], "b": 1}}, "retainKeys", id="a key that is not to be retained"),
        pytest.param({"spec": {"$retainKeys": 1}}, "retainKeys", id="keys to retain that are no list"),
        pytest.param({"spec": {"$setElementOrder/containers": 1}}, "setElementOrder", id="an order that is no list"),
        pytest.param(
            {"spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [B]}},
            "doesn't match $setElementOrder list",
            id="an order without the elements",
        ),
        pytest.param({"spec": {"$deleteFromPrimitiveList/x": 1}}, "primitive list", id="deletions that are no list"),
    ],
)
def test_refuses_a_strategic_patch(patch: dict, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        apply_strategic_merge_patch(pod(A), patch, Pod)

    assert refused.value.code in {400, 422}
    assert message in refused.value.message


leaves = some.none() | some.booleans() | some.integers(0, 2) | some.sampled_from(["a", "delete", "replace", "merge"])
DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers")
NAMES = ("metadata", "spec", "containers", "finalizers", "name", "image", "env", "volumes", "a")
keys = some.sampled_from((*DIRECTIVES, *NAMES))
values = some.recursive(
    leaves, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(keys, inner, max_size=3)
)
documents = some.dictionaries(keys, values, max_size=4)
pointers = some.lists(some.sampled_from(["a", "b", "0", "1", "-", "spec", "~0"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
operations = some.lists(
    some.fixed_dictionaries(
        {"op": some.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": pointers},
        optional={"from": pointers, "value": values},
    ),
    max_size=6,
)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)


def outcome(call: Callable[..., Any], *arguments: Any) -> type | int:
    """What kind of thing comes back, or which code it is refused with."""
    try:
        return type(call(*arguments))
    except ApiError as error:
        return error.code


def merge_pod(doc: dict, patch: Any) -> dict:
    return apply_strategic_merge_patch(doc, patch, Pod)


@pytest.mark.parametrize("merge", [apply_merge_patch, merge_pod])
@given(doc=documents, patch=documents | values)
def test_merging_changes_neither_document_nor_patch(merge: Callable[..., dict], doc: dict, patch: Any) -> None:
    before = copy.deepcopy((doc, patch))

    assert outcome(merge, doc, patch) in {dict, 400, 422}
    assert same((doc, patch), before)


@given(documents, operations)
def test_a_json_patch_changes_neither_document_nor_patch(doc: dict, patch: list) -> None:
    before = copy.deepcopy((doc, patch))

    assert outcome(apply_json_patch, doc, patch) in {dict, 400, 422}
    assert same((doc, patch), before)


@given(documents)
def test_a_merge_patch_applied_twice_is_applied_once(patch: dict) -> None:
    once = apply_merge_patch({"spec": {"a": 1}}, patch)

    assert same(apply_merge_patch(once, patch), once)
