"""Tables and PartialObjectMetadata: the response forms that `kubectl get` and metadata clients ask for.

Routes call these with decoded objects whose `metadata.resource_version` is set, for lists, single objects and watch
events alike; the cells come from the kind's own `row`.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, cast

import msgspec

from app.machinery.base import Column, Kind, Object, wire_name
from app.machinery.errors import bad_request, invalid
from app.machinery.object_codec import encode_object

Include = Literal["None", "Metadata", "Object"]
_INCLUDES = ("None", "Metadata", "Object")


NAME = Column(name="Name", format="name", description="Name of the object, unique in its namespace.")
CREATED_AT = Column(name="Created At", type="date", description="When the object was created.")


def parse_include_object(value: str | None) -> Include:
    """Parse the parameter includeObject; 400 for any other value."""
    if not value:
        return "Metadata"
    if value in _INCLUDES:
        return cast("Include", value)
    cause = invalid("includeObject", value, "must be 'Metadata', 'Object', 'None', or empty")
    raise bad_request(f"Unable to convert to Table as requested: {cause.field}: {cause.message}")


def table(
    kind: Kind[Any],
    objects: Iterable[Object],
    now: datetime,
    *,
    include: str | None = "Metadata",
    version: str = "v1",
    list_meta: Mapping[str, Any] | None = None,
) -> bytes:
    """Encode objects as a meta.k8s.io Table; `list_meta` has resourceVersion, continue and remainingItemCount."""
    head = {"kind": "Table", "apiVersion": f"meta.k8s.io/{version}", "metadata": list_meta or {}}
    return msgspec.json.encode(
        {**head, "columnDefinitions": columns(kind), "rows": rows(kind, objects, now, include=include, version=version)}
    )


def rows(
    kind: Kind[Any], objects: Iterable[Object], now: datetime, *, include: str | None, version: str
) -> list[dict[str, Any]]:
    """Return the rows of a Table."""
    beside = _row_object(kind, parse_include_object(include), version)
    return [{"cells": _cells(kind, each, now), **beside(each)} for each in objects]


def partial_metadata(obj: Object, version: str = "v1") -> dict[str, Any]:
    """Return an object's metadata as PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": obj.metadata}


def _row_object(kind: Kind[Any], include: Include, version: str) -> Callable[[Object], dict[str, Any]]:
    """Return the function that adds the `object` of a row, by includeObject."""
    if include == "None":
        return lambda _: {}
    if include == "Object":
        named = {"api_version": kind.api_version, "kind": kind.name}  # kubectl reads no object without them
        return lambda obj: {"object": msgspec.Raw(encode_object(msgspec.structs.replace(obj, **named)))}
    return lambda obj: {"object": partial_metadata(obj, version)}


def _cells(kind: Kind[Any], obj: Object, now: datetime) -> list[Any]:
    return kind.row(obj, now) if kind.columns else [obj.metadata.name, obj.metadata.creation_timestamp]


def columns(kind: Kind[Any]) -> list[dict[str, Any]]:
    """Return the columnDefinitions of a Table."""
    return [
        {wire_name(name): getattr(column, name) for name in column.__struct_fields__}
        for column in kind.columns or (NAME, CREATED_AT)
    ]
