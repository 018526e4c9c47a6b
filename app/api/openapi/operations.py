"""OpenAPI operations: request bodies, responses, errors and parameters.

`app.api.openapi.paths` and `app.api.openapi.v3` compose them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from app.api.openapi.meta import Status
from app.api.openapi.schemas import GroupVersionKind, Schema, Schemas, ref
from app.machinery.shape import shape_of

ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("BadRequest", "The request cannot be read, or contradicts itself."),
    401: ("Unauthorized", "Nobody is known by these credentials."),
    403: ("Forbidden", "The user may not do this, or a rule forbids it."),
    404: ("NotFound", "There is no such object, or no such path."),
    405: ("MethodNotAllowed", "This cannot be done with this resource."),
    406: ("NotAcceptable", "The answer has no form that the client accepts."),
    409: ("Conflict", "Something else exists or has happened meanwhile."),
    410: ("Expired", "The version asked for is no longer kept: list anew."),
    413: ("RequestEntityTooLarge", "The body is larger than is taken."),
    415: ("UnsupportedMediaType", "The body is in no form that is taken."),
    422: ("Invalid", "The object or the options break a rule; the details say which."),
    429: ("TooManyRequests", "Not now: try again later."),
    500: ("InternalError", "A fault of the server's."),
    503: ("ServiceUnavailable", "The database is away: nothing was done."),
    504: ("Timeout", "The request took too long, or its outcome is not known."),
}
READING = (400, 401, 403, 404, 405, 406, 422, 429, 500, 503, 504)
LISTING = (*READING, 410)
WRITING = (*READING, 409, 413, 415)
DELETING = (*WRITING, 410)
_BODY_ONLY = {"apiVersion", "kind", "preconditions"}
_QUERY_TYPES = {"bool": {"type": "boolean"}, "integer": {"type": "integer"}}
_REASON_PHRASES = {200: "OK", 201: "Created", 202: "Accepted"}
_PATH_PARAMETERS = {
    "path": "What the pod is asked for.",
    "name": "Name of the object.",
    "namespace": "Namespace of the object.",
}


def operation(named: GroupVersionKind, action: str, operation_id: str, description: str) -> Schema:
    """Return the part that every operation has: id, tag, description and kind."""
    tag = group_words(named.group)
    return {
        "operationId": operation_id,
        "tags": [f"{tag}_{named.version}"],
        "description": description,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": named.extension,
    }


def group_words(group: str) -> str:
    """Return a group as operation ids and tags spell it: core, batch, rbacAuthorization."""
    first, *rest = group.removesuffix(".k8s.io").split(".")
    return (first + "".join(map(str.capitalize, rest))) or "core"


def operation_id(verb: str, named: GroupVersionKind, *, namespaced: bool = False, suffix: str = "") -> str:
    """Return the operationId as Kubernetes builds it, such as readCoreV1NamespacedPodStatus."""
    verb, collection = ("delete", "Collection") if verb == "deleteCollection" else (verb, "")
    group = group_words(named.group)
    scope = "Namespaced" if namespaced else ""
    return f"{verb}{group[0].upper()}{group[1:]}{named.version.capitalize()}{collection}{scope}{named.name}{suffix}"


def request_body(media: Mapping[str, Schema], *, required: bool = True) -> Schema:
    """Return the requestBody with these schemas by media type."""
    body = {"content": {each: {"schema": schema} for each, schema in media.items()}}
    return {"requestBody": body | ({"required": True} if required else {})}


def responses(schema: Schema, codes: Iterable[int], refused: Iterable[int], media: str = "application/json") -> Schema:
    """Return the responses of an operation: the success `codes` with this schema, and errors by reference."""
    content = {media: {"schema": schema}}
    good = {str(code): {"description": _REASON_PHRASES[code], "content": content} for code in codes}
    bad = {str(code): {"$ref": f"#/components/responses/{ERRORS[code][0]}"} for code in sorted(refused)}
    return {"responses": good | bad}


def error_responses(schemas: Schemas) -> Schema:
    """Return the error responses that operations refer to, by reason."""
    status = {"application/json": {"schema": ref(schemas.add(Status))}}
    return {reason: {"description": text, "content": status} for reason, text in ERRORS.values()}


def parameters(options: type[msgspec.Struct], but: str = "") -> list[Schema]:
    """Return query parameters, one for each field of an options struct."""
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


def path_parameters(path: str) -> list[Schema]:
    """Return the parameters for the placeholders in a path; each matches one segment."""
    segment = {"type": "string", "uniqueItems": True, "minLength": 1, "pattern": "^[^/%]+$"}
    return [
        {"name": name, "in": "path", "description": text, "required": True, "schema": segment}
        for name, text in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in path
    ]


def any_of(*schemas: Any) -> Schema:
    return {"anyOf": list(schemas)}
