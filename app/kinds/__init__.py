"""The resource kinds, each in a module of its own: `core/`, `pod/`, `batch/`, `scheduling/`, `storage/`, `auth/`,
`admission/`, `apiextensions/`. These are the built-in ones; `app.registry.kind_table` knows the custom ones, too.

To add a kind, add a module with a `KIND` record. Being here is all it takes: routes, discovery, OpenAPI, storage, watches,
tables and the conformance suites follow from the record. Its struct is generated: CONTRIBUTING.md says how.

May import: `app.machinery`. Imported by: everything above.
Start reading: `core.configmap` (the smallest kind), `batch.job`, and `app.machinery.base` for the `Kind` record.
"""

from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from app.machinery.base import Kind
from app.machinery.feature_gates import Features

KINDS: tuple[Kind[Any], ...]  # all of them, once somebody asks: an agent needs six, and the rest is 3 MiB


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name != "KINDS":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _all()


def by_resource(group: str, version: str, plural: str) -> Kind[Any] | None:
    """The kind behind a path such as /apis/batch/v1/jobs: ("batch", "v1", "jobs")."""
    return _by_resource().get((group, version, plural))


def by_name(group: str, kind: str) -> Kind[Any] | None:
    """The kind that an object, a reference or an owner names: ("batch", "Job")."""
    return _by_name().get((group, kind))


def by_version(api_version: str, kind: str) -> Kind[Any] | None:
    """The stored kind that an owner names: ("batch/v1", "Job")."""
    return _by_version().get((api_version, kind))


def is_enabled(kind: Kind[Any], features: Features) -> bool:
    """Return whether a kind is served with these feature gates on."""
    return not kind.feature_gate or kind.feature_gate in features


@cache
def _all() -> tuple[Kind[Any], ...]:
    modules = (import_module(found.name) for found in walk_packages(__path__, f"{__name__}."))
    return tuple(module.KIND for module in modules if hasattr(module, "KIND"))


@cache
def _by_resource() -> dict[tuple[str, str, str], Kind[Any]]:
    return {(kind.group, kind.version, kind.plural): kind for kind in _all()}


@cache
def _by_name() -> dict[tuple[str, str], Kind[Any]]:
    """Of a kind with two versions the one that is stored."""
    return {(kind.group, kind.name): kind for kind in sorted(_all(), key=lambda kind: kind.storage is None)}


@cache
def _by_version() -> dict[tuple[str, str], Kind[Any]]:
    return {(kind.api_version, kind.name): kind.storage or kind for kind in _all()}
