"""Static documents with entity tags, encoded once and served often: discovery and OpenAPI.

`app.api.resources.discovery`, `app.api.openapi.v3` and `app.api.openapi.v2` make them; `app.api.documents` answers with them.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import format_datetime
from hashlib import sha512
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.compression import Body

JSON = "application/json"
_YEAR = timedelta(days=365)


class Document(NamedTuple):
    """An encoded document, ready to serve."""

    body: bytes
    content_type: str
    etag: str

    @property
    def digest(self) -> str:
        return self.etag.strip('"')


def encode_document(content: Any, content_type: str = JSON) -> Document:
    """Encode `content` as a JSON document."""
    return make_document(msgspec.json.encode(content), content_type)


def make_document(body: bytes, content_type: str) -> Document:
    return Document(body, content_type, f'"{sha512(body).hexdigest().upper()}"')


def immutable_headers(now: datetime) -> dict[str, str]:
    """Return caching headers for a document whose URL contains its hash, so that it never changes."""
    return {"Cache-Control": "public, immutable", "Expires": format_datetime(now + _YEAR, usegmt=True)}


def answer(request: Request, document: Document, headers: Mapping[str, str]) -> Response:
    """Return the response with the document, or 304 if If-None-Match has its tag."""
    all_headers = {"ETag": document.etag, "Vary": "Accept", **headers}
    if _matches(request.headers.get("if-none-match", ""), document.etag):
        return Response(status_code=304, headers=all_headers)
    return Body(document.body, headers=all_headers, media_type=document.content_type)


def _matches(given: str, etag: str) -> bool:
    tags = {each.strip().removeprefix("W/") for each in given.split(",")}
    return "*" in tags or etag in tags
