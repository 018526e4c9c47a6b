"""OpenAPI version 3: an index, and one document for each group and version, generated from the kinds.

`app.api.app` builds one `OpenApi` at start and answers GET /openapi/v3... from it; a document is made when it is first
asked for. `python -m app.api.openapi DIRECTORY` writes them all as files, the ones under `openapi/` that reviews read.
"""

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from app.api.discovery import Document
from app.api.openapi_paths import paths
from app.api.openapi_schemas import Schemas
from app.api.version import MAJOR, MINOR
from app.kinds.base import Kind

ROOT = "/openapi/v3"


class OpenApi:
    """The documents, ready as bytes once they were asked for."""

    def __init__(self, kinds: tuple[Kind[Any], ...]) -> None:
        self._kinds = kinds
        self._groups: dict[str, list[Kind[Any]]] = {}
        for kind in kinds:
            root = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
            self._groups.setdefault(root, []).append(kind)
        self._made: dict[str, Document] = {}

    def document(self, path: str) -> Document | None:
        """The answer to GET `path`, without its query; None if there is no such document."""
        path = path.rstrip("/")
        if path not in self._made:
            content = self.content(path)
            if content is None:
                return None
            body = msgspec.json.encode(content)
            self._made[path] = Document(body, "application/json", f'"{sha256(body).hexdigest().upper()}"')
        return self._made[path]

    def content(self, path: str) -> dict[str, Any] | None:
        """The same before it is encoded."""
        if path == ROOT:
            return {"paths": {group: self._link(group) for group in self._groups}}
        group = path.removeprefix(f"{ROOT}/")
        return group_document(self._groups[group], self._kinds) if group in self._groups else None

    def contents(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each group's document, under a name fit for a file."""
        for group, kinds in self._groups.items():
            yield group.replace("/", "_"), group_document(kinds, self._kinds)

    def _link(self, group: str) -> dict[str, str]:
        document = self.document(f"{ROOT}/{group}")
        digest = document.etag.strip('"') if document else ""
        return {"serverRelativeURL": f"{ROOT}/{group}?hash={digest}"}


def group_document(group: list[Kind[Any]], kinds: tuple[Kind[Any], ...]) -> dict[str, Any]:
    """The document of the kinds of one group and version; `kinds` are all there are, to name what they share."""
    schemas = Schemas(kinds)
    described = {path: operations for kind in group for path, operations in paths(kind, schemas).items()}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Jobplane", "version": f"v{MAJOR}.{MINOR}.0"},
        "paths": dict(sorted(described.items())),
        "components": {
            "schemas": dict(sorted(schemas.schemas.items())),
            "securitySchemes": {
                "BearerToken": {"type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer."}
            },
        },
        "security": [{"BearerToken": []}],
    }


def write(directory: Path, kinds: tuple[Kind[Any], ...]) -> None:
    """Write every document as `directory`/GROUP.json, and remove those of groups that are no more."""
    written = set()
    for name, content in OpenApi(kinds).contents():
        path = directory / f"{name}.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        written.add(path)
    for path in set(directory.glob("*.json")) - written:
        path.unlink()


def main() -> None:
    from app.kinds import KINDS

    write(Path(sys.argv[1]), KINDS)


if __name__ == "__main__":
    main()
