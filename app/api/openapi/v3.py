"""OpenAPI version 3: an index, and one document for each group and version, generated from the kinds.

`app.api.documents` builds one `OpenApi` at start and answers GET /openapi/v3... from it; a document is made when it is first
requested. `python -m app.api.openapi.v3 DIRECTORY` writes them as files, which are kept under `openapi/` for reviews.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.api.http import static_documents
from app.api.http.static_documents import Document
from app.api.openapi import paths as openapi_paths
from app.api.openapi.operations import error_responses
from app.api.openapi.schemas import Schema, Schemas
from app.api.resources.discovery import EphemeralResource
from app.api.resources.version import MAJOR, MINOR
from app.machinery.base import Kind

ROOT = "/openapi/v3"


class OpenApi:
    """The documents, each encoded on first request."""

    def __init__(self, kinds: tuple[Kind[Any], ...], virtual: Sequence[EphemeralResource] = ()) -> None:
        self._kinds = kinds
        self._virtual = tuple(virtual)
        stored = {(kind.group, kind.version) for kind in kinds}
        self._groups = sorted(stored | {(each.group, each.version) for each in self._virtual})
        self._paths = {_path(*each): each for each in self._groups}
        self._made: dict[str, Document] = {}
        self._custom: tuple[Kind[Any], ...] = ()

    def with_custom(self, custom: tuple[Kind[Any], ...]) -> "OpenApi":
        """The same documents with those of custom kinds. What is made of a group that did not change is kept."""
        built_in = tuple(kind for kind in self._kinds if kind not in self._custom)
        made = OpenApi((*built_in, *custom), self._virtual)
        made._custom = custom
        changed = {_path(kind.group, kind.version) for kind in {*custom} ^ {*self._custom}}
        kept = {f"{ROOT}/{name}" for name in made._paths if name not in changed}
        made._made = {path: document for path, document in [*self._made.items()] if path in kept}
        return made

    def is_made(self, path: str) -> bool:
        """Return whether the document of `path` is encoded already, or does not exist."""
        path = path.rstrip("/")
        return path in self._made or (path != ROOT and path.removeprefix(f"{ROOT}/") not in self.names)

    def document(self, path: str) -> Document | None:
        """Return the document of `path`, without its query; None if there is no such document."""
        path = path.rstrip("/")
        if path not in self._made:
            content = self.content(path)
            if content is None:
                return None
            self._made[path] = static_documents.encode_document(content)
        return self._made[path]

    def content(self, path: str) -> dict[str, Any] | None:
        """Return the content of `path` before encoding; None if there is no such document."""
        if path == ROOT:
            return {"paths": {each: self._link(each) for each in self.names}}
        name = path.removeprefix(f"{ROOT}/")
        return self._content(name) if name in self.names else None

    def contents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each document with a file name."""
        for name in self.names:
            yield name.replace("/", "_"), self._content(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all documents, as the index lists them."""
        return (*openapi_paths.ROOT_NAMES, *self._paths)

    def _content(self, name: str) -> dict[str, Any]:
        schemas = Schemas(self._kinds)
        if name not in self._paths:
            return _document(openapi_paths.root_paths(name, self._groups, schemas), schemas)
        here = self._paths[name]
        described = openapi_paths.resource_list_path(*here, schemas)
        for kind in self._kinds:
            if (kind.group, kind.version) == here:
                described |= openapi_paths.paths_of_kind(kind, schemas)
        for virtual in self._virtual:
            if virtual[:2] == here:
                described |= openapi_paths.paths_of_ephemeral(virtual, schemas)
        return _document(described, schemas)

    def _link(self, name: str) -> dict[str, str]:
        document = self.document(f"{ROOT}/{name}")
        return {"serverRelativeURL": f"{ROOT}/{name}?hash={document.digest if document else ''}"}


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _document(paths: dict[str, Schema], schemas: Schemas) -> dict[str, Any]:
    responses = error_responses(schemas)
    return {
        "openapi": "3.0.0",
        "info": {"title": "Jobplane", "version": f"v{MAJOR}.{MINOR}.0"},
        "paths": dict(sorted(paths.items())),
        "components": {
            "responses": responses,
            "schemas": dict(sorted(schemas.schemas.items())),
            "securitySchemes": {
                "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer."}
            },
        },
        "security": [{"BearerToken": []}],
    }


def write(directory: Path, specification: OpenApi) -> None:
    """Write every document as `directory`/NAME.json, and remove files of groups that no longer exist."""
    written = set()
    for name, content in specification.contents():
        path = directory / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        written.add(path)
    for path in set(directory.glob("*.json")) - written:
        path.unlink()


def main() -> None:
    from app.api.resources.ephemeral_resources import EPHEMERAL
    from app.api.resources.unsupported_kinds import UNSUPPORTED
    from app.kinds import KINDS

    write(Path(sys.argv[1]), OpenApi((*KINDS, *UNSUPPORTED), EPHEMERAL))


if __name__ == "__main__":
    main()
