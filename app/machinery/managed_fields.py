"""`metadata.managedFields`: who set which fields of an object, kept up to date on each write by a client.

The registry calls `after_create` and `after_update`, `server_side_apply` the rest. Ownership moves with changes: who changes a
field owns it from then on, and alone. Entries come out in Kubernetes' order and never empty.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from app.machinery.base import Kind, ManagedFieldsEntry, Object
from app.machinery.field_ownership import Changes, changes, whole
from app.machinery.field_sets import FieldSet, difference, intersection, ordered, read, union
from app.machinery.topology import Topology, topology_of

Entries = tuple[ManagedFieldsEntry, ...]

MOST_UPDATERS = 10
ANCIENT = "ancient-changes"
# What an object is, and what the server says of it: nobody's to own.
_TYPE = frozenset({"f:apiVersion", "f:kind"})
_IDENTITY = frozenset(
    {
        ".",
        "f:name",
        "f:namespace",
        "f:creationTimestamp",
        "f:selfLink",
        "f:uid",
        "f:clusterName",
        "f:generation",
        "f:managedFields",
        "f:resourceVersion",
    }
)
_OF_STATUS_WRITES = frozenset({"f:labels", "f:annotations"})


class Manager(NamedTuple):
    """Who wrote, and how. A manager that applies is the same in every version: it has none."""

    name: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str


class Claim(NamedTuple):
    """What a manager owns, and since when."""

    fields: FieldSet
    at: datetime | None


Managers = dict[Manager, Claim]


class Writer(NamedTuple):
    """Who makes a write that is recorded, and where. What applies brings its own entries along."""

    name: str
    at: datetime
    subresource: str = ""
    applies: bool = False

    def manager(self, kind: Kind[Any]) -> Manager:
        if self.applies:
            return Manager(self.name, "Apply", "", self.subresource)
        return Manager(self.name or "unknown", "Update", kind.api_version, self.subresource)


def with_entries(obj: Object, entries: Entries | None) -> Object:
    metadata = msgspec.structs.replace(obj.metadata, managed_fields=entries or None)
    return msgspec.structs.replace(obj, metadata=metadata)


def document_of(obj: Object) -> dict[str, Any]:
    """The object without its managed fields, as sets are made of it."""
    metadata = msgspec.structs.replace(obj.metadata, managed_fields=None)
    document: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(obj, metadata=metadata))
    return document


def _topology(kind: Kind[Any]) -> Topology:
    type_: type = kind.type
    return topology_of(type_)


# --- entries


def managers_of(entries: Entries, kind: Kind[Any]) -> Managers:
    """What is stored, as it is: entries of other versions than the kind's are of no use to anyone."""
    return {
        _manager(entry): Claim(entry.fields_v1 or {}, entry.time)
        for entry in entries
        if entry.api_version == kind.api_version
    }


def _manager(entry: ManagedFieldsEntry) -> Manager:
    version = "" if entry.operation == "Apply" else entry.api_version
    return Manager(entry.manager, entry.operation, version, entry.subresource)


def entries_of(managers: Managers, kind: Kind[Any]) -> Entries:
    entries = [
        _entry(manager, Claim(ordered(claim.fields), claim.at), kind)
        for manager, claim in managers.items()
        if claim.fields
    ]
    return tuple(sorted(entries, key=_order))


def _entry(manager: Manager, claim: Claim, kind: Kind[Any]) -> ManagedFieldsEntry:
    """The entry of a claim whose fields are ordered."""
    return ManagedFieldsEntry(
        manager=manager.name,
        operation=manager.operation,
        api_version=kind.api_version,
        time=claim.at,
        fields_type="FieldsV1",
        fields_v1=claim.fields,
        subresource=manager.subresource,
    )


def _order(entry: ManagedFieldsEntry) -> tuple[str, float, str, str]:
    return entry.operation, _seconds(entry.time), entry.manager, entry.subresource


def base_of(sent: Entries | None, stored: Entries | None, *, subresource: str) -> Entries:
    """The entries that a write starts from: those that the client sent, if it may and they can be read.

    An empty list, or one empty entry, is how clients clear them.
    """
    stored = stored or ()
    if subresource or sent is None or sent == stored:
        return stored
    if sent in ((), (ManagedFieldsEntry(),)):
        return ()
    try:
        return tuple(map(_read, sent))
    except (ValueError, msgspec.MsgspecError):
        return stored


