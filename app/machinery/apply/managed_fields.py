"""`metadata.managedFields`: which manager owns which fields of an object, updated on each write by a client.

The registry calls `managed_fields_after_create` and `managed_fields_after_update`, `server_side_apply` the rest. A manager
that changes a field becomes its only owner. Entries come out in Kubernetes' order and never empty (apimachinery's
`util/managedfields`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from app.machinery import object_codec
from app.machinery.apply.field_ownership import Comparison, compare, compute_all_fields
from app.machinery.apply.field_sets import FieldSet, difference, intersection, parse_field_set, sort_fields, union
from app.machinery.apply.topology import Topology, topology_of
from app.machinery.base import Kind, ManagedFieldsEntry, Object

Entries = tuple[ManagedFieldsEntry, ...]

MOST_UPDATE_MANAGERS = 10
ANCIENT_CHANGES = "ancient-changes"
# The type of an object, and metadata that the server sets: no manager owns them.
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
_METADATA_OWNED_BY_STATUS = frozenset({"f:labels", "f:annotations"})


class Manager(NamedTuple):
    """Identity of a manager. One that applies has no API version: it is the same manager in every version."""

    name: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str


class OwnedFields(NamedTuple):
    """Fields that a manager owns, and the time of its last write to them.

    `api_version`: of the fields, if it is another version of a kind that a webhook converts.
    """

    fields: FieldSet
    at: datetime | None
    api_version: str = ""


Managers = dict[Manager, OwnedFields]
OtherVersions = Mapping[str, Comparison]
"""What a write changes as it looks in other versions of the kind, by apiVersion."""
_NO_OTHERS: OtherVersions = {}


class FieldManager(NamedTuple):
    """Field manager of one write. With `applies`, the object brings its managedFields along: server-side apply made them."""

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
    """Return the object without its managedFields as a plain document, for field sets."""
    metadata = msgspec.structs.replace(obj.metadata, managed_fields=None)
    return object_codec.document_of(msgspec.structs.replace(obj, metadata=metadata))


def _topology(kind: Kind[Any]) -> Topology:
    type_: type = kind.type
    return topology_of(type_)


# --- entries


def managers_of(entries: Entries, kind: Kind[Any]) -> Managers:
    """Return the stored entries by manager. Entries of other API versions than the kind's are dropped.

    Versions of a custom kind have the same fields, unless a webhook converts them: their entries count as the kind's own.
    """
    return {
        _manager_of(entry, kind): OwnedFields(entry.fields_v1 or {}, entry.time, _other_version(entry, kind))
        for entry in entries
        if entry.api_version == kind.api_version or _is_version_of(kind, entry.api_version)
    }


def _is_version_of(kind: Kind[Any], api_version: str) -> bool:
    return bool(kind.definition) and api_version.partition("/")[0] == kind.group


def _other_version(entry: ManagedFieldsEntry, kind: Kind[Any]) -> str:
    return "" if kind.conversion is None or entry.api_version == kind.api_version else entry.api_version


def _manager_of(entry: ManagedFieldsEntry, kind: Kind[Any]) -> Manager:
    version = "" if entry.operation == "Apply" else _other_version(entry, kind) or kind.api_version
    return Manager(entry.manager, entry.operation, version, entry.subresource)


def entries_of(managers: Managers, kind: Kind[Any]) -> Entries:
    entries = [
        _build_entry(manager, owned._replace(fields=sort_fields(owned.fields)), kind)
        for manager, owned in managers.items()
        if owned.fields
    ]
    return tuple(sorted(entries, key=_entry_sort_key))


def _build_entry(manager: Manager, owned: OwnedFields, kind: Kind[Any]) -> ManagedFieldsEntry:
    """Build the entry; the fields must be sorted already."""
    return ManagedFieldsEntry(
        manager=manager.name,
        operation=manager.operation,
        api_version=owned.api_version or kind.api_version,
        time=owned.at,
        fields_type="FieldsV1",
        fields_v1=owned.fields,
        subresource=manager.subresource,
    )


def _entry_sort_key(entry: ManagedFieldsEntry) -> tuple[str, float, str, str]:
    return entry.operation, _seconds(entry.time), entry.manager, entry.subresource


def resolve_sent_entries(sent: Entries | None, stored: Entries | None, *, subresource: str) -> Entries:
    """Return the entries that a write starts from: the client's, if it may set them and they parse, else the stored ones.

    An empty list, or one empty entry, clears them.
    """
    stored = stored or ()
    if subresource or sent is None or sent == stored:
        return stored
    if sent in ((), (ManagedFieldsEntry(),)):
        return ()
    try:
        return tuple(map(_parse_entry, sent))
    except (ValueError, msgspec.MsgspecError):
        return stored


def _parse_entry(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    if entry.operation not in ("Apply", "Update") or not entry.api_version or entry.fields_type != "FieldsV1":
        raise ValueError("an entry needs operation Apply or Update, an apiVersion and fieldsType FieldsV1")
    return msgspec.structs.replace(entry, fields_v1=sort_fields(parse_field_set(entry.fields_v1 or {})))


# --- writes


def managed_fields_after_create(
    kind: Kind[Any], obj: Object, sent: Entries | None, writer: FieldManager
) -> Entries | None:
    """Return the entries of a new object. `obj` is as the client sent it, with defaults; `sent` are its own entries."""
    if writer.applies or not kind.tracked:
        return sent if kind.tracked else None
    fields = restrict_to_ownable(kind, compute_all_fields(document_of(obj), _topology(kind)), writer.subresource)
    if not sent:
        return (_build_entry(writer.manager(kind), OwnedFields(fields, writer.at), kind),) if fields else ()
    base = managers_of(resolve_sent_entries(sent, (), subresource=""), kind)
    return entries_of(_transfer_ownership(base, Comparison({}, {}, fields), writer.manager(kind), writer.at), kind)


def managed_fields_after_update(
    kind: Kind[Any],
    new: Object,
    old: Object,
    sent: Entries | None,
    writer: FieldManager,
    others: OtherVersions = _NO_OTHERS,
) -> Entries | None:
    """Return the entries after `new` replaces `old`; `sent` are the entries in the client's object."""
    stored = old.metadata.managed_fields
    if writer.applies or not kind.tracked:
        return sent if kind.tracked else stored
    base = resolve_sent_entries(sent, stored, subresource=writer.subresource)
    managers = managers_of(base, kind)
    if not managers:
        return None  # as in Kubernetes: the object is untracked, or the client cleared the entries
    changed = compare(document_of(old), document_of(new), _topology(kind))
    if base == stored and not any(changed):
        return stored
    kept = Comparison(*(restrict_to_ownable(kind, each, writer.subresource) for each in changed))
    left = _transfer_ownership(managers, kept, writer.manager(kind), writer.at, others)
    return entries_of(_cap_managers(left), kind)


