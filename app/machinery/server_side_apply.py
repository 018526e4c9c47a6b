"""Server-side apply: a client says what it wants of an object, and owns what it said.

The API calls `applied` with what it decoded; the registry stores what comes out like any other update. What the client
applied before and left out now goes, unless somebody else owns it. What others own and it would change is a conflict.
"""

from typing import Any, NamedTuple

import msgspec

from app.machinery.apply_validation import faults
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError, bad_request
from app.machinery.field_ownership import Changes, changes, claimed, whole
from app.machinery.field_sets import FieldSet, difference, intersection, paths, shown, union
from app.machinery.json_document import parse
from app.machinery.managed_fields import (
    Claim,
    Entries,
    Manager,
    Managers,
    Writer,
    disowned,
    disputed,
    document_of,
    entries_of,
    joined,
    managers_of,
    owned,
)
from app.machinery.metadata_validation import ANNOTATIONS_LIMIT
from app.machinery.shape import shape_of
from app.machinery.structured_merge import merged, with_named, without
from app.machinery.topology import Topology, topology_of

BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"  # the one manager that takes over what client-side applies of its own have set


class Applied(NamedTuple):
    """The object as it should be, and who owns what of it."""

    document: dict[str, Any]
    entries: Entries


def applied(
    kind: Kind[Any], live: Object | None, configuration: dict[str, Any], writer: Writer, *, force: bool
) -> Applied:
    """The live object, or none, with the configuration applied to it. 409 if others own what it would change."""
    return _Apply(kind, live, configuration, writer).outcome(force=force)


def check(kind: Kind[Any], configuration: Any) -> None:
    """Raises a 400 for what cannot be applied to this kind at all."""
    if not isinstance(configuration, dict):
        raise bad_request("error decoding YAML: an object is expected")
    given = _named(configuration)
    if given != f"{kind.group}/{kind.version}, Kind={kind.name}":
        raise bad_request(f"invalid object type: {given}")
    metadata = configuration.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    if found := _faults(kind, configuration):
        text = found[0] if len(found) == 1 else "\n  ".join(["errors:", *found])
        raise bad_request(f"failed to create typed patch object ({_identified(configuration)}): {text}")


def _faults(kind: Kind[Any], configuration: dict[str, Any]) -> list[str]:
    type_: type = kind.type
    return faults(configuration, shape_of(type_), topology_of(type_))


def _named(configuration: dict[str, Any]) -> str:
    """Group, version and kind as Go prints them."""
    version = configuration.get("apiVersion") or ""
    return f"{'' if '/' in str(version) else '/'}{version}, Kind={configuration.get('kind') or ''}"


def _identified(configuration: dict[str, Any]) -> str:
    metadata = configuration.get("metadata")
    meta = metadata if isinstance(metadata, dict) else {}
    return f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {_named(configuration)}"


