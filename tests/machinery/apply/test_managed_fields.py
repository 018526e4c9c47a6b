"""Who owns which field after creates and updates."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event
from app.machinery.apply.managed_fields import (
    Entries,
    FieldManager,
    managed_fields_after_create,
    managed_fields_after_update,
    with_entries,
)
from app.machinery.base import ManagedFieldsEntry, ObjectMeta
from tests.build import NOW

LATER = NOW + timedelta(minutes=1)


def made(manager: str = "creator", **data: str) -> Any:
    new = ConfigMap(metadata=ObjectMeta(name="c", uid="u"), data=data)
    return with_entries(new, managed_fields_after_create(CONFIGMAPS, new, None, FieldManager(manager, NOW)))


def written(live: ConfigMap, manager: str, sent: Entries | None = None, later: int = 1, **data: str) -> Any:
    new = replace(live, data=data)
    entries = managed_fields_after_update(
        CONFIGMAPS, new, live, sent, FieldManager(manager, NOW + timedelta(minutes=later))
    )
    return with_entries(new, entries)


def owned(obj: Any) -> dict[str, list[str]]:
    entries = obj.metadata.managed_fields or ()
    return {each.manager: [mark[2:] for mark in each.fields_v1["f:data"] if mark != "."] for each in entries}


def test_a_creator_owns_all_that_it_sent_but_not_the_identity() -> None:
    (entry,) = made(a="1").metadata.managed_fields or ()

    assert msgspec.to_builtins(entry) == {
        "manager": "creator",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-07-24T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {".": {}, "f:a": {}}},
    }


def test_who_changes_a_field_owns_it_alone() -> None:
    assert owned(written(made(a="1", b="1"), "editor", a="2", b="1")) == {"creator": ["b"], "editor": ["a"]}


def test_what_goes_leaves_all_sets_and_an_empty_set_vanishes() -> None:
    live = written(made(a="1"), "editor", a="1", b="2")

    assert owned(written(live, "third", a="1")) == {"creator": ["a"]}


def test_a_write_that_changes_nothing_changes_no_entry() -> None:
    live = made(a="1")

    assert written(live, "editor", a="1") == live


def test_entries_that_do_not_change_keep_their_time() -> None:
    live = written(made(a="1", b="1"), "editor", a="2", b="1")

    assert {each.manager: each.time for each in live.metadata.managed_fields} == {"creator": NOW, "editor": LATER}


def test_a_manager_without_a_name_is_unknown() -> None:
    assert owned(made("", a="1")) == {"unknown": ["a"]}


def test_of_more_than_ten_updaters_the_oldest_become_one() -> None:
    live: Any = made(**{f"k{number}": "1" for number in range(14)})
    for number in range(13):
        data = {**live.data, f"k{number}": "2"}
        live = written(live, f"m{number:02}", None, number + 1, **data)

    seen = owned(live)

    assert len(seen) == 10
    assert sorted(seen["ancient-changes"]) == ["k0", "k1", "k13", "k2", "k3"]
    assert {name for name in seen if name != "ancient-changes"} == {f"m{number:02}" for number in range(4, 13)}


def test_nobody_keeps_account_of_what_nobody_kept_account_of_before() -> None:
    live = ConfigMap(metadata=ObjectMeta(name="c", uid="u"), data={"a": "1"})

    assert written(live, "editor", a="2").metadata.managed_fields is None


@pytest.mark.parametrize(
    "sent", [pytest.param((), id="no entry"), pytest.param((ManagedFieldsEntry(),), id="an empty entry")]
)
def test_a_client_clears_them_with(sent: Entries) -> None:
    assert written(made(a="1"), "editor", sent, a="1").metadata.managed_fields is None


def test_a_client_may_hand_a_field_to_another_manager() -> None:
    live = made(a="1")
    (entry,) = live.metadata.managed_fields or ()

    moved = written(live, "editor", (replace(entry, manager="heir", operation="Apply"),), a="1")

    assert [(each.manager, each.operation, each.time) for each in moved.metadata.managed_fields] == [
        ("heir", "Apply", NOW)
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"operation": "Guess"}, id="an unknown operation"),
        pytest.param({"api_version": ""}, id="no version"),
        pytest.param({"fields_type": "FieldsV2"}, id="another form of fields"),
        pytest.param({"fields_v1": {"data": {}}}, id="fields that are none"),
    ],
)
def test_entries_that_cannot_be_read_are_as_if_not_sent(change: dict[str, Any]) -> None:
    live = made(a="1")
    (entry,) = live.metadata.managed_fields or ()

    assert written(live, "editor", (replace(entry, **change),), a="2") == written(live, "editor", a="2")


def test_entries_of_a_version_that_is_not_served_are_dropped() -> None:
    live = made(a="1", b="1")
    old = ManagedFieldsEntry(manager="old", operation="Update", api_version="v0", fields_type="FieldsV1")

    seen = written(live, "editor", (*(live.metadata.managed_fields or ()), old), a="2", b="1")

    assert owned(seen) == {"creator": ["b"], "editor": ["a"]}


def test_nobody_keeps_account_of_events() -> None:
    event = Event(metadata=ObjectMeta(name="e"), reason="Pulled")

    assert managed_fields_after_create(EVENTS, event, None, FieldManager("a", NOW)) is None
    assert managed_fields_after_update(EVENTS, replace(event, reason="x"), event, None, FieldManager("a", NOW)) is None
