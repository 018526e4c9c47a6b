"""Applying to objects in memory: what is merged, what goes, and who is asked."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kinds.batch.job import KIND as JOBS
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.machinery.apply import server_side_apply
from app.machinery.apply.managed_fields import (
    FieldManager,
    managed_fields_after_create,
    managed_fields_after_update,
    with_entries,
)
from app.machinery.apply.structured_merge import merge
from app.machinery.apply.topology import topology_of
from app.machinery.base import Kind, Object
from app.machinery.decoding import decode
from app.machinery.errors import ApiError
from tests.build import NOW

CONTAINERS = topology_of(JOBS.type).members["spec"].topology.members["template"].topology.members["spec"].topology
LATER = NOW + timedelta(minutes=5)


def config_map(**more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **more}


def a_job(**container: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox", **container}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": pod}}}


def object_of(kind: Kind, document: dict[str, Any]) -> Object:
    made: Object = kind.prepare(decode.convert(document, kind.type, api_version=kind.api_version).object)
    return made


def applied(
    kind: Kind,
    live: Object | None,
    configuration: dict[str, Any],
    manager: str = "a",
    now: datetime = NOW,
    subresource: str = "",
    *,
    force: bool = False,
) -> Any:
    """The object after the apply, as it would be stored."""
    writer = FieldManager(manager, now, subresource, applies=True)
    server_side_apply.validate_configuration(kind, configuration)
    result = server_side_apply.apply(kind, live, configuration, writer, force=force)
    return with_entries(object_of(kind, result.document), result.entries)


def created(kind: Kind, document: dict[str, Any], manager: str = "creator") -> Any:
    obj = object_of(kind, document)
    return with_entries(obj, managed_fields_after_create(kind, obj, None, FieldManager(manager, NOW)))


def updated(kind: Kind, live: Any, document: dict[str, Any], manager: str, now: datetime = NOW) -> Any:
    new = object_of(kind, document)
    return with_entries(new, managed_fields_after_update(kind, new, live, None, FieldManager(manager, now)))


def owners(obj: Any) -> dict[str, Any]:
    return {f"{each.manager}/{each.operation}": each.fields_v1 for each in obj.metadata.managed_fields or ()}


def refused(call: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


# --- merging


def test_a_field_that_nobody_else_has_is_added_and_the_rest_stays() -> None:
    live = created(CONFIGMAPS, config_map(data={"a": "1"}))

    made = applied(CONFIGMAPS, live, config_map(data={"b": "2"}))

    assert made.data == {"a": "1", "b": "2"}
    assert owners(made)["a/Apply"] == {"f:data": {"f:b": {}}}
    assert owners(made)["creator/Update"] == {"f:data": {".": {}, "f:a": {}}}


def test_what_was_applied_and_is_left_out_goes() -> None:
    live = applied(CONFIGMAPS, None, config_map(data={"a": "1", "b": "2"}))

    made = applied(CONFIGMAPS, live, config_map(data={"a": "1"}))

    assert made.data == {"a": "1"}
    assert owners(made) == {"a/Apply": {"f:data": {"f:a": {}}}}


def test_what_another_owns_too_stays_when_one_leaves_it_out() -> None:
    live = applied(CONFIGMAPS, None, config_map(data={"a": "1", "b": "2"}))
    live = applied(CONFIGMAPS, live, config_map(data={"b": "2"}), "b")

    made = applied(CONFIGMAPS, live, config_map(data={"a": "1"}))

    assert made.data == {"a": "1", "b": "2"}
    assert owners(made) == {"a/Apply": {"f:data": {"f:a": {}}}, "b/Apply": {"f:data": {"f:b": {}}}}


def test_what_an_update_has_set_stays_when_an_apply_leaves_out_another_part() -> None:
    live = applied(CONFIGMAPS, None, config_map(data={"a": "1"}))
    live = updated(CONFIGMAPS, live, config_map(data={"a": "1", "b": "2"}), "editor")

    made = applied(CONFIGMAPS, live, config_map())

    assert made.data == {"b": "2"}
    assert owners(made) == {"editor/Update": {"f:data": {"f:b": {}}}}


def test_a_list_element_goes_with_all_that_is_in_it() -> None:
    both = a_job()
    both["spec"]["template"]["spec"]["initContainers"] = [{"name": "first", "image": "busybox"}]
    live = applied(JOBS, None, both)

    made = applied(JOBS, live, a_job())

    assert made.spec.template.spec.init_containers == ()
    assert [each.name for each in made.spec.template.spec.containers] == ["main"]


def test_elements_are_told_apart_by_both_of_their_keys() -> None:
    live = applied(JOBS, None, a_job(ports=[{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]))
    ports = [{"containerPort": 53, "protocol": "TCP", "name": "dns"}, {"containerPort": 53, "protocol": "UDP"}]

    made = applied(JOBS, live, a_job(ports=ports))

    seen = [(each.protocol, each.name) for each in made.spec.template.spec.containers[0].ports]
    assert seen == [("TCP", "dns"), ("UDP", "")]


def test_an_atom_is_replaced_whole() -> None:
    live = applied(JOBS, None, a_job(command=["a", "b"]))

    made = applied(JOBS, live, a_job(command=["c"]))

    assert made.spec.template.spec.containers[0].command == ("c",)


def test_the_same_again_changes_nothing_not_even_a_time() -> None:
    live = applied(CONFIGMAPS, None, config_map(data={"a": "1"}))

    assert applied(CONFIGMAPS, live, config_map(data={"a": "1"}), now=LATER) == live


def test_only_the_entry_that_changes_gets_a_new_time() -> None:
    live = applied(CONFIGMAPS, None, config_map(data={"a": "1"}))
    live = applied(CONFIGMAPS, live, config_map(data={"b": "1"}), "b")

    made = applied(CONFIGMAPS, live, config_map(data={"b": "2"}), "b", LATER)

    assert {each.manager: each.time for each in made.metadata.managed_fields} == {"a": NOW, "b": LATER}


NAMES = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=6)


@given(NAMES, NAMES)
def test_a_merged_list_has_all_elements_once_in_the_order_of_what_is_applied(
    live: list[str], wanted: list[str]
) -> None:
    old = {"containers": [{"name": name, "image": "old"} for name in live]}
    new = {"containers": [{"name": name, "image": "new"} for name in wanted]}

    both = merge(old, new, CONTAINERS)["containers"]

    names = [each["name"] for each in both]
    assert sorted(names) == sorted({*live, *wanted})
    assert [name for name in names if name in wanted] == wanted
    assert [name for name in names if name not in wanted] == [name for name in live if name not in wanted]
    assert all((each["image"] == "new") == (each["name"] in wanted) for each in both)


@pytest.mark.parametrize(
    ("live", "wanted", "expected"),
    [
        pytest.param("ab", "c", "abc", id="what is new comes after what is there"),
        pytest.param("axb", "ab", "axb", id="what is not mentioned stays where it is"),
        pytest.param("ab", "ba", "ba", id="the new order counts"),
        pytest.param("abx", "ba", "bxa", id="what stood after the first one stays after it"),
        pytest.param("ab", "anb", "anb", id="in between is in between"),
        pytest.param("xay", "na", "xnay", id="what stands before keeps its place"),
    ],
)
def test_the_order_of_a_merged_list_is_kubernetes_own(live: str, wanted: str, expected: str) -> None:
    old, new = ({"containers": [{"name": name} for name in names]} for names in (live, wanted))

    assert "".join(each["name"] for each in merge(old, new, CONTAINERS)["containers"]) == expected


# --- conflicts


def test_a_conflict_names_manager_version_and_field() -> None:
    live = created(JOBS, a_job() | {"spec": a_job()["spec"] | {"parallelism": 1}}, "kubectl-create")
    wanted = a_job() | {"spec": {"parallelism": 2}}

    error = refused(lambda: applied(JOBS, live, wanted))

    told = 'conflict with "kubectl-create" using batch/v1'
    assert error.status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"Apply failed with 1 conflict: {told}: .spec.parallelism",
        "reason": "Conflict",
        "details": {"causes": [{"reason": "FieldManagerConflict", "message": told, "field": ".spec.parallelism"}]},
        "code": 409,
    }


def test_several_conflicts_are_listed_by_manager() -> None:
    live = created(CONFIGMAPS, config_map(data={"b": "1", "a": "1"}), "x")
    live = applied(CONFIGMAPS, live, config_map(data={"c": "1"}), "y")

    error = refused(lambda: applied(CONFIGMAPS, live, config_map(data={"a": "2", "b": "2", "c": "2"})))

    assert error.message == (
        'Apply failed with 3 conflicts: conflicts with "x" using v1:\n- .data.a\n- .data.b\n'
        'conflicts with "y":\n- .data.c'
    )
    assert [cause["field"] for cause in error.details["causes"]] == [".data.a", ".data.b", ".data.c"]


def test_force_takes_the_field_away_from_the_other() -> None:
    live = created(CONFIGMAPS, config_map(data={"a": "1", "b": "1"}))

    made = applied(CONFIGMAPS, live, config_map(data={"a": "2"}), force=True)

    assert made.data == {"a": "2", "b": "1"}
    assert owners(made) == {"a/Apply": {"f:data": {"f:a": {}}}, "creator/Update": {"f:data": {".": {}, "f:b": {}}}}


def test_the_same_value_is_no_conflict_but_shared() -> None:
    live = applied(CONFIGMAPS, None, config_map(data={"a": "1"}))

    made = applied(CONFIGMAPS, live, config_map(data={"a": "1"}), "b", LATER)

    assert owners(made) == {"a/Apply": {"f:data": {"f:a": {}}}, "b/Apply": {"f:data": {"f:a": {}}}}
    assert {each.manager: each.time for each in made.metadata.managed_fields} == {"a": NOW, "b": LATER}


def test_what_nobody_kept_account_of_belongs_to_whoever_was_before() -> None:
    live = object_of(CONFIGMAPS, config_map(data={"a": "1", "b": "1"}))

    error = refused(lambda: applied(CONFIGMAPS, live, config_map(data={"a": "2"})))
    made = applied(CONFIGMAPS, live, config_map(data={"a": "2"}), force=True)

    assert error.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'
    assert owners(made)["before-first-apply/Update"] == {"f:data": {".": {}, "f:b": {}}}


# --- from client-side to server-side


def noted(**data: str) -> dict[str, Any]:
    """A config map as client-side `kubectl apply` makes it."""
    note = msgspec.json.encode(config_map(data=data)).decode()
    return config_map(data=data) | {"metadata": {"name": "c", "annotations": {server_side_apply.LAST_APPLIED: note}}}


def test_kubectl_takes_over_what_its_client_side_applies_have_set() -> None:
    live = created(CONFIGMAPS, noted(a="1"), "kubectl-client-side-apply")

    made = applied(CONFIGMAPS, live, config_map(data={"a": "2"}), "kubectl")

    assert made.data == {"a": "2"}
    assert owners(made)["kubectl/Apply"] == {"f:data": {"f:a": {}}}
    assert made.metadata.annotations[server_side_apply.LAST_APPLIED] == (
        '{"apiVersion":"v1","data":{"a":"2"},"kind":"ConfigMap","metadata":{"name":"c"}}\n'
    )


def test_others_than_kubectl_do_not() -> None:
    live = created(CONFIGMAPS, noted(a="1"), "kubectl-client-side-apply")

    error = refused(lambda: applied(CONFIGMAPS, live, config_map(data={"a": "2"}), "flux"))

    assert error.details["causes"][0]["message"] == 'conflict with "kubectl-client-side-apply" using v1'


def test_what_was_changed_since_the_last_client_side_apply_is_a_conflict() -> None:
    live = created(CONFIGMAPS, noted(a="1", b="1"), "kubectl-client-side-apply")
    edited = noted(a="1", b="1") | {"data": {"a": "1", "b": "9"}}
    live = updated(CONFIGMAPS, live, edited, "kubectl-edit")

    error = refused(lambda: applied(CONFIGMAPS, live, config_map(data={"a": "2", "b": "2"}), "kubectl"))

    assert error.message == 'Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.b'


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param("[" * 5_000, id="too deep"),
        pytest.param('{"apiVersion":"v1","data":{"a":"\\u0000"}}', id="with a NUL"),
        pytest.param('{"apiVersion":"v2"}', id="of another version"),
        pytest.param('{"apiVersion":"v1","datum":1}', id="of another shape"),
    ],
)
def test_a_note_that_cannot_be_read_excuses_nothing(note: str) -> None:
    document = config_map(data={"a": "1"}) | {
        "metadata": {"name": "c", "annotations": {server_side_apply.LAST_APPLIED: note}}
    }
    live = created(CONFIGMAPS, document, "x")

    error = refused(lambda: applied(CONFIGMAPS, live, config_map(data={"a": "2"}), "kubectl"))

    assert error.code == 409


# --- status


def test_an_apply_to_the_object_does_not_own_its_status_nor_the_other_way_round() -> None:
    document = a_job() | {"status": {"active": 1}}
    live = applied(JOBS, None, document)

    made = applied(JOBS, live, document, "s", subresource="status")

    assert "f:status" not in owners(live)["a/Apply"]
    assert owners(made)["s/Apply"] == {"f:status": {"f:active": {}}}
    assert [each.subresource for each in made.metadata.managed_fields] == ["", "status"]


def test_a_conflict_over_a_status_says_so() -> None:
    live = applied(JOBS, None, a_job() | {"status": {"active": 1}}, subresource="status")

    error = refused(lambda: applied(JOBS, live, a_job() | {"status": {"active": 2}}, "b", subresource="status"))

    assert error.message == 'Apply failed with 1 conflict: conflict with "a" with subresource "status": .status.active'


# --- what cannot be applied


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"kind": "Pod"}, "invalid object type: batch/v1, Kind=Pod", id="of another kind"),
        pytest.param({"apiVersion": "v1"}, "invalid object type: /v1, Kind=Job", id="of another group"),
        pytest.param({"apiVersion": "", "kind": ""}, "invalid object type: /, Kind=", id="without a kind"),
        pytest.param(
            {"metadata": {"name": "j", "managedFields": []}},
            "metadata.managedFields must be nil",
            id="with managed fields",
        ),
        pytest.param(
            {"spec": {"nonsense": 1}},
            "failed to create typed patch object (/j; batch/v1, Kind=Job): .spec.nonsense: field not declared in schema",
            id="with an unknown field",
        ),
        pytest.param(
            {"spec": {"parallelism": "2"}},
            "failed to create typed patch object (/j; batch/v1, Kind=Job): "
            ".spec.parallelism: expected numeric (int or float), got string",
            id="with text for a number",
        ),
        pytest.param(
            {"spec": {"suspend": 1, "completionMode": 2}},
            "failed to create typed patch object (/j; batch/v1, Kind=Job): errors:\n"
            "  .spec.suspend: expected boolean, got &{1}\n"
            "  .spec.completionMode: expected string, got &value.valueUnstructured{Value:2}",
            id="with several faults",
        ),
        pytest.param(
            {"metadata": {"finalizers": [{}]}},
            "failed to create typed patch object (/; batch/v1, Kind=Job): "
            ".metadata.finalizers: element 0: associative list without keys has an element that's a map type",
            id="with a map in a set",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_kubernetes_words(change: dict[str, Any], message: str) -> None:
    error = refused(lambda: applied(JOBS, None, a_job() | change))

    assert (error.code, error.message) == (400, message)


@pytest.mark.parametrize(
    ("env", "fault"),
    [
        pytest.param([{"name": "A"}, {"name": "A"}], ': duplicate entries for key [name="A"]', id="twice"),
        pytest.param([None], ": element 0: associative list with keys may not have a null element", id="null"),
        pytest.param(["A"], ": element 0: associative list with keys may not have non-map elements", id="text"),
        pytest.param([{"name": "A", "x": 1}], '[name="A"].x: field not declared in schema', id="with more"),
    ],
)
def test_elements_that_cannot_be_told_apart_are_refused(env: list[Any], fault: str) -> None:
    error = refused(lambda: applied(JOBS, None, a_job(env=env)))

    assert error.message.endswith(f'.spec.template.spec.containers[name="main"].env{fault}')
