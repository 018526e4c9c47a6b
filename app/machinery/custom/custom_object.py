"""Custom objects: typed metadata, and everything else as a plain document. Each custom kind has a subclass.

`app.machinery.object_codec` reads and writes them. Nothing changes a `content` in place: versions of an object share its parts.
"""

from typing import Any, ClassVar

import msgspec

from app.machinery.base import Kind, Object
from app.machinery.custom.structural_schema import StructuralSchema

TYPE_META = ("apiVersion", "kind", "metadata")


class CustomObject(Object):
    """An object whose shape is data. `content` is all of it but apiVersion, kind and metadata."""

    content: dict[str, Any] = msgspec.field(default_factory=dict)
    structural_schema: ClassVar[StructuralSchema]
    kind_record: ClassVar[Kind]

    @property
    def status(self) -> Any:
        return self.content.get("status")


def make_type(name: str, schema: StructuralSchema) -> type[CustomObject]:
    """Make the type of a custom kind."""
    make: Any = type(CustomObject)  # the metaclass of structs
    made: type[CustomObject] = make(
        name, (CustomObject,), {"__module__": __name__, "structural_schema": schema}, frozen=True, omit_defaults=True
    )
    return made


def with_status_of(obj: Object, other: Object) -> Object:
    """The object with the other one's status, also of a struct."""
    if not isinstance(obj, CustomObject) or not isinstance(other, CustomObject):
        return msgspec.structs.replace(obj, status=other.status)  # type: ignore[attr-defined]  # only kinds with one
    content = {name: value for name, value in obj.content.items() if name != "status"}
    if "status" in other.content:
        content["status"] = other.content["status"]
    return msgspec.structs.replace(obj, content=content)
