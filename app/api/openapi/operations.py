"""OpenAPI operations: bodies, answers, refusals and parameters that they are made of.

`app.api.openapi.paths` and `app.api.openapi.roots` put them together.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from app.api.openapi.meta import Status
from app.api.openapi.schemas import Named, Schema, Schemas, ref
from app.machinery.shape import shape_of

REFUSALS: Mapping[int, tuple[str, str]] = {
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
_WORDS = {200: "OK", 201: "Created", 202: "Accepted"}
_PATH_PARAMETERS = {"name": "Name of the object.", "namespace": "Namespace of the object."}


def operation(named: Named, action: str, operation_id: str, description: str) -> Schema:
    """What every operation has: a name, a sentence, and which kind it is about."""
    tag = group_words(named.group)
    return {
        "operationId": operation_id,
        "tags": [f"{tag}_{named.version}"],
        "description": description,
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": named.mark,
    }


def group_words(group: str) -> str:
    """A group as operations and tags spell it: core, batch, rbacAuthorization."""
    first, *rest = group.removesuffix(".k8s.io").split(".")
    return (first + "".join(map(str.capitalize, rest))) or "core"


def operation_id(verb: str, named: Named, *, namespaced: bool = False, suffix: str = "") -> str:
    """As Kubernetes names operations: readCoreV1NamespacedPodStatus."""
    verb, collection = ("delete", "Collection") if verb == "deleteCollection" else (verb, "")
    group = group_words(named.group)
    scope = "Namespaced" if namespaced else ""
    return f"{verb}{group[0].upper()}{group[1:]}{named.version.capitalize()}{collection}{scope}{named.name}{suffix}"


def takes(media: Mapping[str, Schema], *, required: bool = True) -> Schema:
    """A body, in each of several media types."""
    body = {"content": {each: {"schema": schema} for each, schema in media.items()}}
    return {"requestBody": body | ({"required": True} if required else {})}


def gives(schema: Schema, codes: Iterable[int], refused: Iterable[int], media: str = "application/json") -> Schema:
    """Answers, good and bad."""
    content = {media: {"schema": schema}}
    good = {str(code): {"description": _WORDS[code], "content": content} for code in codes}
    bad = {str(code): {"$ref": f"#/components/responses/{REFUSALS[code][0]}"} for code in sorted(refused)}
    return {"responses": good | bad}


def refusals(schemas: Schemas) -> Schema:
    """The refusals that operations refer to."""
    status = {"application/json": {"schema": ref(schemas.of(Status))}}
    return {reason: {"description": text, "content": status} for reason, text in REFUSALS.values()}


def parameters(options: type[msgspec.Struct], but: str = "") -> list[Schema]:
    """Query parameters, one for each field of a record of options."""
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
    """Those that stand in braces in a path. A name is one segment of it."""
    segment = {"type": "string", "uniqueItems": True, "minLength": 1, "pattern": "^[^/%]+$"}
    return [
        {"name": name, "in": "path", "description": text, "required": True, "schema": segment}
        for name, text in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in path
    ]


def either(*schemas: Any) -> Schema:
    return {"anyOf": list(schemas)}
