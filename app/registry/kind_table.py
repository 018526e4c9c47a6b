"""Kind table: all kinds that a process knows, built-in ones and those of the CustomResourceDefinitions in a mirror.

Whatever looks a kind up asks this: paths, discovery, garbage collection, deletion of namespaces. It is as new as the mirror. The
API's processes have one over a mirror of definitions alone (`KindCache`), the controllers one over theirs.

Decision: docs/decisions/0034-custom-kinds-are-kinds-whose-shape-is-data.md.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from app import kinds
from app.kinds.apiextensions.custom_kind import CustomKinds, kinds_of
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.apiextensions.custom_resource_definition import CustomResourceDefinition
from app.kinds.apiextensions.definition_conditions import is_established
from app.machinery.base import Kind, Object
from app.registry.mirror_cache import MirrorCache
from app.store import Key, Mirror, Store
from app.structured_logging import Logger, object_fields

logger = Logger(__name__)


class KindTable:
    """`generation` rises with each change of the custom kinds."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.generation = 0
        self._made: dict[str, CustomKinds] = {}  # by the name of the definition
        self._served: dict[tuple[str, str, str], Kind[Any]] = {}
        self._owners: dict[tuple[str, str], Kind[Any]] = {}
        self._built_in: Mapping[str, Kind[Any]] = {kind.resource: kind for kind in kinds.KINDS if kind.storage is None}
        self._second_versions: dict[str, list[Kind[Any]]] = {}  # of built-in kinds, by the resource that is stored
        for kind in kinds.KINDS:
            if kind.storage is not None:
                self._second_versions.setdefault(kind.storage.resource, []).append(kind)
        for each in self.definitions():
            self._changed(Key(DEFINITIONS.resource, "", each.metadata.name), None, each)
        mirror.listen(self._changed, {DEFINITIONS.resource})

    def definitions(self) -> list[CustomResourceDefinition]:
        return cast("list[CustomResourceDefinition]", list(self.mirror.all(DEFINITIONS.resource)))

    def _changed(self, key: Key, before: Object | None, now: Object | None) -> None:
        if key.kind != DEFINITIONS.resource:
            return
        crd, old = cast("CustomResourceDefinition | None", now), cast("CustomResourceDefinition | None", before)
        if crd is None or not is_established(crd):
            self._made.pop(key.name, None)
        elif key.name not in self._made or old is None or _differs(crd, old):
            try:
                self._made[key.name] = kinds_of(crd)
            except Exception as error:  # one bad definition must not end the service of all others
                logger.error("cannot serve a custom kind", **object_fields(*key), traceback_of=error)
                self._made.pop(key.name, None)
        else:
            return
        self._served = {
            (kind.group, kind.version, kind.plural): kind for each in self._made.values() for kind in each.served
        }
        self._owners = {(kind.api_version, kind.name): kind.storage or kind for kind in self._served.values()}
        self.generation += 1

    @property
    def custom(self) -> tuple[Kind[Any], ...]:
        """The custom kinds that are served, each version of them."""
        return tuple(self._served.values())

    def by_resource(self, group: str, version: str, plural: str) -> Kind[Any] | None:
        """The kind behind a path such as /apis/batch/v1/jobs: ("batch", "v1", "jobs")."""
        return kinds.by_resource(group, version, plural) or self._served.get((group, version, plural))

    def serves(self, kind: Kind[Any]) -> bool:
        """Return whether a custom kind is served as it was when it was looked up."""
        return self._served.get((kind.group, kind.version, kind.plural)) is kind

    def by_owner(self, api_version: str, name: str) -> Kind[Any] | None:
        """The stored kind that an owner reference names."""
        return kinds.by_version(api_version, name) or self._owners.get((api_version, name))

    def stored(self, resource: str) -> Kind[Any] | None:
        """The kind that is stored under a resource such as jobs.batch."""
        made = self._made.get(resource)
        return self._built_in.get(resource) or (made and made.storage)

    def versions(self, stored: Kind[Any]) -> tuple[Kind[Any], ...]:
        """All versions in which a stored kind is served."""
        made = self._made.get(stored.resource)
        return made.served if made else (stored, *self._second_versions.get(stored.resource, ()))

    def all_stored(self) -> Iterable[Kind[Any]]:
        """Every kind that objects are stored as."""
        return (*self._built_in.values(), *(each.storage for each in self._made.values()))


def _differs(crd: CustomResourceDefinition, old: CustomResourceDefinition) -> bool:
    """Return whether the kinds of a definition are others than before: few of its writes change any."""
    return (
        crd.spec != old.spec
        or crd.status.accepted_names != old.status.accepted_names
        or crd.status.stored_versions != old.status.stored_versions
        or crd.metadata.uid != old.metadata.uid
    )


class KindCache(MirrorCache):
    """The kind table of an API process."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, frozenset({DEFINITIONS.resource}))
        self._table: KindTable | None = None

    async def table(self) -> KindTable:
        """The kinds as this process knows them."""
        mirror = await self.mirror()
        if self._table is None or self._table.mirror is not mirror:
            generation = self._table.generation + 1 if self._table else 0
            self._table = KindTable(mirror)
            self._table.generation += generation
        return self._table

    async def newest_table(self) -> KindTable:
        """The kinds as they are in the store by now, if it can be reached in a moment."""
        await self.catch_up()
        return await self.table()
