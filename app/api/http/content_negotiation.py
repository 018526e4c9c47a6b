"""Content negotiation: the form of a response by Accept, and of a request body by Content-Type.

Routes call this once a request. Clients give media-type parameters in any order, so headers are parsed, never compared.
Responses are protobuf only for clients that accept nothing else: objects are stored as JSON, and most who prefer protobuf also
read JSON.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from app.machinery.errors import ApiError

LONGEST = 8 << 10  # characters of an Accept header; results are cached, so that memory stays bounded
Form = Literal["json", "protobuf", "table", "partial", "partial-list", "discovery", "openapi-v2"]
BodyFormat = Literal[
    "json", "yaml", "protobuf", "json-patch", "merge-patch", "strategic-merge-patch", "apply-patch"
]  # fmt: skip


class ResponseFormat(NamedTuple):
    """The negotiated form of a response, and its version ("" for forms without versions)."""

    form: Form
    version: str = ""

    @property
    def content_type(self) -> str:
        """The Content-Type of the response; clients recognise aggregated discovery by nothing else."""
        if self.form == "discovery":
            return f"application/json;g=apidiscovery.k8s.io;v={self.version};as=APIGroupDiscoveryList"
        if self.form == "openapi-v2":
            return OPENAPI_V2
        if self.form == "protobuf":
            return PROTOBUF
        return "application/json"


class _Clause(NamedTuple):
    media: str
    parameters: Mapping[str, str]

    @property
    def quality(self) -> float:
        try:
            return min(max(float(self.parameters.get("q", "1")), 0.0), 1.0)
        except ValueError:
            return 0.0


JSON = ResponseFormat("json")
PROTOBUF = "application/vnd.kubernetes.protobuf"
# The `@` of the request's form may not be repeated: as a response it is no valid media type.
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_OPENAPI_V2_ASKED = {"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", OPENAPI_V2}
_JSON_MEDIA = {"application/json", "application/*", "*/*"}
_CONVERTED: Mapping[tuple[str, str], tuple[Form, tuple[str, ...]]] = {
    ("meta.k8s.io", "Table"): ("table", ("v1", "v1beta1")),
    ("meta.k8s.io", "PartialObjectMetadata"): ("partial", ("v1", "v1beta1")),
    ("meta.k8s.io", "PartialObjectMetadataList"): ("partial-list", ("v1", "v1beta1")),
    ("apidiscovery.k8s.io", "APIGroupDiscoveryList"): ("discovery", ("v2", "v2beta1")),
}

PLAIN: frozenset[Form] = frozenset({"json"})
OBJECT: frozenset[Form] = frozenset({"json", "table", "partial", "partial-list"})
BUILT_IN_OBJECT: frozenset[Form] = OBJECT | {"protobuf"}
DISCOVERY: frozenset[Form] = frozenset({"json", "discovery"})
OPENAPI: frozenset[Form] = frozenset({"json", "openapi-v2"})


@lru_cache(maxsize=512)
def negotiate_media_type(accept: str | None, offered: frozenset[Form] = OBJECT) -> ResponseFormat:
    """Return the best of the `offered` forms that `accept` allows; JSON for a missing or empty header. 406 if none fits."""
    if not accept or not accept.strip():
        return JSON
    if len(accept) > LONGEST:
        raise ApiError(406, "NotAcceptable", f"an Accept header may have at most {LONGEST} characters")
    clauses = [clause for clause in _parse_accept(accept) if clause.quality > 0]
    matched = map(_match_clause, sorted(clauses, key=lambda each: -each.quality))
    forms = [form for form in matched if form is not None and form.form in offered]
    if not forms:
        media = ", ".join(["application/json", *([PROTOBUF] if "protobuf" in offered else [])])
        raise ApiError(406, "NotAcceptable", f"only the following media types are accepted: {media}")
    return next((form for form in forms if form.form != "protobuf"), forms[0])


def _match_clause(clause: _Clause) -> ResponseFormat | None:
    if clause.media in _OPENAPI_V2_ASKED:
        return ResponseFormat("openapi-v2")
    if clause.media == PROTOBUF and "as" not in clause.parameters:
        return ResponseFormat("protobuf")
    if clause.media not in _JSON_MEDIA:
        return None
    if "as" not in clause.parameters:
        return JSON
    asked = (clause.parameters.get("g", ""), clause.parameters["as"])
    form, versions = _CONVERTED.get(asked, ("json", ()))
    version = clause.parameters.get("v", "")
    return ResponseFormat(form, version) if version in versions else None


def _parse_accept(header: str) -> Iterator[_Clause]:
    for text in header.split(","):
        media, *parameters = text.split(";")
        pairs = (parameter.partition("=") for parameter in parameters)
        named = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        yield _Clause(media.strip().lower(), named)


OBJECT_BODIES: Mapping[str, BodyFormat] = {
    "application/json": "json",
    "application/yaml": "yaml",
    PROTOBUF: "protobuf",
}
CUSTOM_BODIES: Mapping[str, BodyFormat] = {media: form for media, form in OBJECT_BODIES.items() if form != "protobuf"}
PATCH_BODIES: Mapping[str, BodyFormat] = {
    "application/json-patch+json": "json-patch",
    "application/merge-patch+json": "merge-patch",
    "application/strategic-merge-patch+json": "strategic-merge-patch",
    "application/apply-patch+yaml": "apply-patch",
}


CUSTOM_PATCH_BODIES: Mapping[str, BodyFormat] = {
    media: form for media, form in PATCH_BODIES.items() if form != "strategic-merge-patch"
}


def parse_object_content_type(content_type: str | None, known: Mapping[str, BodyFormat] = OBJECT_BODIES) -> BodyFormat:
    """Return the format of the object in a POST, PUT or DELETE. JSON without a header, as several clients send none. Else 415."""
    return _match_content_type(content_type or "application/json", known)


def parse_patch_content_type(content_type: str | None, known: Mapping[str, BodyFormat] = PATCH_BODIES) -> BodyFormat:
    """Return the patch type of a PATCH; 415 for any other Content-Type."""
    return _match_content_type(content_type or "", known)


def _match_content_type(content_type: str, known: Mapping[str, BodyFormat]) -> BodyFormat:
    media = content_type.partition(";")[0].strip().lower()
    if media in known:
        return known[media]
    raise ApiError(415, "UnsupportedMediaType", _unknown_format(known))


def _unknown_format(known: Collection[str]) -> str:
    return f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
