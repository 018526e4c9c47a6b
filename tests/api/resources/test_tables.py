"""Tables and bare metadata as `kubectl get` reads them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from app.api.resources import tables
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import Column, Kind, ObjectMeta
from app.machinery.errors import ApiError

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OBJECT = ConfigMap(
    metadata=ObjectMeta(name="a", resource_version="7", creation_timestamp=NOW),
    data={"k": "v"},
)
KIND = Kind(
    type=ConfigMap,
    group="",
    version="v1",
    plural="configmaps",
    columns=(Column(name="Name", format="name"), Column(name="Data", type="integer", priority=1)),
    row=lambda obj, _: [obj.metadata.name, len(obj.data)],
)
BARE: Kind[ConfigMap] = Kind(type=ConfigMap, group="", version="v1", plural="configmaps")


def read(**wanted: Any) -> dict[str, Any]:
    kind = wanted.pop("kind", KIND)
    table: dict[str, Any] = msgspec.json.decode(tables.table(kind, [OBJECT], NOW, **wanted))
    return table


def test_a_table_has_the_kinds_columns_and_cells() -> None:
    table = read(list_meta={"resourceVersion": "9", "continue": "x"})

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "9", "continue": "x"}
    assert table["columnDefinitions"] == [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
        {"name": "Data", "type": "integer", "format": "", "description": "", "priority": 1},
    ]
    assert table["rows"][0]["cells"] == ["a", 1]


@pytest.mark.parametrize("include", [None, "", "Metadata"])
def test_a_row_carries_the_metadata_unless_told_otherwise(include: str | None) -> None:
    metadata = {"name": "a", "resourceVersion": "7", "creationTimestamp": "2026-01-02T03:04:05Z"}

    assert read(include=include)["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
    }


def test_a_row_carries_the_object_if_asked_to() -> None:
    obj = read(include="Object")["rows"][0]["object"]

    assert (obj["apiVersion"], obj["kind"], obj["data"]) == ("v1", "ConfigMap", {"k": "v"})


def test_a_row_carries_nothing_if_asked_to() -> None:
    assert set(read(include="None")["rows"][0]) == {"cells"}


def test_any_other_inclusion_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        read(include="Everything")

    assert refused.value.code == 400
    assert refused.value.message == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Everything": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_the_old_version_is_old_throughout() -> None:
    table = read(version="v1beta1")

    assert table["apiVersion"] == table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_a_kind_without_columns_shows_name_and_age() -> None:
    table = read(kind=BARE)

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Created At"]
    assert table["rows"][0]["cells"] == ["a", "2026-01-02T03:04:05Z"]
