"""Paths and operations of the OpenAPI documents: what `app.api.routes` serves for a kind.

kubectl reads here which kind a path is about (`explain`), whether a PATCH knows `fieldValidation` (if not, it refuses
to validate), and whether it takes strategic merges.
"""

from typing import Any

import msgspec

from app.api.accept import OBJECT_BODIES, PATCH_BODIES
from app.api.discovery import STATUS, Subresource, subresources
from app.api.openapi_schemas import META, Schema, Schemas, Status, group_version_kind
from app.api.query import DeleteOptions, ListOptions, WriteOptions
from app.kinds.base import Kind
from app.kinds.shape import shape_of

_BODY_ONLY = {"apiVersion", "kind", "preconditions"}
_PATCH = f"{META}.Patch"


def paths(kind: Kind[Any], schemas: Schemas) -> dict[str, Schema]:
    """Every path of a kind with its operations; adds to `schemas` what they mention."""
    return _Paths(kind, schemas).all()


class _Paths:
    def __init__(self, kind: Kind[Any], schemas: Schemas) -> None:
        self._kind = kind
        self._object = _ref(schemas.of_kind(kind))
        self._list = {"$ref": f"{self._object['$ref']}List"}
        self._status = _ref(schemas.of(Status))
        self._delete = _ref(schemas.of(DeleteOptions))
        schemas.schemas.setdefault(_PATCH, {"type": "object", "description": "A change to an object."})

    def all(self) -> dict[str, Schema]:
        kind = self._kind
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        base = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
        collection, single = f"{base}/{kind.plural}", f"{base}/{kind.plural}/{{name}}"
        found = {collection: self._collection(), single: self._single()}
        if kind.namespaced:
            found[f"{root}/{kind.plural}"] = {"get": self._listing("ForAllNamespaces")}
        for part in subresources(kind):
            found[f"{single}/{part.name}"] = self._part(part)
        return {path: operations | {"parameters": _path_parameters(path)} for path, operations in found.items()}

    def _collection(self) -> Schema:
        return {
            "get": self._listing(),
            "post": self._operation("post", "create")
            | _takes(self._object, OBJECT_BODIES)
            | _writes()
            | self._gives(201),
            "delete": self._operation("deletecollection", "deleteCollection")
            | _takes(self._delete, OBJECT_BODIES, required=False)
            | {"parameters": _parameters(DeleteOptions) + _parameters(ListOptions, but="dryRun")}
            | _gives(self._status, 200),
        }

    def _single(self) -> Schema:
        return {
            "get": self._operation("get", "read") | self._gives(200),
            "put": self._operation("put", "replace")
            | _takes(self._object, OBJECT_BODIES)
            | _writes()
            | self._gives(200, 201),
            "patch": self._operation("patch", "patch")
            | _takes(_ref(_PATCH), PATCH_BODIES)
            | _writes("")
            | self._gives(200, 201),
            "delete": self._operation("delete", "delete")
            | _takes(self._delete, OBJECT_BODIES, required=False)
            | {"parameters": _parameters(DeleteOptions)}
            | _gives(self._status, 200, 202),
        }

    def _part(self, part: Subresource) -> Schema:
        single, name = self._single(), part.name.capitalize()
        if part.verbs == STATUS.verbs:
            return {
                method: single[method] | {"operationId": f"{single[method]['operationId']}{name}"}
                for method in ("get", "put", "patch")
            }
        return {
            method: self._special(part, method)
            for verb, method in (("get", "get"), ("create", "post"))
            if verb in part.verbs
        }

    def _special(self, part: Subresource, method: str) -> Schema:
        """A subresource that is no view of the object: a log, a stream, or something to post."""
        group, version, name = part.kind or (self._kind.group, self._kind.version, self._kind.name)
        connects = name.endswith("Options")
        action, verb = ("connect", f"connect{method.capitalize()}") if connects else (method, _VERBS[method])
        operation = self._operation(action, verb, part.name.capitalize())
        operation["x-kubernetes-group-version-kind"] = {"group": group, "kind": name, "version": version}
        if method == "post" and not connects:
            return operation | _takes({"type": "object"}, OBJECT_BODIES) | _writes() | _gives({"type": "object"}, 201)
        return operation | {"responses": {"200": {"description": "OK", "content": {"text/plain": _TEXT}}}}

    def _listing(self, suffix: str = "") -> Schema:
        operation = self._operation("list", "list", suffix)
        return operation | {"parameters": _parameters(ListOptions)} | _gives(self._list, 200)

    def _operation(self, action: str, verb: str, suffix: str = "") -> Schema:
        kind = self._kind
        group = kind.group.partition(".")[0] or "core"
        scope = "Namespaced" if kind.namespaced and suffix != "ForAllNamespaces" else ""
        prefix, collection = ("delete", "Collection") if verb == "deleteCollection" else (verb, "")
        named = f"{prefix}{group.capitalize()}{kind.version.capitalize()}{collection}{scope}{kind.name}{suffix}"
        return {
            "operationId": named,
            "tags": [f"{group}_{kind.version}"],
            "description": _SENTENCES[action].format(kind=kind.name),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": group_version_kind(kind),
        }

    def _gives(self, *codes: int) -> Schema:
        return _gives(self._object, *codes)


_VERBS = {"get": "read", "post": "create"}
_TEXT = {"schema": {"type": "string"}}
_SENTENCES = {
    "list": "List or watch objects of kind {kind}.",
    "post": "Create a {kind}, or what belongs to one.",
    "deletecollection": "Delete every {kind} that is selected.",
    "get": "Read one {kind}.",
    "put": "Replace one {kind}.",
    "patch": "Change parts of one {kind}.",
    "delete": "Delete one {kind}.",
    "connect": "Open a stream to one {kind}.",
}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _takes(schema: Schema, media: Any, *, required: bool = True) -> Schema:
    body = {"content": {each: {"schema": schema} for each in media}}
    return {"requestBody": body | ({"required": True} if required else {})}


def _gives(schema: Schema, *codes: int) -> Schema:
    words = {200: "OK", 201: "Created", 202: "Accepted"}
    content = {"application/json": {"schema": schema}}
    return {"responses": {str(code): {"description": words[code], "content": content} for code in codes}}


def _writes(but: str = "force") -> Schema:
    return {"parameters": _parameters(WriteOptions, but)}


def _parameters(options: type[msgspec.Struct], but: str = "") -> list[Schema]:
    return [
        {
            "name": field.name,
            "in": "query",
            "description": field.description,
            "schema": _QUERY_TYPES.get(field.shape.sort, {"type": "string"}) | {"uniqueItems": True},
        }
        for field in shape_of(options).fields.values()
        if field.name not in _BODY_ONLY | {but}
    ]


_QUERY_TYPES = {"bool": {"type": "boolean"}, "integer": {"type": "integer"}}


def _path_parameters(path: str) -> list[Schema]:
    about = {"name": "Name of the object.", "namespace": "Namespace of the object."}
    return [
        {"name": name, "in": "path", "description": text, "required": True, "schema": {"type": "string"}}
        for name, text in about.items()
        if f"{{{name}}}" in path
    ]
