"""Server-side apply: merges an applied configuration into an object, and gives its fields to the applier.

The API calls `apply` with the decoded configuration; the registry stores the result like any other update. Fields that the
manager applied before and leaves out now are removed, unless another manager owns them. A change to a field of another
manager is a conflict, 409. Kubernetes: apimachinery's `util/managedfields` and structured-merge-diff's `merge/update.go`.
"""

from typing import Any, NamedTuple

import msgspec

from app.machinery.apply.apply_validation import find_faults
from app.machinery.apply.field_ownership import Comparison, compare, compute_all_fields, compute_applied_fields
from app.machinery.apply.field_sets import FieldSet, difference, format_path, intersection, iterate_paths, union
from app.machinery.apply.managed_fields import (
    Entries,
    FieldManager,
    Manager,
    Managers,
    OtherVersions,
    OwnedFields,
    entries_of,
    find_conflicts,
    managers_of,
    remove_ownership,
    restrict_to_ownable,
    union_all,
)
from app.machinery.apply.structured_merge import ensure_named_fields, merge, remove_fields
from app.machinery.apply.topology import Topology, topology_of
from app.machinery.base import Kind, Object
from app.machinery.decoding.json_document import parse
from app.machinery.errors import ApiError, bad_request
from app.machinery.meta.metadata_validation import ANNOTATIONS_LIMIT
from app.machinery.object_codec import json_document_of
from app.machinery.shape import shape_of

BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"  # the only manager that takes over fields of its own client-side applies


class ApplyResult(NamedTuple):
    """The merged object, and its managedFields."""

    document: dict[str, Any]
    entries: Entries


def apply(
    kind: Kind[Any],
    live: Object | None,
    configuration: dict[str, Any],
    writer: FieldManager,
    *,
    force: bool,
    others: OtherVersions | None = None,
) -> ApplyResult:
    """Apply the configuration to the live object, None for a new one. 409 if it would change fields of other managers.

    `others`: what the apply changes as it looks in other versions, for managers that own fields there.
    """
    return _Apply(kind, live, configuration, writer).run(force=force, others=others or {})


def validate_configuration(kind: Kind[Any], configuration: Any) -> None:
    """Raise 400 for a configuration that cannot be applied to this kind."""
    if not isinstance(configuration, dict):
        raise bad_request("error decoding YAML: an object is expected")
    given = _format_type(configuration)
    if given != f"{kind.group}/{kind.version}, Kind={kind.name}":
        raise bad_request(f"invalid object type: {given}")
    metadata = configuration.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    if found := _find_faults(kind, configuration):
        text = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
        raise bad_request(f"failed to create typed patch object ({_format_identity(configuration)}): {text}")


def _find_faults(kind: Kind[Any], configuration: dict[str, Any]) -> list[str]:
    type_: type = kind.type
    return find_faults(configuration, shape_of(type_), topology_of(type_))


def _format_type(configuration: dict[str, Any]) -> str:
    """Format group, version and kind as Go's GroupVersionKind prints."""
    version = configuration.get("apiVersion") or ""
    return f"{'' if '/' in str(version) else '/'}{version}, Kind={configuration.get('kind') or ''}"


def _format_identity(configuration: dict[str, Any]) -> str:
    metadata = configuration.get("metadata")
    meta = metadata if isinstance(metadata, dict) else {}
    return f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {_format_type(configuration)}"


