"""Sets of fields: their arithmetic, their form on the wire, and which fields documents have or change."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kinds import KINDS
from app.kinds.batch.job import KIND as JOBS
from app.machinery.apply.field_ownership import compare, compute_all_fields, compute_applied_fields
from app.machinery.apply.field_sets import (
    FieldSet,
    Path,
    difference,
    format_path,
    has,
    intersection,
    iterate_paths,
    key_path_element,
    parse_field_set,
    sort_fields,
    union,
    value_path_element,
)
from app.machinery.apply.managed_fields import document_of
from app.machinery.apply.topology import topology_of
from app.machinery.base import Kind
from app.machinery.decoding import decode

TOPOLOGY = topology_of(JOBS.type)
A_PATH = st.lists(st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', "v:1"]), min_size=1, max_size=4).map(tuple)
SOME_PATHS = st.sets(A_PATH, max_size=12)


def set_of(*members: Path) -> FieldSet:
    """A set of just these paths."""
    found: FieldSet = {}
    for path in members:
        node: FieldSet = {".": {}}
        for mark in reversed(path):
            node = {mark: node}
        found = union(found, parse_field_set(node))
    return found


def members(fields: FieldSet) -> set[Path]:
    return set(iterate_paths(sort_fields(fields)))


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "a", **fields}]}}}}


def inside(fields: FieldSet) -> FieldSet:
    """What a set has of the container."""
    return fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"a"}']


# --- arithmetic


@given(SOME_PATHS)
def test_a_set_has_what_was_put_in_and_nothing_else(wanted: set[Path]) -> None:
    fields = set_of(*wanted)

    assert members(fields) == wanted
    assert all(has(fields, path) for path in wanted)
    assert not has(fields, ("f:nowhere",))


@given(SOME_PATHS, SOME_PATHS)
def test_sets_add_up_and_cut_like_sets(one: set[Path], other: set[Path]) -> None:
    assert members(union(set_of(*one), set_of(*other))) == one | other
    assert members(intersection(set_of(*one), set_of(*other))) == one & other
    assert members(difference(set_of(*one), set_of(*other))) == one - other


@given(SOME_PATHS)
def test_a_set_is_read_as_it_was_written(wanted: set[Path]) -> None:
    fields = sort_fields(set_of(*wanted))

    assert parse_field_set(msgspec.json.decode(msgspec.json.encode(fields))) == fields


@given(SOME_PATHS)
def test_a_set_that_is_cut_from_itself_is_empty(wanted: set[Path]) -> None:
    assert not difference(set_of(*wanted), set_of(*wanted))


# --- on the wire


def test_marks_are_written_in_kubernetes_order_with_numbers_as_numbers() -> None:
    ports = [{"containerPort": port, "protocol": "TCP"} for port in (8080, 443, 80)]
    fields = sort_fields({key_path_element(port): {} for port in ports} | {".": {}})

    assert list(fields) == [
        ".",
        'k:{"containerPort":80,"protocol":"TCP"}',
        'k:{"containerPort":443,"protocol":"TCP"}',
        'k:{"containerPort":8080,"protocol":"TCP"}',
    ]
    assert list(sort_fields({"v:10": {}, "v:9": {}, 'v:"a"': {}, "f:z": {}, "v:true": {}, "i:0": {}})) == [
        "f:z",
        "v:9",
        "v:10",
        'v:"a"',
        "v:true",
        "i:0",
    ]


def test_keys_of_an_element_are_written_in_alphabetical_order_without_spaces() -> None:
    assert key_path_element({"protocol": "TCP", "containerPort": 80}) == 'k:{"containerPort":80,"protocol":"TCP"}'
    assert value_path_element("a/b") == 'v:"a/b"'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param(("f:spec", "f:suspend"), ".spec.suspend", id="of fields"),
        pytest.param(("f:a", 'k:{"name":"x"}', "f:b"), '.a[name="x"].b', id="by a key"),
        pytest.param(("f:a", 'k:{"port":80,"protocol":"TCP"}'), '.a[port=80,protocol="TCP"]', id="by two keys"),
        pytest.param(("f:a", 'v:"x"'), '.a[="x"]', id="by value"),
        pytest.param(("f:a", "i:3"), ".a[3]", id="by index"),
    ],
)
def test_messages_print_a_path(path: Path, text: str) -> None:
    assert format_path(path) == text


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({'k:{ "b": 1, "a":2 }': {}}, {'k:{"a":2,"b":1}': {}}, id="with keys in another order"),
        pytest.param({"f:a": {".": {}}}, {"f:a": {}}, id="with a dot too many"),
        pytest.param({"f:a": {"x:new": {}}, "f:b": {}}, {"f:b": {}}, id="of a sort that is yet to come"),
        pytest.param({"f:a": {".": {}, "x:new": {}}}, {"f:a": {}}, id="of such a sort in what counts itself"),
    ],
)
def test_what_clients_write_is_read_as_we_would_write_it(document: Any, expected: FieldSet) -> None:
    assert parse_field_set(document) == expected


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([], id="a list"),
        pytest.param({"spec": {}}, id="a mark without a colon"),
        pytest.param({"f:a": "x"}, id="text in place of a set"),
        pytest.param({"i:x": {}}, id="an index that is no number"),
        pytest.param({"k:name": {}}, id="keys that are no JSON"),
        pytest.param({"k:[1]": {}}, id="keys without names"),
        pytest.param({"v:": {}}, id="a value that is none"),
        pytest.param({"v:" + "[" * 5_000: {}}, id="a value that nests too deep"),
        pytest.param({"k:" + '{"a":' * 5_000: {}}, id="keys that nest too deep"),
    ],
)
def test_what_is_no_set_is_refused(document: Any) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        parse_field_set(document)


# --- of documents


def test_a_configuration_claims_leaves_and_elements_but_not_what_holds_them() -> None:
    document = {"metadata": {"labels": {"a": "b"}}} | container(
        command=["x"], env=[{"name": "A", "value": "1"}], resources={}
    )

    assert compute_applied_fields(document, TOPOLOGY) == {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {
            "f:template": {
                "f:spec": {"f:containers": {'k:{"name":"a"}': inside(compute_applied_fields(document, TOPOLOGY))}}
            }
        },
    }
    assert inside(compute_applied_fields(document, TOPOLOGY)) == {
        ".": {},
        "f:name": {},
        "f:command": {},
        "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
        "f:resources": {},
    }


def test_what_is_added_counts_with_what_holds_it_but_not_what_every_object_has() -> None:
    document = {"metadata": {"labels": {"a": "b"}}} | container(env=[{"name": "A"}])

    added = compare({}, document, TOPOLOGY).added

    assert added["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    assert list(added["f:spec"]) == ["f:template"]
    assert inside(added)["f:env"] == {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}}}


@pytest.mark.parametrize(
    ("old", "new", "removed", "modified", "added"),
    [
        pytest.param({"image": "a"}, {"image": "b"}, None, {"f:image": {}}, None, id="a value"),
        pytest.param({}, {"image": "b"}, None, None, {"f:image": {}}, id="a field that is new"),
        pytest.param({"image": "a"}, {}, {"f:image": {}}, None, None, id="a field that goes"),
        pytest.param({"args": ["a"]}, {"args": ["b"]}, None, {"f:args": {}}, None, id="a list that is one"),
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "2"}, {"name": "B"}]},
            None,
            {"f:env": {'k:{"name":"A"}': {"f:value": {}}}},
            {"f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}}}},
            id="elements of a list",
        ),
        pytest.param(
            {"env": [{"name": "A"}, {"name": "A"}]},
            {"env": [{"name": "A"}, {"name": "A", "value": "1"}]},
            None,
            {"f:env": {'k:{"name":"A"}': {}}},
            None,
            id="an element that is there twice",
        ),
        pytest.param(
            {"env": [{"name": "A"}]},
            {"env": [{"name": "A"}, {"name": "A"}]},
            {"f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}}}},
            None,
            {"f:env": {'k:{"name":"A"}': {}}},
            id="an element that comes a second time",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "protocol": "TCP"}]},
            None,
            None,
            {"f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {"f:protocol": {}}}},
            id="an element that had left a key to its default",
        ),
        pytest.param({"env": []}, {"env": None}, None, {"f:env": {}}, None, id="one emptiness for another"),
    ],
)
def test_documents_are_compared_field_by_field(
    old: dict[str, Any],
    new: dict[str, Any],
    removed: FieldSet | None,
    modified: FieldSet | None,
    added: FieldSet | None,
) -> None:
    found = compare(container(**old), container(**new), TOPOLOGY)

    assert [inside(each) if each else None for each in found] == [removed, modified, added]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource)
def test_the_short_way_for_new_objects_finds_the_same_as_a_comparison_with_nothing(kind: Kind) -> None:
    obj = kind.prepare(decode.decode(kind.example.encode(), kind.type, content_type="yaml").object)
    document, topology = document_of(obj), topology_of(kind.type)

    found = compute_all_fields(document, topology)

    assert msgspec.json.encode(found) == msgspec.json.encode(sort_fields(compare({}, document, topology).added))
    assert compare(document, document, topology) == ({}, {}, {})
