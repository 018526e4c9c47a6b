"""Protobuf messages that structs keep as plain documents, by the field's name: their fields' numbers are declared here.

`protobuf` decodes them and `protobuf_encoding` encodes them. The longest is JSONSchemaProps, the schema in a
CustomResourceDefinition. Numbers are those of Kubernetes' generated.proto, which never change: a new field is a new line here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from app.machinery.shape import Field, Shape, Sort

OMITS_EMPTY = "omits_empty"  # mark of a field that Go always writes in protobuf, and leaves out of JSON if it is empty
_MARKED: Mapping[str, bool] = MappingProxyType({OMITS_EMPTY: True})

# Messages that are one JSON value of several types.
JSON_VALUE = Shape("any", "v1.JSON")
SCHEMA_OR_ARRAY = Shape("any", "v1.JSONSchemaPropsOrArray")
SCHEMA_OR_BOOL = Shape("any", "v1.JSONSchemaPropsOrBool")
SCHEMA_OR_STRINGS = Shape("any", "v1.JSONSchemaPropsOrStringArray")

SCHEMA = Shape("struct", "v1.JSONSchemaProps")
_REFERENCE = Shape("struct", "v1.TypedLocalObjectReference")
_RESPONDER = Shape("struct", "v1.EvictionResponder")
_RULE = Shape("struct", "v1.ValidationRule")
_DOCS = Shape("struct", "v1.ExternalDocumentation")
_STRING, _FLAG, _COUNT = Shape("string", "string"), Shape("bool", "bool"), Shape("integer", "int64")


def _list_of(item: Shape) -> Shape:
    return Shape("list", f"[]{item.go}", item=item)


def _map_of(item: Shape) -> Shape:
    return Shape("map", f"map[string]{item.go}", item=item)


def _declare(shape: Shape, fields: Iterable[tuple[int, str, Shape]], pointers: frozenset[str] = frozenset()) -> None:
    plain: tuple[Sort, ...] = ("string", "bool")
    for number, name, type_ in fields:
        extra = _MARKED if type_.sort in plain and name not in pointers else {}
        shape.fields[name] = Field(name, name, type_, number=number, extra=extra)


_declare(
    SCHEMA,
    (
        (1, "id", _STRING),
        (2, "$schema", _STRING),
        (3, "$ref", _STRING),
        (4, "description", _STRING),
        (5, "type", _STRING),
        (6, "format", _STRING),
        (7, "title", _STRING),
        (8, "default", JSON_VALUE),
        (9, "maximum", Shape("number", "float64")),
        (10, "exclusiveMaximum", _FLAG),
        (11, "minimum", Shape("number", "float64")),
        (12, "exclusiveMinimum", _FLAG),
        (13, "maxLength", _COUNT),
        (14, "minLength", _COUNT),
        (15, "pattern", _STRING),
        (16, "maxItems", _COUNT),
        (17, "minItems", _COUNT),
        (18, "uniqueItems", _FLAG),
        (19, "multipleOf", Shape("number", "float64")),
        (20, "enum", _list_of(JSON_VALUE)),
        (21, "maxProperties", _COUNT),
        (22, "minProperties", _COUNT),
        (23, "required", _list_of(_STRING)),
        (24, "items", SCHEMA_OR_ARRAY),
        (25, "allOf", _list_of(SCHEMA)),
        (26, "oneOf", _list_of(SCHEMA)),
        (27, "anyOf", _list_of(SCHEMA)),
        (28, "not", SCHEMA),
        (29, "properties", _map_of(SCHEMA)),
        (30, "additionalProperties", SCHEMA_OR_BOOL),
        (31, "patternProperties", _map_of(SCHEMA)),
        (32, "dependencies", _map_of(SCHEMA_OR_STRINGS)),
        (33, "additionalItems", SCHEMA_OR_BOOL),
        (34, "definitions", _map_of(SCHEMA)),
        (35, "externalDocs", _DOCS),
        (36, "example", JSON_VALUE),
        (37, "nullable", _FLAG),
        (38, "x-kubernetes-preserve-unknown-fields", _FLAG),
        (39, "x-kubernetes-embedded-resource", _FLAG),
        (40, "x-kubernetes-int-or-string", _FLAG),
        (41, "x-kubernetes-list-map-keys", _list_of(_STRING)),
        (42, "x-kubernetes-list-type", _STRING),
        (43, "x-kubernetes-map-type", _STRING),
        (44, "x-kubernetes-validations", _list_of(_RULE)),
    ),
    frozenset({"$ref", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-map-type"}),
)
_declare(
    _RULE,
    (
        (1, "rule", _STRING),
        (2, "message", _STRING),
        (3, "messageExpression", _STRING),
        (4, "reason", _STRING),
        (5, "fieldPath", _STRING),
        (6, "optionalOldSelf", _FLAG),
    ),
    frozenset({"rule", "reason", "optionalOldSelf"}),
)
_declare(_DOCS, ((1, "description", _STRING), (2, "url", _STRING)))
_declare(
    _REFERENCE, ((1, "apiGroup", _STRING), (2, "kind", _STRING), (3, "name", _STRING)), frozenset({"kind", "name"})
)
_declare(_RESPONDER, ((1, "name", _STRING), (2, "priority", Shape("integer", "int32"))))

PLAIN: Mapping[str, Shape] = {
    "dataSource": _REFERENCE,
    "evictionResponders": _list_of(_RESPONDER),
    "openAPIV3Schema": SCHEMA,
}
