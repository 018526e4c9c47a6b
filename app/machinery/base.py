"""Objects and kinds: the `Object` that every kind is, and the `Kind` record that makes a struct a resource kind.

Every module in `app.kinds` builds on this one, and imports from it what schemas are made of (`struct`) and the parts that
kinds share (`meta_schema`). Pure: no clock, no I/O.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar

from app.machinery.errors import Cause
from app.machinery.meta.meta_schema import (
    Condition,
    LabelSelector,
    LabelSelectorRequirement,
    LocalObjectReference,
    ManagedFieldsEntry,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
)
from app.machinery.struct import (
    TOLD,
    Int32,
    Int64,
    IntOrString,
    MicroTime,
    Opaque,
    Quantity,
    Struct,
    Time,
    at,
    wire_name,
)

__all__ = [
    "TOLD",
    "Column",
    "Condition",
    "Int32",
    "Int64",
    "IntOrString",
    "Kind",
    "LabelSelector",
    "LabelSelectorRequirement",
    "LocalObjectReference",
    "ManagedFieldsEntry",
    "MicroTime",
    "Object",
    "ObjectMeta",
    "ObjectReference",
    "Opaque",
    "OwnerReference",
    "Quantity",
    "ScalePaths",
    "Struct",
    "Time",
    "at",
    "wire_name",
]


class Object(Struct):
    """An object as it is stored and sent."""

    api_version: Annotated[str, at(0, "Group and version of this representation.")] = ""
    kind: Annotated[str, at(0, "The kind of object.")] = ""
    metadata: Annotated[ObjectMeta, at(1, "Standard metadata.")] = msgspec.field(default_factory=ObjectMeta)


O = TypeVar("O", bound=Object, default=Any)  # noqa: E741 - the letter reads as "object" beside Kind[O]


class Column(Struct):
    """A column of `kubectl get`. `priority` 1 is shown by `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(Struct):
    """Paths of the number of replicas in a custom object: wanted, there, and the selector of its pods."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


def _same(obj: Any, *_: Any) -> Any:
    return obj


def _nothing(*_: Any) -> Any:
    return []


def _no_grace(_: Any) -> int:
    return 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind(Generic[O]):
    """All that differs between one resource kind and the next; routes, storage, watch and tables follow from it.

    type:            the struct.
    prepare:         defaults, on create, update and status update, of what a client sent. Pure and idempotent.
    on_create:       (object, now) -> object: what the server sets or empties when an object is created; uid is set.
    on_update:       (new, old) -> new: what a plain update may not change (its status), generation.
    on_status:       (new, old) -> new: what a status update leaves as it is.
    validate:        -> causes of a 422, on create and update.
    validate_update: (new, old) -> further causes on a plain update.
    validate_status: (new, old) -> causes on a status update.
    validate_ratcheting: (new, old) -> causes on a plain update, in place of `validate` and `validate_update`: what did not
                     change is not judged again.
    warnings:        (new, old or None) -> texts for Warning headers; also names fields that nothing acts on yet.
    unknown_fields:  paths of fields that mean nothing, in parts of which the struct does not tell.
    row:             (object, now) -> cells of `columns`, in order.
    fields:          field selectors beyond metadata.name and metadata.namespace.
    field_aliases:   other names of such fields, each with the one under which its value is stored.
    grace:           seconds between DELETE and removal when the request names none; 0 removes at once.
    returns_deleted: True if DELETE answers the object that is gone rather than a Status (`ReturnDeletedObject` in
                     Kubernetes' stores).
    garbage_collection: what a raw DELETE without a policy does to dependents; Unsupported: objects may own nothing.
    on_delete:       what a deletion that does not end at once changes beyond metadata. Idempotent.
    blocks_deletion: True while an object that is being deleted must stay, whatever its metadata says.
    immortal:        names of objects that nobody may delete.
    core_finalizers: False where finalizers need no slash: in definitions and in custom objects.
    tracked:         False for kinds of which there are too many to record who set which of their fields.
    example:         one valid manifest, for the suites that run over every kind.
    storage:         the kind that objects are stored as, if this is another version of the same thing.
    inward, outward: this kind's struct to the stored kind's and back, for such a second version.
    singular_name, list_kind: as the names of a custom kind say.
    scale:           where a custom object has its number of replicas, if it can be scaled.
    deprecation:     the warning of a deprecated version.
    feature_gate:    the gate without which the kind is not served; empty: it always is. What is stored stays.
    definition:      the CustomResourceDefinition of a custom kind, which is live as long as objects can be created.
    conversion:      the webhook that converts objects of a custom kind between its versions (`WebhookConversion`); None if
                     `inward` and `outward` do. The registry's verbs then work in this version, and convert where they load and
                     store.
    """

    type: type[O]
    group: str
    version: str
    plural: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    has_status: bool = False
    prepare: Callable[[O], O] = _same
    on_create: Callable[[O, datetime], O] = _same
    on_update: Callable[[O, O], O] = _same
    on_status: Callable[[O, O], O] = _same
    validate: Callable[[O], list[Cause]] = _nothing
    validate_update: Callable[[O, O], list[Cause]] = _nothing
    validate_status: Callable[[O, O], list[Cause]] = _nothing
    validate_ratcheting: Callable[[O, O], list[Cause]] | None = None
    warnings: Callable[[O, O | None], list[str]] = _nothing
    unknown_fields: Callable[[O], list[str]] = _nothing
    columns: tuple[Column, ...] = ()
    row: Callable[[O, datetime], list[Any]] = _nothing
    fields: Mapping[str, Callable[[O], str]] = field(default_factory=dict)
    field_aliases: Mapping[str, str] = field(default_factory=dict)
    name_format: Literal["subdomain", "label", "path"] = "subdomain"
    grace: Callable[[O], int] = _no_grace
    returns_deleted: bool = False
    garbage_collection: Literal["DeleteDependents", "OrphanDependents", "Unsupported"] = "DeleteDependents"
    on_delete: Callable[[O], O] = _same
    blocks_deletion: Callable[[O], bool] = lambda _: False
    immortal: frozenset[str] = frozenset()
    core_finalizers: bool = True
    tracked: bool = True
    example: str = ""
    storage: "Kind[Any] | None" = None
    inward: Callable[[O], Object] | None = None
    outward: Callable[[Any], O] | None = None
    singular_name: str = ""
    list_kind: str = ""
    scale: "ScalePaths | None" = None
    deprecation: str = ""
    feature_gate: str = ""
    definition: str = ""
    conversion: Any = None

    @cached_property
    def name(self) -> str:
        return self.type.__name__

    def validate_next(self, new: O, old: O) -> list[Cause]:
        """Return why an object may not be updated so."""
        if self.validate_ratcheting is not None:
            return self.validate_ratcheting(new, old)
        return self.validate(new) + self.validate_update(new, old)

    @cached_property
    def is_graceful(self) -> bool:
        """Return whether objects of the kind can be given time to end."""
        return self.grace is not _no_grace

    @cached_property
    def singular(self) -> str:
        return self.singular_name or self.name.lower()

    @cached_property
    def list_name(self) -> str:
        """The kind of a list of such objects."""
        return self.list_kind or f"{self.name}List"

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """`jobs.batch`, or `pods` for the core group: how messages and the store name the kind."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