class _Apply:
    """One application: what it starts from."""

    def __init__(self, kind: Kind[Any], live: Object | None, configuration: dict[str, Any], writer: Writer) -> None:
        type_: type = kind.type
        self.kind = kind
        self.topology = topology_of(type_)
        self.writer = writer
        self.applier = writer.manager(kind)
        self.configuration = configuration
        self.live = _plain(kind, live) if live else {}
        self.managers = managers_of((live and live.metadata.managed_fields) or (), kind)
        if live and not self.managers and kind.tracked:
            self.managers = self._before_first()

    def _before_first(self) -> Managers:
        """Whoever set what an object has that nobody kept account of."""
        manager = Writer(BEFORE_FIRST_APPLY, self.writer.at, self.writer.subresource).manager(self.kind)
        return {manager: Claim(self._owned(whole(self.live, self.topology)), self.writer.at)}

    def outcome(self, *, force: bool) -> Applied:
        last = self.managers.get(self.applier)
        claims = self._owned(claimed(self.configuration, self.topology))
        managers = self.managers | {self.applier: Claim(claims, last.at if last else None)}
        document = merged(self.live, self.configuration, self.topology)
        if last and difference(last.fields, claims):
            document = _pruned(document, last.fields, managers, self.topology)
        changed = Changes(*map(self._owned, changes(self.live, document, self.topology)))
        if not force:
            self._refuse(disputed(managers, changed, self.applier))
        if last is None or document != self.live:
            managers[self.applier] = Claim(claims, self.writer.at)
        entries = entries_of(disowned(managers, changed, keep=self.applier), self.kind)
        return Applied(self._noted(document), entries)

    def _owned(self, fields: FieldSet) -> FieldSet:
        return owned(self.kind, fields, self.writer.subresource)

    def _refuse(self, conflicts: dict[Manager, FieldSet]) -> None:
        if conflicts and self.writer.name == KUBECTL:
            excused = self._last_applied()
            left = {manager: difference(fields, excused) for manager, fields in conflicts.items()}
            conflicts = {manager: fields for manager, fields in left.items() if fields}
        if conflicts:
            raise _conflict(conflicts)

    def _last_applied(self) -> FieldSet:
        """What kubectl's client-side apply set, as its annotation says, and nobody has changed since."""
        try:
            noted = parse(self.live["metadata"]["annotations"][LAST_APPLIED].encode())
        except (KeyError, ApiError):
            return {}
        if not isinstance(noted, dict) or noted.get("apiVersion") != self.kind.api_version:
            return {}
        if _faults(self.kind, noted):
            return {}
        since = changes(noted, self.live, self.topology)
        return difference(claimed(noted, self.topology), joined(since))

    def _noted(self, document: dict[str, Any]) -> dict[str, Any]:
        """Keeps the annotation of client-side applies in step, for those who go back to them."""
        metadata = document.get("metadata") or {}
        annotations = metadata.get("annotations") or {}
        if self.writer.name != KUBECTL or not annotations.get(LAST_APPLIED):
            return document
        noted = annotations | {LAST_APPLIED: _note(self.configuration)}
        if sum(len(key.encode()) + len(value.encode()) for key, value in noted.items()) > ANNOTATIONS_LIMIT:
            del noted[LAST_APPLIED]
        return document | {"metadata": metadata | {"annotations": noted}}


def _plain(kind: Kind[Any], live: Object) -> dict[str, Any]:
    """The live object as clients read it."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document_of(live)))
    return document | {"apiVersion": kind.api_version, "kind": kind.name}


def _pruned(document: dict[str, Any], last: FieldSet, managers: Managers, topology: Topology) -> dict[str, Any]:
    """The document without what was applied last and is no longer, except what others own or nobody did."""
    everything = with_named(claimed(document, topology), topology)
    last = with_named(last, topology)
    claims = with_named(joined(claim.fields for claim in managers.values()), topology)
    cut = without(document, last, topology) or {}
    kept = union(with_named(claimed(cut, topology), topology), claims)
    cut = without(document, difference(everything, kept), topology) or {}
    gone = difference(everything, with_named(claimed(cut, topology), topology))
    left: dict[str, Any] = without(document, intersection(gone, last), topology) or {}
    return left


def _note(configuration: dict[str, Any]) -> str:
    """A configuration as kubectl notes it: JSON as Go writes it, with a line break at the end."""
    metadata = configuration.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    if annotations.pop(LAST_APPLIED, None) is not None:
        configuration = configuration | {"metadata": metadata | {"annotations": annotations}}
    text = msgspec.json.encode(configuration, order="sorted").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") + "\n"


# --- conflicts


def _conflict(conflicts: dict[Manager, FieldSet]) -> ApiError:
    found = [(manager, shown(path)) for manager, fields in conflicts.items() for path in paths(fields)]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_told(manager)}", "field": path}
        for manager, path in found
    ]
    return ApiError(409, "Conflict", _message(conflicts, found), causes=causes)


def _message(conflicts: dict[Manager, FieldSet], found: list[tuple[Manager, str]]) -> str:
    if len(found) == 1:
        ((manager, path),) = found
        return f"Apply failed with 1 conflict: conflict with {_told(manager)}: {path}"
    lines = []
    for manager in conflicts:
        lines.append(f"conflicts with {_told(manager)}:")
        lines += [f"- {path}" for owner, path in found if owner == manager]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)


def _told(manager: Manager) -> str:
    """A manager as conflicts name it."""
    text = msgspec.json.encode(manager.name).decode()
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return f"{text} using {manager.api_version}" if manager.operation == "Update" else text
