"""Objects and kinds: metadata, references, and the `Kind` record that makes a struct a resource kind.

Every module in `app.kinds` builds on this one. Pure: no clock, no I/O. Structs are frozen, named in snake_case here and
in Kubernetes' camelCase on the wire, and leave out what equals its default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Generic, Literal, dataclass_transform

import msgspec
from msgspec import Meta
from typing_extensions import TypeVar

from app.machinery.errors import Cause

_SPELLED = {
    "ip": "IP",
    "ips": "IPs",
    "pid": "PID",
    "ipc": "IPC",
    "id": "ID",
    "uid": "UID",
    "uuid": "UUID",
    "uri": "URI",
    "cidr": "CIDR",
    "cidrs": "CIDRs",
    "fqdn": "FQDN",
    "wwns": "WWNs",
}


def wire_name(name: str) -> str:
    """The JSON name of a field: `host_ip` is `hostIP`, `pod_ips` is `podIPs`; a trailing underscore is dropped."""
    first, *rest = name.rstrip("_").split("_")
    return first + "".join(_SPELLED.get(word, word.capitalize()) for word in rest)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _Frozen(msgspec.StructMeta):
    """Tells type checkers that what inherits from `Struct` is frozen, as it is."""


class Struct(msgspec.Struct, metaclass=_Frozen, frozen=True, omit_defaults=True, rename=wire_name):
    """The base of every part of an object."""


def at(number: int, description: str = "", **more: Any) -> Meta:
    """A field's protobuf number and what it means (shown by `kubectl explain`). `more` goes to `extra`: patch_key=..."""
    return Meta(description=description or None, extra={"pb": number, **more})


Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[datetime, Meta(tz=True)]  # whole seconds on the wire
MicroTime = Annotated[
    str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$")
]  # six decimals: a Go client insists
Quantity = str | int | float
IntOrString = int | str
Opaque = dict[str, Any]  # a part that is accepted and kept, and that nobody here looks into


TOLD: str = msgspec.field(default_factory=lambda: "")  # a field that is there even if empty: clients insist on it


class OwnerReference(Struct):
    """Who owns an object: when the owner goes, so does the object."""

    api_version: Annotated[str, at(5, "API version of the owner.", required=True)] = TOLD
    kind: Annotated[str, at(1, "Kind of the owner.", required=True)] = TOLD
    name: Annotated[str, at(3, "Name of the owner.", required=True)] = TOLD
    uid: Annotated[str, at(4, "UID of the owner.", required=True)] = TOLD
    controller: Annotated[bool | None, at(6, "True if this owner is the one that manages the object.")] = None
    block_owner_deletion: Annotated[
        bool | None, at(7, "True if a foreground deletion of the owner waits for this object.")
    ] = None


class ManagedFieldsEntry(Struct):
    """Which fields a manager set by server-side apply or another write."""

    manager: Annotated[str, at(1, "Name of the manager.")] = ""
    operation: Annotated[str, at(2, "Apply or Update.")] = ""
    api_version: Annotated[str, at(3, "Version that the fields are given in.")] = ""
    time: Annotated[Time | None, at(4, "When the manager last changed its set.")] = None
    fields_type: Annotated[str, at(6, "Always FieldsV1.")] = ""
    fields_v1: Annotated[Opaque | None, at(7, "The set of fields.")] = msgspec.field(default=None, name="fieldsV1")
    subresource: Annotated[str, at(8, "The subresource written to, if one was.")] = ""


class ObjectMeta(Struct):
    """What every stored object says about itself."""

    name: Annotated[str, at(1, "Name, unique among objects of its kind in its namespace. Cannot change.")] = ""
    generate_name: Annotated[str, at(2, "Prefix of a name that the server completes with five random characters.")] = ""
    namespace: Annotated[str, at(3, "Namespace that the object lives in. Cannot change.")] = ""
    self_link: Annotated[str, at(4, "Obsolete, never set.")] = ""
    uid: Annotated[str, at(5, "Unique in time and space; set by the server.")] = ""
    resource_version: Annotated[str, at(6, "Version of the object, for watches and conflict checks. Opaque.")] = ""
    generation: Annotated[Int64, at(7, "Rises by one whenever the wanted state changes.")] = 0
    creation_timestamp: Annotated[Time | None, at(8, "When the object was created.")] = None
    deletion_timestamp: Annotated[
        Time | None, at(9, "When the object is to be gone; set by a graceful or finalized deletion.")
    ] = None
    deletion_grace_period_seconds: Annotated[Int64 | None, at(10, "How long a graceful deletion may take.")] = None
    labels: Annotated[dict[str, str], at(11, "Keys and values that selectors match.")] = {}
    annotations: Annotated[dict[str, str], at(12, "Keys and values that nothing selects on.")] = {}
    owner_references: Annotated[
        tuple[OwnerReference, ...], at(13, "Objects that this one depends on.", patch_key="uid")
    ] = ()
    finalizers: Annotated[tuple[str, ...], at(14, "Each must be removed before the object may go.", patch="merge")] = ()
    # None is absent; an empty list is how a client clears them
    managed_fields: Annotated[tuple[ManagedFieldsEntry, ...] | None, at(17, "Who set which fields.")] = None


