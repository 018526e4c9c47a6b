"""Connections to Postgres that know its built-in types from the first one on. Called by the store for its pool and its writer.

asyncpg asks every new connection what the arrays are that it meets, by a query that takes Postgres ten milliseconds of a
processor. Built-in types are the same in every database: the first answer holds for all connections of the process.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import asyncpg

_FIRST_OF_OTHERS = 16384  # object ids below it are Postgres' own, and the same everywhere


class _NoStatement(NamedTuple):
    """In place of the query that was not needed. Its name says that it has displaced no statement without one."""

    name: str = "remembered"


class Connection(asyncpg.Connection):
    """If an asyncpg has no such method, or never calls it, it asks each time, as without this class."""

    _remembered: ClassVar[dict[frozenset[int], Any]] = {}

    async def _introspect_types(self, typeoids: Iterable[int], *more: Any, **options: Any) -> tuple[Any, Any]:
        """Return descriptions of types, and the statement that found them."""
        asked = frozenset(typeoids)
        if asked in self._remembered:
            return self._remembered[asked], _NoStatement()
        types, statement = await super()._introspect_types(asked, *more, **options)  # type: ignore[misc]
        if max(asked) < _FIRST_OF_OTHERS:
            self._remembered[asked] = types
        return types, statement
