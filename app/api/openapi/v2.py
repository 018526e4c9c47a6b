"""OpenAPI version 2: GET /openapi/v2, all documents of version 3 merged into one Swagger 2.0 document, as JSON.

kubectl 1.27 and 1.28 ask for a protobuf form before they read version 3, and fail on a 404 or on JSON. They do not read its
content, so it is empty.
"""

from collections.abc import Mapping
from typing import Any

from app.api.http import static_documents
from app.api.http.content_negotiation import OPENAPI_V2, ResponseFormat
from app.api.http.static_documents import Document
from app.api.openapi.v3 import OpenApi

EMPTY = static_documents.make_document(b"", OPENAPI_V2)
_METHODS = ("get", "put", "post", "patch", "delete")


class OpenApiV2:
    """The document, encoded on first request."""

    def __init__(self, newest: OpenApi) -> None:
        self._newest = newest
        self._made: Document | None = None

    def is_made(self, wanted: ResponseFormat) -> bool:
        return wanted.form == "openapi-v2" or self._made is not None

    def document(self, wanted: ResponseFormat) -> Document:
        if wanted.form == "openapi-v2":
            return EMPTY
        if self._made is None:
            self._made = static_documents.encode_document(self.content())
        return self._made

    def content(self) -> dict[str, Any]:
        """Return the document before encoding."""
        whole: dict[str, Any] = {"paths": {}, "definitions": {}, "responses": {}}
        info = {}
        for _, content in self._newest.contents():
            info = content["info"]
            components = content["components"]
            whole["paths"] |= {path: _path(item) for path, item in content["paths"].items()}
            whole["definitions"] |= {name: _definition(each) for name, each in components["schemas"].items()}
            whole["responses"] |= {name: _response(each) for name, each in components["responses"].items()}
        token = {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer."}
        return {
            "swagger": "2.0",
            "info": info,
            **{name: dict(sorted(part.items())) for name, part in whole.items()},
            "securityDefinitions": {"BearerToken": token},
            "security": [{"BearerToken": []}],
        }


def _path(item: Mapping[str, Any]) -> dict[str, Any]:
    path: dict[str, Any] = {method: _operation(item[method]) for method in _METHODS if method in item}
    if "parameters" in item:
        path["parameters"] = [_parameter(each) for each in item["parameters"]]
    return path


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    answers = operation["responses"]
    kept = {name: each for name, each in operation.items() if name not in ("requestBody", "parameters", "responses")}
    given = [_parameter(each) for each in operation.get("parameters", ())]
    body = operation.get("requestBody")
    if body is not None:
        kept["consumes"] = list(body["content"])
        schema = _schema(next(iter(body["content"].values()))["schema"])
        given.insert(0, {"name": "body", "in": "body", "required": body.get("required", False), "schema": schema})
    kept["produces"] = sorted({media for each in answers.values() for media in each.get("content", ())})
    if given:
        kept["parameters"] = given
    return kept | {"responses": {code: _response(each) for code, each in answers.items()}}


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a path or query parameter: version 2 has its type inline."""
    return {**{name: each for name, each in parameter.items() if name != "schema"}, **parameter["schema"]}


def _response(response: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in response:
        return {"$ref": response["$ref"].replace("#/components/responses/", "#/responses/")}
    described = {"description": response["description"]}
    contents = [_schema(each["schema"]) for each in response.get("content", {}).values()]
    return described | {"schema": contents[0]} if contents else described


def _definition(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a schema at the root. Of a custom kind that takes any field no field is named: kubectl would refuse all others."""
    if not schema.get("x-kubernetes-preserve-unknown-fields"):
        return _schema(schema)
    return {name: schema[name] for name in ("type", "x-kubernetes-group-version-kind") if name in schema}


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a schema: other reference paths, and no unions, which become string or the first alternative."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/components/schemas/", "#/definitions/")}
    kept = {name: each for name, each in schema.items() if name not in ("allOf", "anyOf", "oneOf", "nullable")}
    if len(schema.get("allOf", ())) == 1:
        kept |= _schema(schema["allOf"][0])
    if "anyOf" in schema and "type" not in schema:
        kept |= _schema(schema["anyOf"][0])
    if "oneOf" in schema and "type" not in schema:
        kept["type"] = "string"
    for name in ("items", "additionalProperties"):
        if name in kept:
            kept[name] = _schema(kept[name])
    if "properties" in kept:
        kept["properties"] = {name: _schema(each) for name, each in kept["properties"].items()}
    return kept
