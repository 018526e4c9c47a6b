"""OpenAPI paths: the operations that `app.api.resources.kubernetes` serves for a kind or an ephemeral resource,
and those of discovery and the version.

`app.api.openapi.v3` collects them. kubectl reads which kind a path belongs to (`explain`), whether a PATCH has
`fieldValidation` (if not, it refuses to validate), and whether it accepts strategic merge patches.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from app.api.http.content_negotiation import CUSTOM_BODIES, CUSTOM_PATCH_BODIES, OBJECT_BODIES, PATCH_BODIES
from app.api.http.query import DeleteOptions, ListOptions, WriteOptions
from app.api.openapi.meta import (
    APIGroup,
    APIGroupList,
    APIResourceList,
    APIVersions,
    PodLogOptions,
    Status,
    WatchEvent,
)
from app.api.openapi.operations import (
    DELETING,
    LISTING,
    READING,
    WRITING,
    any_of,
    group_words,
    operation,
    operation_id,
    parameters,
    path_parameters,
    request_body,
    responses,
)
from app.api.openapi.schemas import META, GroupVersionKind, Info, Schema, Schemas, group_version_kind, ref
from app.api.resources.discovery import EphemeralResource, Subresource, subresources, verbs
from app.machinery.base import Kind

_PATCH, _JSON_PATCH = f"{META}.Patch", f"{META}.JSONPatch"
_TEXT = {"type": "string"}
_STREAMING = "application/json;stream=watch"
_ANSWERED_BY_STATUS = {"Binding", "Eviction"}  # are posted and kept nowhere


def paths_of_kind(kind: Kind[Any], schemas: Schemas) -> dict[str, Schema]:
    """Return every path of a kind with its operations; adds the referenced schemas to `schemas`."""
    here = _Paths(
        group_version_kind(kind),
        kind.plural,
        kind.type,
        schemas,
        namespaced=kind.namespaced,
        can=verbs(kind),
        stored_as=kind,
    )
    return here.all(subresources(kind))


def paths_of_ephemeral(virtual: EphemeralResource, schemas: Schemas) -> dict[str, Schema]:
    """Return the paths of an ephemeral resource; adds the referenced schemas to `schemas`."""
    if virtual.type is None:
        return {}
    about = GroupVersionKind(virtual.group, virtual.version, virtual.kind)
    return _Paths(about, virtual.plural, virtual.type, schemas, namespaced=virtual.namespaced, can=virtual.verbs).all(
        ()
    )


class _Paths:
    def __init__(
        self,
        about: GroupVersionKind,
        plural: str,
        struct: type[msgspec.Struct],
        schemas: Schemas,
        *,
        namespaced: bool,
        can: tuple[str, ...],
        stored_as: Kind[Any] | None = None,
    ) -> None:
        self._about, self._plural, self._namespaced, self._can = about, plural, namespaced, can
        self._stored, self._schemas = stored_as is not None, schemas
        is_custom = stored_as is not None and bool(stored_as.definition)
        self._bodies = tuple(CUSTOM_BODIES if is_custom else OBJECT_BODIES)
        self._patches = CUSTOM_PATCH_BODIES if is_custom else PATCH_BODIES
        self._returns_deleted = stored_as is not None and stored_as.returns_deleted
        self._object = ref(schemas.add_resource(about, struct, listed="list" in can))
        self._list = {"$ref": f"{self._object['$ref']}List"}
        self._status = ref(schemas.add(Status))

    def all(self, parts: tuple[Subresource, ...]) -> dict[str, Schema]:
        about = self._about
        root = f"/apis/{about.group}/{about.version}" if about.group else f"/api/{about.version}"
        base = f"{root}/namespaces/{{namespace}}" if self._namespaced else root
        collection, single = f"{base}/{self._plural}", f"{base}/{self._plural}/{{name}}"
        found = {collection: self._collection_operations(), single: self._object_operations()}
        if self._namespaced and "list" in self._can:
            found[f"{root}/{self._plural}"] = {"get": self._list_operation("ForAllNamespaces")}
        for part in parts:
            found[f"{single}/{part.name}"] = self._subresource_operations(part)
            if part.name == "proxy":
                found[f"{single}/proxy/{{path}}"] = self._proxy_operations(part, "WithPath")
        return {
            path: operations | ({"parameters": given} if (given := path_parameters(path)) else {})
            for path, operations in found.items()
            if operations
        }

    def _collection_operations(self) -> Schema:
        return _supported_operations(
            self._can,
            ("get", "list", self._list_operation),
            ("post", "create", self._create_operation),
            ("delete", "deletecollection", self._delete_collection_operation),
        )

    def _object_operations(self) -> Schema:
        return _supported_operations(
            self._can,
            ("get", "get", self._get_operation),
            ("put", "update", self._put_operation),
            ("patch", "patch", self._patch_operation),
            ("delete", "delete", self._delete_operation),
        )

    def _subresource_operations(self, part: Subresource) -> Schema:
        """Return the operations of a subresource."""
        name = part.name.capitalize()
        if part.name == "log":
            return {"get": self._log_operation()}
        if part.name == "proxy":
            return self._proxy_operations(part)
        if part.kind is not None and part.kind[2].endswith("Options"):
            return _supported_operations(
                part.verbs,
                ("get", "get", lambda: self._connect_operation(part, "Get")),
                ("post", "create", lambda: self._connect_operation(part, "Post")),
            )
        if part.name == "scale":
            return self._scale_operations(part)
        return _supported_operations(
            part.verbs,
            ("get", "get", lambda: self._get_operation(name)),
            ("put", "update", lambda: self._put_operation(name)),
            ("patch", "patch", lambda: self._patch_operation(name)),
            ("post", "create", lambda: self._post_operation(part)),
        )

    def _proxy_operations(self, part: Subresource, suffix: str = "") -> Schema:
        """The operations of the proxy: every method, of which discovery has no verb for some."""
        methods = ("get", "put", "post", "delete", "options", "head", "patch")
        return {each: self._connect_operation(part, each.capitalize(), suffix) for each in methods}

    def _scale_operations(self, part: Subresource) -> Schema:
        """The operations of a subresource with a body of its own."""
        about = GroupVersionKind(*part.kind) if part.kind else self._about
        mine, self._object = self._object, self._schemas_ref(about, part)
        operations = _supported_operations(
            part.verbs,
            ("get", "get", lambda: self._get_operation("Scale")),
            ("put", "update", lambda: self._put_operation("Scale")),
            ("patch", "patch", lambda: self._patch_operation("Scale")),
        )
        self._object = mine
        return {
            method: each | {"x-kubernetes-group-version-kind": about.extension} for method, each in operations.items()
        }

    def _schemas_ref(self, about: GroupVersionKind, part: Subresource) -> Schema:
        return ref(self._schemas.add_resource(about, part.type, listed=False)) if part.type else self._object

    def _list_operation(self, suffix: str = "") -> Schema:
        answers = responses(self._list, (200,), LISTING)
        options = parameters(ListOptions)
        if self._stored:
            answers["responses"]["200"]["content"][_STREAMING] = {"schema": ref(self._schemas.add(WatchEvent))}
        else:
            options = [each for each in options if each["name"].endswith("Selector")]
        sentence = "List or watch objects of kind %s." if self._stored else "List objects of kind %s."
        return self._operation("list", "list", sentence, suffix) | {"parameters": options} | answers

    def _create_operation(self) -> Schema:
        return (
            self._operation("post", "create", "Create one %s." if self._stored else "Ask for one %s.")
            | request_body(dict.fromkeys(self._bodies, self._object))
            | {"parameters": parameters(WriteOptions, "force")}
            | responses(self._object, (200, 201, 202), WRITING)
        )

    def _delete_collection_operation(self) -> Schema:
        options = parameters(DeleteOptions) + [each for each in parameters(ListOptions) if each["name"] != "watch"]
        return (
            self._operation("deletecollection", "deleteCollection", "Delete every %s that is selected.")
            | request_body(dict.fromkeys(self._bodies, ref(self._schemas.add(DeleteOptions))), required=False)
            | {"parameters": options}
            | responses(any_of(self._status, self._list), (200,), DELETING)
        )

    def _get_operation(self, part: str = "") -> Schema:
        return self._operation("get", "read", "Read one %s.", part) | responses(self._object, (200,), READING)

    def _put_operation(self, part: str = "") -> Schema:
        return (
            self._operation("put", "replace", "Replace one %s.", part)
            | request_body(dict.fromkeys(self._bodies, self._object))
            | {"parameters": parameters(WriteOptions, "force")}
            | responses(self._object, (200, 201), WRITING)
        )

    def _patch_operation(self, part: str = "") -> Schema:
        self._schemas.schemas.setdefault(_PATCH, {"type": "object", "description": "The parts that change."})
        self._schemas.schemas.setdefault(_JSON_PATCH, _JSON_PATCH_SCHEMA)
        media = {each: ref(_JSON_PATCH if form == "json-patch" else _PATCH) for each, form in self._patches.items()}
        return (
            self._operation("patch", "patch", "Change parts of one %s.", part)
            | request_body(media)
            | {"parameters": parameters(WriteOptions)}
            | responses(self._object, (200, 201), WRITING)
        )

    def _delete_operation(self) -> Schema:
        answer = self._object if self._returns_deleted else any_of(self._status, self._object)
        return (
            self._operation("delete", "delete", "Delete one %s.")
            | request_body(dict.fromkeys(self._bodies, ref(self._schemas.add(DeleteOptions))), required=False)
            | {"parameters": parameters(DeleteOptions)}
            | responses(answer, (200, 202), WRITING)
        )

    def _log_operation(self) -> Schema:
        answers = responses(_TEXT, (200,), READING, "text/plain")
        answers["responses"]["204"] = {"description": "Nothing yet: it is on no node."}
        return (
            self._operation("get", "read", "Read the log of one %s.", "Log")
            | {"parameters": parameters(PodLogOptions)}
            | answers
        )

    def _connect_operation(self, part: Subresource, method: str, suffix: str = "") -> Schema:
        """Return the operation of a subresource that is a connection: exec, attach, portforward, proxy."""
        about = GroupVersionKind(*part.kind) if part.kind else self._about
        name = f"connect{method}"
        return (
            self._operation("connect", name, "Open a stream to one %s.", part.name.capitalize() + suffix)
            | {
                "x-kubernetes-group-version-kind": about.extension,
                "parameters": parameters(part.type) if part.type else [],
            }
            | responses(_TEXT, (200,), READING, "*/*")
        )

    def _post_operation(self, part: Subresource) -> Schema:
        """Return the operation that posts to a subresource: Binding, Eviction, TokenRequest."""
        about = GroupVersionKind(*part.kind) if part.kind else self._about
        sent: Schema = {"type": "object"}
        if part.type is not None:
            sent = ref(self._schemas.add_resource(about, part.type, listed=False))
        return (
            self._operation("post", "create", f"Post a {about.name} to one %s.", part.name.capitalize())
            | {"x-kubernetes-group-version-kind": about.extension}
            | request_body(dict.fromkeys(self._bodies, sent))
            | {"parameters": parameters(WriteOptions, "force")}
            | responses(self._status if about.name in _ANSWERED_BY_STATUS else sent, (200, 201, 202), WRITING)
        )

    def _operation(self, action: str, verb: str, sentence: str, suffix: str = "") -> Schema:
        namespaced = self._namespaced and suffix != "ForAllNamespaces"
        name = operation_id(verb, self._about, namespaced=namespaced, suffix=suffix)
        return operation(self._about, action, name, sentence % self._about.name)


def _supported_operations(can: Iterable[str], *operations: tuple[str, str, Callable[[], Schema]]) -> Schema:
    """Return the operations whose verbs are supported, by HTTP method."""
    return {method: make() for method, verb, make in operations if verb in can}


_JSON_PATCH_SCHEMA: Schema = {
    "type": "array",
    "description": "Steps that change an object, as RFC 6902 has them.",
    "items": {
        "type": "object",
        "description": "One step.",
        "required": ["op", "path"],
        "properties": {
            "op": {"type": "string", "description": "add, remove, replace, move, copy or test."},
            "path": {"type": "string", "description": "Where, as a JSON pointer."},
            "from": {"type": "string", "description": "Where from, of move and copy."},
            "value": {"description": "What, of add, replace and test."},
        },
    },
}


# --- discovery and the version

ROOT_NAMES = ("api", "apis", "version")
"""OpenAPI documents that belong to no group."""


def root_paths(name: str, groups: Sequence[tuple[str, str]], schemas: Schemas) -> dict[str, Schema]:
    """Return the paths of one of `ROOT_NAMES`."""
    if name == "version":
        return {
            "/version/": _discovery_operation(
                "getCodeVersion", "version", "Read the version of the server.", Info, schemas
            )
        }
    if name == "api":
        return {
            "/api/": _discovery_operation(
                "getCoreAPIVersions", "core", "List the versions of the core group.", APIVersions, schemas
            )
        }
    found = {"/apis/": _discovery_operation("getAPIVersions", "apis", "List the groups.", APIGroupList, schemas)}
    for group in sorted({group for group, _ in groups if group}):
        word = group_words(group)
        name = f"get{word[0].upper()}{word[1:]}APIGroup"
        found[f"/apis/{group}/"] = _discovery_operation(
            name, word, f"Read the versions of the group {group}.", APIGroup, schemas
        )
    return found


def resource_list_path(group: str, version: str, schemas: Schemas) -> dict[str, Schema]:
    """Return the path that lists the resources of one group and version."""
    word = group_words(group)
    path = f"/apis/{group}/{version}/" if group else f"/api/{version}/"
    name = f"get{word[0].upper()}{word[1:]}{version.capitalize()}APIResources"
    return {path: _discovery_operation(name, f"{word}_{version}", "List the resources.", APIResourceList, schemas)}


def _discovery_operation(
    name: str, tag: str, text: str, type_: type[msgspec.Struct], schemas: Schemas
) -> dict[str, Any]:
    answers = responses(ref(schemas.add(type_)), (200,), READING)
    return {"get": {"operationId": name, "tags": [tag], "description": text, **answers}}