class _Apply:
    """One apply: the live object, its managers and the configuration."""

    def __init__(
        self, kind: Kind[Any], live: Object | None, configuration: dict[str, Any], writer: FieldManager
    ) -> None:
        type_: type = kind.type
        self.kind = kind
        self.topology = topology_of(type_)
        self.writer = writer
        self.applier = writer.manager(kind)
        self.configuration = configuration
        self.live = _to_document(kind, live) if live else {}
        self.managers = managers_of((live and live.metadata.managed_fields) or (), kind)
        if live and not self.managers and kind.tracked:
            self.managers = self._managers_before_first_apply()

    def _managers_before_first_apply(self) -> Managers:
        """Return the manager before-first-apply, which owns all fields of an object without managedFields."""
        manager = FieldManager(BEFORE_FIRST_APPLY, self.writer.at, self.writer.subresource).manager(self.kind)
        return {
            manager: OwnedFields(
                self._restrict_to_ownable(compute_all_fields(self.live, self.topology)), self.writer.at
            )
        }

    def run(self, *, force: bool, others: OtherVersions) -> ApplyResult:
        last = self.managers.get(self.applier)
        owned_fields = self._restrict_to_ownable(compute_applied_fields(self.configuration, self.topology))
        managers = self.managers | {self.applier: OwnedFields(owned_fields, last.at if last else None)}
        document = merge(self.live, self.configuration, self.topology)
        if last and difference(last.fields, owned_fields):
            document = _prune(document, last.fields, managers, self.topology)
        changed = Comparison(*map(self._restrict_to_ownable, compare(self.live, document, self.topology)))
        if not force:
            self._refuse_conflicts(find_conflicts(managers, changed, self.applier, others))
        if last is None or document != self.live:
            managers[self.applier] = OwnedFields(owned_fields, self.writer.at)
        entries = entries_of(remove_ownership(managers, changed, self.applier, others), self.kind)
        return ApplyResult(self._update_last_applied(document), entries)

    def _restrict_to_ownable(self, fields: FieldSet) -> FieldSet:
        return restrict_to_ownable(self.kind, fields, self.writer.subresource)

    def _refuse_conflicts(self, conflicts: dict[Manager, FieldSet]) -> None:
        if conflicts and self.writer.name == KUBECTL:
            excused = self._last_applied_fields()
            left = {manager: difference(fields, excused) for manager, fields in conflicts.items()}
            conflicts = {manager: fields for manager, fields in left.items() if fields}
        if conflicts:
            raise _conflict_error(conflicts)

    def _last_applied_fields(self) -> FieldSet:
        """Return the fields of kubectl's last client-side apply (its annotation) that are unchanged since."""
        try:
            last_configuration = parse(self.live["metadata"]["annotations"][LAST_APPLIED].encode())
        except (KeyError, ApiError):
            return {}
        if not isinstance(last_configuration, dict) or last_configuration.get("apiVersion") != self.kind.api_version:
            return {}
        if _find_faults(self.kind, last_configuration):
            return {}
        since = compare(last_configuration, self.live, self.topology)
        return difference(compute_applied_fields(last_configuration, self.topology), union_all(since))

    def _update_last_applied(self, document: dict[str, Any]) -> dict[str, Any]:
        """Update kubectl's last-applied annotation, so that client-side apply still works afterwards."""
        metadata = document.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        if self.writer.name != KUBECTL or not annotations.get(LAST_APPLIED):
            return document
        updated = annotations | {LAST_APPLIED: _format_last_applied(self.configuration)}
        if sum(len(key.encode()) + len(value.encode()) for key, value in updated.items()) > ANNOTATIONS_LIMIT:
            del updated[LAST_APPLIED]
        return document | {"metadata": metadata | {"annotations": updated}}


def _to_document(kind: Kind[Any], live: Object) -> dict[str, Any]:
    """Return the live object as clients read it."""
    metadata = msgspec.structs.replace(live.metadata, managed_fields=None)
    document = json_document_of(msgspec.structs.replace(live, metadata=metadata))
    return document | {"apiVersion": kind.api_version, "kind": kind.name}


def _prune(document: dict[str, Any], last: FieldSet, managers: Managers, topology: Topology) -> dict[str, Any]:
    """Remove fields of the last apply that the configuration leaves out (prune), except those that others own."""
    everything = ensure_named_fields(compute_applied_fields(document, topology), topology)
    last = ensure_named_fields(last, topology)
    owned_fields = ensure_named_fields(union_all(owned.fields for owned in managers.values()), topology)
    cut = remove_fields(document, last, topology) or {}
    kept = union(ensure_named_fields(compute_applied_fields(cut, topology), topology), owned_fields)
    cut = remove_fields(document, difference(everything, kept), topology) or {}
    gone = difference(everything, ensure_named_fields(compute_applied_fields(cut, topology), topology))
    left: dict[str, Any] = remove_fields(document, intersection(gone, last), topology) or {}
    return left


def _format_last_applied(configuration: dict[str, Any]) -> str:
    """Format a configuration as kubectl's annotation has it: JSON as Go encodes it, and a line break."""
    metadata = configuration.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    if annotations.pop(LAST_APPLIED, None) is not None:
        configuration = configuration | {"metadata": metadata | {"annotations": annotations}}
    text = msgspec.json.encode(configuration, order="sorted").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") + "\n"


# --- conflicts


def _conflict_error(conflicts: dict[Manager, FieldSet]) -> ApiError:
    found = [(manager, format_path(path)) for manager, fields in conflicts.items() for path in iterate_paths(fields)]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_format_manager(manager)}", "field": path}
        for manager, path in found
    ]
    return ApiError(409, "Conflict", _format_conflicts(conflicts, found), causes=causes)


def _format_conflicts(conflicts: dict[Manager, FieldSet], found: list[tuple[Manager, str]]) -> str:
    if len(found) == 1:
        ((manager, path),) = found
        return f"Apply failed with 1 conflict: conflict with {_format_manager(manager)}: {path}"
    lines = []
    for manager in conflicts:
        lines.append(f"conflicts with {_format_manager(manager)}:")
        lines += [f"- {path}" for owner, path in found if owner == manager]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)


def _format_manager(manager: Manager) -> str:
    """Format a manager as conflict messages name it."""
    text = msgspec.json.encode(manager.name).decode()
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return f"{text} using {manager.api_version}" if manager.operation == "Update" else text
