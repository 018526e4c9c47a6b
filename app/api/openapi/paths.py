"""Paths and operations of the OpenAPI documents: what `app.api.resources.kubernetes` serves for a kind, and for what is like one.

kubectl reads here which kind a path is about (`explain`), whether a PATCH knows `fieldValidation` (if not, it refuses
to validate), and whether it takes strategic merges.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from app.api.http.accept import OBJECT_BODIES, PATCH_BODIES
from app.api.http.query import DeleteOptions, ListOptions, WriteOptions
from app.api.openapi.meta import PodLogOptions, Status, WatchEvent
from app.api.openapi.operations import (
    DELETING,
    LISTING,
    READING,
    WRITING,
    either,
    gives,
    operation,
    operation_id,
    parameters,
    path_parameters,
    takes,
)
from app.api.openapi.schemas import META, Named, Schema, Schemas, named, ref
from app.api.resources.discovery import Subresource, Virtual, subresources, verbs
from app.machinery.base import Kind

_PATCH, _JSON_PATCH = f"{META}.Patch", f"{META}.JSONPatch"
_TEXT = {"type": "string"}
_STREAMING = "application/json;stream=watch"
_ANSWERED_BY_STATUS = {"Binding", "Eviction"}  # are posted and kept nowhere


def of_kind(kind: Kind[Any], schemas: Schemas) -> dict[str, Schema]:
    """Every path of a kind with its operations; adds to `schemas` what they mention."""
    here = _Paths(
        named(kind), kind.plural, kind.type, schemas, namespaced=kind.namespaced, can=verbs(kind), stored_as=kind
    )
    return here.all(subresources(kind))


def of_virtual(virtual: Virtual, schemas: Schemas) -> dict[str, Schema]:
    """The same of what is answered on the spot."""
    if virtual.type is None:
        return {}
    about = Named(virtual.group, virtual.version, virtual.kind)
    return _Paths(about, virtual.plural, virtual.type, schemas, namespaced=virtual.namespaced, can=virtual.verbs).all(
        ()
    )


class _Paths:
    def __init__(
        self,
        about: Named,
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
        self._returns_deleted = stored_as is not None and stored_as.returns_deleted
        self._object = ref(schemas.of_resource(about, struct, listed="list" in can))
        self._list = {"$ref": f"{self._object['$ref']}List"}
        self._status = ref(schemas.of(Status))

    def all(self, parts: tuple[Subresource, ...]) -> dict[str, Schema]:
        about = self._about
        root = f"/apis/{about.group}/{about.version}" if about.group else f"/api/{about.version}"
        base = f"{root}/namespaces/{{namespace}}" if self._namespaced else root
        collection, single = f"{base}/{self._plural}", f"{base}/{self._plural}/{{name}}"
        found = {collection: self._collection(), single: self._single()}
        if self._namespaced and "list" in self._can:
            found[f"{root}/{self._plural}"] = {"get": self._listing("ForAllNamespaces")}
        for part in parts:
            found[f"{single}/{part.name}"] = self._part(part)
        return {
            path: operations | ({"parameters": given} if (given := path_parameters(path)) else {})
            for path, operations in found.items()
            if operations
        }

    def _collection(self) -> Schema:
        return _those(
            self._can,
            ("get", "list", self._listing),
            ("post", "create", self._creation),
            ("delete", "deletecollection", self._emptying),
        )

    def _single(self) -> Schema:
        return _those(
            self._can,
            ("get", "get", self._reading),
            ("put", "update", self._replacing),
            ("patch", "patch", self._patching),
            ("delete", "delete", self._deletion),
        )

    def _part(self, part: Subresource) -> Schema:
        """A subresource: another view of the object, or something to post or to read."""
        name = part.name.capitalize()
        if part.name == "log":
            return {"get": self._log()}
        if part.kind is not None and part.kind[2].endswith("Options"):
            return _those(
                part.verbs,
                ("get", "get", lambda: self._stream(part, "Get")),
                ("post", "create", lambda: self._stream(part, "Post")),
            )
        return _those(
            part.verbs,
            ("get", "get", lambda: self._reading(name)),
            ("put", "update", lambda: self._replacing(name)),
            ("patch", "patch", lambda: self._patching(name)),
            ("post", "create", lambda: self._posting(part)),
        )

    def _listing(self, suffix: str = "") -> Schema:
        answers = gives(self._list, (200,), LISTING)
        options = parameters(ListOptions)
        if self._stored:
            answers["responses"]["200"]["content"][_STREAMING] = {"schema": ref(self._schemas.of(WatchEvent))}
        else:
            options = [each for each in options if each["name"].endswith("Selector")]
        sentence = "List or watch objects of kind %s." if self._stored else "List objects of kind %s."
        return self._operation("list", "list", sentence, suffix) | {"parameters": options} | answers

    def _creation(self) -> Schema:
        return (
            self._operation("post", "create", "Create one %s." if self._stored else "Ask for one %s.")
            | takes(dict.fromkeys(OBJECT_BODIES, self._object))
            | {"parameters": parameters(WriteOptions, "force")}
            | gives(self._object, (200, 201, 202), WRITING)
        )

    def _emptying(self) -> Schema:
        options = parameters(DeleteOptions) + [each for each in parameters(ListOptions) if each["name"] != "watch"]
        return (
            self._operation("deletecollection", "deleteCollection", "Delete every %s that is selected.")
            | takes(dict.fromkeys(OBJECT_BODIES, ref(self._schemas.of(DeleteOptions))), required=False)
            | {"parameters": options}
            | gives(either(self._status, self._list), (200,), DELETING)
        )

    def _reading(self, part: str = "") -> Schema:
        return self._operation("get", "read", "Read one %s.", part) | gives(self._object, (200,), READING)

    def _replacing(self, part: str = "") -> Schema:
        return (
            self._operation("put", "replace", "Replace one %s.", part)
            | takes(dict.fromkeys(OBJECT_BODIES, self._object))
            | {"parameters": parameters(WriteOptions, "force")}
            | gives(self._object, (200, 201), WRITING)
        )

    def _patching(self, part: str = "") -> Schema:
        self._schemas.schemas.setdefault(_PATCH, {"type": "object", "description": "The parts that change."})
        self._schemas.schemas.setdefault(_JSON_PATCH, _STEPS)
        media = {each: ref(_JSON_PATCH if form == "json-patch" else _PATCH) for each, form in PATCH_BODIES.items()}
        return (
            self._operation("patch", "patch", "Change parts of one %s.", part)
            | takes(media)
            | {"parameters": parameters(WriteOptions)}
            | gives(self._object, (200, 201), WRITING)
        )

    def _deletion(self) -> Schema:
        answer = self._object if self._returns_deleted else either(self._status, self._object)
        return (
            self._operation("delete", "delete", "Delete one %s.")
            | takes(dict.fromkeys(OBJECT_BODIES, ref(self._schemas.of(DeleteOptions))), required=False)
            | {"parameters": parameters(DeleteOptions)}
            | gives(answer, (200, 202), WRITING)
        )

    def _log(self) -> Schema:
        answers = gives(_TEXT, (200,), READING, "text/plain")
        answers["responses"]["204"] = {"description": "Nothing yet: it is on no node."}
        return (
            self._operation("get", "read", "Read the log of one %s.", "Log")
            | {"parameters": parameters(PodLogOptions)}
            | answers
        )

    def _stream(self, part: Subresource, method: str) -> Schema:
        """Something that takes over the connection."""
        about = Named(*part.kind) if part.kind else self._about
        name = f"connect{method}"
        return (
            self._operation("connect", name, "Open a stream to one %s.", part.name.capitalize())
            | {"x-kubernetes-group-version-kind": about.mark, "parameters": parameters(part.type) if part.type else []}
            | gives(_TEXT, (200,), READING, "*/*")
        )

    def _posting(self, part: Subresource) -> Schema:
        """Something that is posted to an object: a binding, an eviction, the request for a token."""
        about = Named(*part.kind) if part.kind else self._about
        sent: Schema = {"type": "object"}
        if part.type is not None:
            sent = ref(self._schemas.of_resource(about, part.type, listed=False))
        return (
            self._operation("post", "create", f"Post a {about.name} to one %s.", part.name.capitalize())
            | {"x-kubernetes-group-version-kind": about.mark}
            | takes(dict.fromkeys(OBJECT_BODIES, sent))
            | {"parameters": parameters(WriteOptions, "force")}
            | gives(self._status if about.name in _ANSWERED_BY_STATUS else sent, (200, 201, 202), WRITING)
        )

    def _operation(self, action: str, verb: str, sentence: str, suffix: str = "") -> Schema:
        namespaced = self._namespaced and suffix != "ForAllNamespaces"
        name = operation_id(verb, self._about, namespaced=namespaced, suffix=suffix)
        return operation(self._about, action, name, sentence % self._about.name)


def _those(can: Iterable[str], *operations: tuple[str, str, Callable[[], Schema]]) -> Schema:
    """The operations, by HTTP method, whose verbs can be done."""
    return {method: make() for method, verb, make in operations if verb in can}


_STEPS: Schema = {
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
