"""The resource kinds, each in a module of its own. The registry, the API and the suites over every kind start here.

To add a kind, add a module: its struct (a subclass of `base.Object`) and a `KIND` record. Being here is all it takes:
routes, discovery, OpenAPI, storage, watches, tables and the conformance suites follow from the record.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from app.kinds.base import Kind

KINDS: tuple[Kind[Any], ...] = tuple(
    module.KIND
    for module in (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    if hasattr(module, "KIND")
)

_BY_RESOURCE = {(kind.group, kind.version, kind.plural): kind for kind in KINDS}
_BY_NAME = {(kind.group, kind.name): kind for kind in KINDS}


def by_resource(group: str, version: str, plural: str) -> Kind[Any] | None:
    """The kind behind a path such as /apis/batch/v1/jobs: ("batch", "v1", "jobs")."""
    return _BY_RESOURCE.get((group, version, plural))


def by_name(group: str, kind: str) -> Kind[Any] | None:
    """The kind that an object, a reference or an owner names: ("batch", "Job")."""
    return _BY_NAME.get((group, kind))