def compare_objects(kind: Kind[Any], old: Object, new: Object, subresource: str) -> Comparison:
    """Return what a write of a part of an object changes, of what can be owned."""
    changed = compare(document_of(old), document_of(new), _topology(kind))
    return Comparison(*(restrict_to_ownable(kind, each, subresource) for each in changed))


def restrict_to_ownable(kind: Kind[Any], fields: FieldSet, subresource: str) -> FieldSet:
    """Return the fields that a write can own: never the identity, and only its own half of spec and status."""
    fields = _strip_identity(fields)
    if not kind.has_status:
        return fields
    if subresource != "status":
        return {path_element: node for path_element, node in fields.items() if path_element != "f:status"}
    labelled = {
        path_element: node
        for path_element, node in fields.get("f:metadata", {}).items()
        if path_element in _METADATA_OWNED_BY_STATUS
    }
    kept = {"f:metadata": labelled} if labelled else {}
    return kept | {path_element: node for path_element, node in fields.items() if path_element == "f:status"}


def _strip_identity(fields: FieldSet) -> FieldSet:
    kept = {path_element: node for path_element, node in fields.items() if path_element not in _TYPE}
    metadata = {
        path_element: node
        for path_element, node in fields.get("f:metadata", {}).items()
        if path_element not in _IDENTITY
    }
    if metadata:
        kept["f:metadata"] = metadata
    else:
        kept.pop("f:metadata", None)
    return kept


