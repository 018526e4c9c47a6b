"""Printer columns of custom kinds: cells of tables by the JSON paths of a definition, as Kubernetes fills them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from app.kinds.apiextensions.custom_resource_schema import CustomResourceColumnDefinition
from app.machinery.base import Column
from app.machinery.custom.custom_object import CustomObject
from app.machinery.custom.json_path import find_first
from app.machinery.durations import age
from app.machinery.errors import format_value
from app.machinery.object_codec import document_of

_NAME = Column(
    name="Name",
    format="name",
    description="Name must be unique within a namespace. Is required when creating resources, although some resources "
    "may allow a client to request the generation of an appropriate name automatically.",
)
_AGE = CustomResourceColumnDefinition(
    name="Age",
    type="date",
    description="CreationTimestamp is a timestamp representing the server time when this object was created.",
    json_path=".metadata.creationTimestamp",
)
Columns = tuple[CustomResourceColumnDefinition, ...]


def columns_of(given: Columns) -> tuple[Column, ...]:
    """Return the columns of a version; the name is always the first, and the age the only other one if none is given."""
    return (
        _NAME,
        *(
            Column(
                name=each.name,
                type=each.type,
                format=each.format,
                description=each.description
                or f"Custom resource definition column (in JSONPath format): {each.json_path}",
                priority=each.priority,
            )
            for each in given or (_AGE,)
        ),
    )


def row_of(given: Columns) -> Callable[[CustomObject, datetime], list[Any]]:
    """Return what fills a row."""

    def row(obj: CustomObject, now: datetime) -> Sequence[Any]:
        document = document_of(obj)
        cells = (_cell(each, find_first(each.json_path, document), now) for each in given or (_AGE,))
        return [obj.metadata.name, *cells]

    return row  # type: ignore[return-value]


def _cell(column: CustomResourceColumnDefinition, value: Any, now: datetime) -> Any:
    if value is None:
        return None
    match column.type:
        case "string":
            return value if isinstance(value, str) else format_value(value)
        case "date":
            return _age(value, now)
        case "integer":
            return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
    return None


def _age(value: Any, now: datetime) -> str:
    with suppress(ValueError, TypeError):
        return age(datetime.fromisoformat(value), now)
    return "<invalid>"
