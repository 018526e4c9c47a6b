"""Content negotiation: what a client can read (Accept) and what it sends (Content-Type).

The routes ask this module once a request. Clients give media-type parameters in any order, so headers are parsed, never
compared. Protobuf is never written: every client that prefers it also reads JSON.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from app.machinery.errors import ApiError

LONGEST = 8 << 10  # characters of an Accept header; those that were read are remembered
Form = Literal["json", "table", "partial", "partial-list", "discovery", "openapi-v2"]
Body = Literal[
    "json", "yaml", "protobuf", "json-patch", "merge-patch", "strategic-merge-patch", "apply-patch"
]  # fmt: skip


class Wanted(NamedTuple):
    """The form of answer that fits a client best, and the version of that form ("" where forms have none)."""

    form: Form
    version: str = ""

    @property
    def content_type(self) -> str:
        """The media type to put on the answer; aggregated discovery is recognised by nothing else."""
        if self.form == "discovery":
            return f"application/json;g=apidiscovery.k8s.io;v={self.version};as=APIGroupDiscoveryList"
        if self.form == "openapi-v2":
            return OPENAPI_V2
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


JSON = Wanted("json")
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

OBJECT: frozenset[Form] = frozenset({"json", "table", "partial", "partial-list"})
DISCOVERY: frozenset[Form] = frozenset({"json", "discovery"})
OPENAPI: frozenset[Form] = frozenset({"json", "openapi-v2"})


@lru_cache(maxsize=512)
def wanted(accept: str | None, offered: frozenset[Form] = OBJECT) -> Wanted:
    """The best of `offered` forms that `accept` allows; a missing or empty header takes JSON. 406 if none fits."""
    if not accept or not accept.strip():
        return JSON
    if len(accept) > LONGEST:
        raise ApiError(406, "NotAcceptable", f"an Accept header may have at most {LONGEST} characters")
    clauses = [clause for clause in _clauses(accept) if clause.quality > 0]
    for clause in sorted(clauses, key=lambda each: -each.quality):
        form = _form(clause)
        if form is not None and form.form in offered:
            return form
    raise ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def _form(clause: _Clause) -> Wanted | None:
    if clause.media in _OPENAPI_V2_ASKED:
        return Wanted("openapi-v2")
    if clause.media not in _JSON_MEDIA:
        return None
    if "as" not in clause.parameters:
        return JSON
    asked = (clause.parameters.get("g", ""), clause.parameters["as"])
    form, versions = _CONVERTED.get(asked, ("json", ()))
    version = clause.parameters.get("v", "")
    return Wanted(form, version) if version in versions else None


def _clauses(header: str) -> Iterator[_Clause]:
    for text in header.split(","):
        media, *parameters = text.split(";")
        pairs = (parameter.partition("=") for parameter in parameters)
        named = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        yield _Clause(media.strip().lower(), named)


PROTOBUF = "application/vnd.kubernetes.protobuf"
OBJECT_BODIES: Mapping[str, Body] = {
    "application/json": "json",
    "application/yaml": "yaml",
    PROTOBUF: "protobuf",
}
PATCH_BODIES: Mapping[str, Body] = {
    "application/json-patch+json": "json-patch",
    "application/merge-patch+json": "merge-patch",
    "application/strategic-merge-patch+json": "strategic-merge-patch",
    "application/apply-patch+yaml": "apply-patch",
}


def object_body(content_type: str | None) -> Body:
    """How the object in a POST, PUT or DELETE is written. Without a header it is JSON: several clients send none."""
    return _body(content_type or "application/json", OBJECT_BODIES)


def patch_body(content_type: str | None) -> Body:
    """Which of the four patches a PATCH carries."""
    return _body(content_type or "", PATCH_BODIES)


def _body(content_type: str, known: Mapping[str, Body]) -> Body:
    media = content_type.partition(";")[0].strip().lower()
    if media in known:
        return known[media]
    raise ApiError(415, "UnsupportedMediaType", _unknown_format(known))


def _unknown_format(known: Collection[str]) -> str:
    return f"the body of the request was in an unknown format - accepted media types include: {', '.join(known)}"
