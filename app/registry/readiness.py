"""Readiness: what must hold for a process that works with the database. The API's probes and the controllers' answer with it."""

from collections.abc import Sequence

from app.metrics.health_checks import PING, Check
from app.registry.registry import Registry
from app.store import OutcomeUnknown, Unavailable

_AWAY = "the database is not reachable, try again"


def readiness(registry: Registry) -> Sequence[Check]:
    """Return the checks of a process: it answers, its change feed follows the database, and the database takes writes."""

    async def change_feed() -> str:
        return registry.feed_fault()

    async def database() -> str:
        try:
            return await registry.database_fault()
        except (Unavailable, OutcomeUnknown, ConnectionError):
            return _AWAY

    return PING, Check("change-feed", change_feed), Check("database", database)