def _read(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    if entry.operation not in ("Apply", "Update") or not entry.api_version or entry.fields_type != "FieldsV1":
        raise ValueError("an entry needs operation Apply or Update, an apiVersion and fieldsType FieldsV1")
    return msgspec.structs.replace(entry, fields_v1=ordered(read(entry.fields_v1 or {})))


# --- writes


def after_create(kind: Kind[Any], obj: Object, sent: Entries | None, writer: Writer) -> Entries | None:
    """The entries of a new object: as a client sent it, defaults included, and with these entries."""
    if writer.applies or not kind.tracked:
        return sent if kind.tracked else None
    fields = owned(kind, whole(document_of(obj), _topology(kind)), writer.subresource)
    if not sent:
        return (_entry(writer.manager(kind), Claim(fields, writer.at), kind),) if fields else ()
    base = managers_of(base_of(sent, (), subresource=""), kind)
    return entries_of(_updated(base, Changes({}, {}, fields), writer.manager(kind), writer.at), kind)


def after_update(kind: Kind[Any], new: Object, old: Object, sent: Entries | None, writer: Writer) -> Entries | None:
    """The entries once `new` has replaced `old`, of a client that sent these entries along."""
    stored = old.metadata.managed_fields
    if writer.applies or not kind.tracked:
        return sent if kind.tracked else stored
    base = base_of(sent, stored, subresource=writer.subresource)
    managers = managers_of(base, kind)
    if not managers:
        return None  # as in Kubernetes: nobody tracked it, or a client asked for that
    changed = changes(document_of(old), document_of(new), _topology(kind))
    if base == stored and not any(changed):
        return stored
    kept = Changes(*(owned(kind, each, writer.subresource) for each in changed))
    return entries_of(_capped(_updated(managers, kept, writer.manager(kind), writer.at)), kind)


def owned(kind: Kind[Any], fields: FieldSet, subresource: str) -> FieldSet:
    """What a write can own of what it touches: never the identity, and only its own half of spec and status."""
    fields = _without_identity(fields)
    if not kind.has_status:
        return fields
    if subresource != "status":
        return {mark: node for mark, node in fields.items() if mark != "f:status"}
    labelled = {mark: node for mark, node in fields.get("f:metadata", {}).items() if mark in _OF_STATUS_WRITES}
    kept = {"f:metadata": labelled} if labelled else {}
    return kept | {mark: node for mark, node in fields.items() if mark == "f:status"}


def _without_identity(fields: FieldSet) -> FieldSet:
    kept = {mark: node for mark, node in fields.items() if mark not in _TYPE}
    metadata = {mark: node for mark, node in fields.get("f:metadata", {}).items() if mark not in _IDENTITY}
    if metadata:
        kept["f:metadata"] = metadata
    else:
        kept.pop("f:metadata", None)
    return kept


def _updated(managers: Managers, changed: Changes, writer: Manager, now: datetime) -> Managers:
    """Takes what was changed from all, gives it to the writer, and takes from all what has gone."""
    touched = union(changed.modified, changed.added)
    left = disowned(managers, changed)
    if touched:
        before = left.get(writer)
        left[writer] = Claim(union(before.fields, touched) if before else touched, now)
    return left


def disowned(managers: Managers, changed: Changes, keep: Manager | None = None) -> Managers:
    """The managers without what was changed or has gone; `keep` keeps what it has."""
    gone = union(union(changed.modified, changed.added), changed.removed)
    left = {
        manager: claim if manager == keep else Claim(difference(claim.fields, gone), claim.at)
        for manager, claim in managers.items()
    }
    return {manager: claim for manager, claim in left.items() if claim.fields}


def disputed(managers: Managers, changed: Changes, applier: Manager) -> dict[Manager, FieldSet]:
    """What a change would take from whom, in the order in which conflicts are told."""
    touched = union(changed.modified, changed.added)
    taken = {
        manager: ordered(intersection(managers[manager].fields, touched))
        for manager in sorted(managers)
        if manager != applier
    }
    return {manager: fields for manager, fields in taken.items() if fields}


def _capped(managers: Managers) -> Managers:
    """Of more than ten entries by updates, the oldest become one."""
    updaters = sorted(
        (manager for manager in managers if manager.operation == "Update"),
        key=lambda manager: (_seconds(managers[manager].at), manager),
    )
    excess = len(updaters) - MOST_UPDATERS
    if excess <= 0:
        return managers
    bucket = Manager(ANCIENT, "Update", updaters[0].api_version, "")
    oldest = updaters[:excess] if bucket in updaters[excess + 1 :] else updaters[: excess + 1]
    left = {manager: claim for manager, claim in managers.items() if manager not in oldest}
    merged = [managers[manager] for manager in oldest] + ([left[bucket]] if bucket in left else [])
    return left | {bucket: Claim(joined(claim.fields for claim in merged), managers[oldest[-1]].at)}


def joined(sets: Iterable[FieldSet]) -> FieldSet:
    """Whatever is in one of them."""
    all_: FieldSet = {}
    for each in sets:
        all_ = union(all_, each)
    return all_


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def is_same(new: Entries | None, old: Entries | None) -> bool:
    """True if the entries differ in their times at most: then nothing was written."""
    one, other = new or (), old or ()
    return len(one) == len(other) and all(
        a == b or msgspec.structs.replace(a, time=None) == msgspec.structs.replace(b, time=None)
        for a, b in zip(one, other, strict=True)
    )
