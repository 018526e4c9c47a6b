"""OpenAPI documents of discovery and of the version: the paths above those of the kinds."""

from collections.abc import Sequence
from typing import Any

import msgspec

from app.api.openapi.meta import APIGroup, APIGroupList, APIResourceList, APIVersions
from app.api.openapi.operations import READING, gives, group_words
from app.api.openapi.schemas import Info, Schema, Schemas, ref

NAMES = ("api", "apis", "version")
"""Documents that belong to no group."""


def paths(name: str, groups: Sequence[tuple[str, str]], schemas: Schemas) -> dict[str, Schema]:
    """The paths of one of `NAMES`."""
    if name == "version":
        return {"/version/": _get("getCodeVersion", "version", "Read the version of the server.", Info, schemas)}
    if name == "api":
        return {
            "/api/": _get("getCoreAPIVersions", "core", "List the versions of the core group.", APIVersions, schemas)
        }
    found = {"/apis/": _get("getAPIVersions", "apis", "List the groups.", APIGroupList, schemas)}
    for group in sorted({group for group, _ in groups if group}):
        word = group_words(group)
        name = f"get{word[0].upper()}{word[1:]}APIGroup"
        found[f"/apis/{group}/"] = _get(name, word, f"Read the versions of the group {group}.", APIGroup, schemas)
    return found


def of_version(group: str, version: str, schemas: Schemas) -> dict[str, Schema]:
    """The list of the resources of one group and version."""
    word = group_words(group)
    path = f"/apis/{group}/{version}/" if group else f"/api/{version}/"
    name = f"get{word[0].upper()}{word[1:]}{version.capitalize()}APIResources"
    return {path: _get(name, f"{word}_{version}", "List the resources.", APIResourceList, schemas)}


def _get(name: str, tag: str, text: str, type_: type[msgspec.Struct], schemas: Schemas) -> dict[str, Any]:
    answers = gives(ref(schemas.of(type_)), (200,), READING)
    return {"get": {"operationId": name, "tags": [tag], "description": text, **answers}}