class Object(Struct):
    """An object as it is stored and sent."""

    api_version: Annotated[str, at(0, "Group and version of this representation.")] = ""
    kind: Annotated[str, at(0, "The kind of object.")] = ""
    metadata: Annotated[ObjectMeta, at(1, "Standard metadata.")] = msgspec.field(default_factory=ObjectMeta)


class Condition(Struct):
    """One observation about an object, as Jobs, Pods and Namespaces carry them.

    `kinds` says of a field whose documents have it.
    """

    type: Annotated[str, at(1, "What is observed.", required=True)] = TOLD
    status: Annotated[str, at(2, "True, False or Unknown.", required=True)] = TOLD
    last_probe_time: Annotated[Time | None, at(3, "When it was last looked at.", kinds=("Job", "Pod"))] = None
    last_transition_time: Annotated[Time | None, at(4, "When status last changed.")] = None
    reason: Annotated[str, at(5, "One word for why.")] = ""
    message: Annotated[str, at(6, "A sentence for people.")] = ""
    observed_generation: Annotated[Int64, at(7, "The generation that it was observed of.", kinds=("Pod",))] = 0


class ObjectReference(Struct):
    """Points at an object, for instance the one that an event is about."""

    kind: Annotated[str, at(1, "Kind of the object.")] = ""
    namespace: Annotated[str, at(2, "Its namespace.")] = ""
    name: Annotated[str, at(3, "Its name.")] = ""
    uid: Annotated[str, at(4, "Its UID.")] = ""
    api_version: Annotated[str, at(5, "Its API version.")] = ""
    resource_version: Annotated[str, at(6, "The version meant.")] = ""
    field_path: Annotated[str, at(7, "The part meant, such as spec.containers{main}.")] = ""


class LabelSelectorRequirement(Struct):
    """One demand on one label."""

    key: Annotated[str, at(1, "The label's key.", required=True)] = ""
    operator: Annotated[str, at(2, "In, NotIn, Exists or DoesNotExist.", required=True)] = ""
    values: Annotated[tuple[str, ...], at(3, "The values that In and NotIn compare with.")] = ()


class LabelSelector(Struct):
    """Selects objects by their labels; all demands must hold."""

    match_labels: Annotated[dict[str, str], at(1, "Labels that must have exactly these values.")] = {}
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], at(2, "Further demands on labels.")] = ()


class LocalObjectReference(Struct):
    """Names an object in the same namespace."""

    name: Annotated[str, at(1, "Name of the object.", default="")] = ""


O = TypeVar("O", bound=Object, default=Any)  # noqa: E741 - the letter reads as "object" beside Kind[O]


class Column(Struct):
    """A column of `kubectl get`. `priority` 1 is shown by `-o wide` only."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


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
    warnings:        (new, old or None) -> texts for Warning headers; also names fields that nothing acts on yet.
    row:             (object, now) -> cells of `columns`, in order.
    fields:          field selectors beyond metadata.name and metadata.namespace.
    grace:           seconds between DELETE and removal when the request names none; 0 removes at once.
    returns_deleted: True if DELETE answers the object that is gone rather than a Status (`ReturnDeletedObject` in
                     Kubernetes' stores).
    orphans:         True if a raw DELETE without a policy leaves dependents alone.
    on_delete:       what a deletion that does not end at once changes beyond metadata. Idempotent.
    held:            True while an object that is being deleted must stay, whatever its metadata says.
    immortal:        names of objects that nobody may delete.
    tracked:         False for kinds of which there are too many to record who set which of their fields.
    example:         one valid manifest, for the suites that run over every kind.
    stored_as:       the (group, resource) that objects are stored under if another version of the same thing.
    inward, outward: this kind's struct to the stored kind's and back, for such a second version.
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
    warnings: Callable[[O, O | None], list[str]] = _nothing
    columns: tuple[Column, ...] = ()
    row: Callable[[O, datetime], list[Any]] = _nothing
    fields: Mapping[str, Callable[[O], str]] = field(default_factory=dict)
    name_format: Literal["subdomain", "label", "path"] = "subdomain"
    grace: Callable[[O], int] = _no_grace
    returns_deleted: bool = False
    orphans: bool = False
    on_delete: Callable[[O], O] = _same
    held: Callable[[O], bool] = lambda _: False
    immortal: frozenset[str] = frozenset()
    tracked: bool = True
    example: str = ""
    stored_as: tuple[str, str] | None = None
    inward: Callable[[O], Object] | None = None
    outward: Callable[[Any], O] | None = None

    @cached_property
    def name(self) -> str:
        return self.type.__name__

    @cached_property
    def is_graceful(self) -> bool:
        """Whether objects of the kind can be given time to end."""
        return self.grace is not _no_grace

    @cached_property
    def singular(self) -> str:
        return self.name.lower()

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """`jobs.batch`, or `pods` for the core group: how messages and the store name the kind."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
