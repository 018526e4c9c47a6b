"""Endpoints of the page: its files, for everybody. All that it shows comes from the API, with the viewer's token.

`make page` builds the files into the folder `app/api/ui`, and the wheel has them. They are read once, into memory. Names in
`assets/` carry a hash of the content, so that browsers never ask for them twice. Any other path below /ui is one of the
page's own views, which its script tells apart.
"""

import gzip
import mimetypes
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from app.api.http import errors

FOLDER = Path(__file__).parents[1] / "ui"
INDEX = "index.html"
MISSING = "The page is not built. In a checkout, run `make page`, then restart the API. The API and kubectl work without it.\n"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_SAFE = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LEAST_TO_COMPRESS = 1024
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # on which other ports serve plain HTTP: HSTS counts for all of a host
router = APIRouter(include_in_schema=False)


class PageFile:
    """A file of the page, ready to send; compressed, too, if that makes it smaller."""

    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        packed = gzip.compress(content, mtime=0) if len(content) >= _LEAST_TO_COMPRESS else content
        self.packed = packed if len(packed) < len(content) else None
        self.media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self.tag = sha256(content).hexdigest()[:32]
        self.caching = "public, max-age=31536000, immutable" if name.startswith("assets/") else "no-cache"

    def answer(self, headers: Mapping[str, str]) -> Response:
        """The answer to a request with these headers: 304 if the browser has this very content."""
        is_packed = self.packed is not None and "gzip" in headers.get("accept-encoding", "")
        tag = f'"{self.tag}{"-gzip" if is_packed else ""}"'
        shown = {**_SAFE, "ETag": tag, "Cache-Control": self.caching, "Vary": "Accept-Encoding"}
        if tag in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=shown)
        if is_packed:
            return Response(self.packed, headers={**shown, "Content-Encoding": "gzip"}, media_type=self.media_type)
        return Response(self.content, headers=shown, media_type=self.media_type)


@cache
def read_files(folder: Path) -> Mapping[str, PageFile]:
    """The files below a folder by their paths in it; none if there is no folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {name: PageFile(name, path.read_bytes()) for path in paths if (name := path.relative_to(folder).as_posix())}


def find_answer(files: Mapping[str, PageFile], path: str, headers: Mapping[str, str]) -> Response:
    """The answer to a request for a path below /ui. 404 for a file that a build of before had."""
    if INDEX not in files:
        return PlainTextResponse(MISSING, 503, headers=_SAFE)
    if path.startswith("assets/") and path not in files:
        raise errors.no_such_path()
    return files.get(path, files[INDEX]).answer(headers)


@router.get("/ui")
@router.head("/ui")
@router.get("/ui/{path:path}")
@router.head("/ui/{path:path}")
async def read_page(request: Request, path: str = "") -> Response:
    """A file of the page, or the page itself."""
    answer = find_answer(read_files(FOLDER), path, request.headers)
    if request.url.scheme == "https" and request.url.hostname not in _LOOPBACK:
        answer.headers["Strict-Transport-Security"] = "max-age=31536000"
    return answer