def _transfer_ownership(
    managers: Managers, changed: Comparison, writer: Manager, now: datetime, others: OtherVersions = _NO_OTHERS
) -> Managers:
    """Give changed and added fields to the writer alone, and remove removed fields from all managers."""
    touched = union(changed.modified, changed.added)
    left = remove_ownership(managers, changed, others=others)
    if touched:
        before = left.get(writer)
        left[writer] = OwnedFields(union(before.fields, touched) if before else touched, now)
    return left


def remove_ownership(
    managers: Managers, changed: Comparison, keep: Manager | None = None, others: OtherVersions = _NO_OTHERS
) -> Managers:
    """Return the managers without the changed and removed fields; `keep` keeps its own."""
    gone = {version: union_all(each) for version, each in _by_version(changed, others).items()}
    left = {
        manager: owned
        if manager == keep
        else owned._replace(fields=difference(owned.fields, gone.get(owned.api_version, {})))
        for manager, owned in managers.items()
    }
    return {manager: owned for manager, owned in left.items() if owned.fields}


def _by_version(changed: Comparison, others: OtherVersions) -> OtherVersions:
    """All comparisons; that of the kind's own version under no name."""
    return {"": changed, **others}


def find_conflicts(
    managers: Managers, changed: Comparison, applier: Manager, others: OtherVersions = _NO_OTHERS
) -> dict[Manager, FieldSet]:
    """Return the fields that a change would take from each other manager, in the order of conflict messages."""
    touched = {version: union(each.modified, each.added) for version, each in _by_version(changed, others).items()}
    taken = {
        manager: sort_fields(intersection(managers[manager].fields, touched.get(managers[manager].api_version, {})))
        for manager in sorted(managers)
        if manager != applier
    }
    return {manager: fields for manager, fields in taken.items() if fields}


def _cap_managers(managers: Managers) -> Managers:
    """Merge the oldest entries of more than ten updates into one, `ancient-changes` (Kubernetes' capmanagers.go)."""
    updaters = sorted(
        (manager for manager in managers if manager.operation == "Update"),
        key=lambda manager: (_seconds(managers[manager].at), manager),
    )
    excess = len(updaters) - MOST_UPDATE_MANAGERS
    if excess <= 0:
        return managers
    bucket = Manager(ANCIENT_CHANGES, "Update", updaters[0].api_version, "")
    oldest = updaters[:excess] if bucket in updaters[excess + 1 :] else updaters[: excess + 1]
    left = {manager: owned for manager, owned in managers.items() if manager not in oldest}
    merged = [managers[manager] for manager in oldest] + ([left[bucket]] if bucket in left else [])
    last = managers[oldest[-1]]
    return left | {bucket: last._replace(fields=union_all(owned.fields for owned in merged))}


def union_all(sets: Iterable[FieldSet]) -> FieldSet:
    """Return the union of all sets."""
    all_: FieldSet = {}
    for each in sets:
        all_ = union(all_, each)
    return all_


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def is_same(new: Entries | None, old: Entries | None) -> bool:
    """Return whether the entries differ in their times at most: then the write changes nothing."""
    one, other = new or (), old or ()
    return len(one) == len(other) and all(
        a == b or msgspec.structs.replace(a, time=None) == msgspec.structs.replace(b, time=None)
        for a, b in zip(one, other, strict=True)
    )
