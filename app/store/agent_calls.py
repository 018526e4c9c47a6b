"""Agent calls: tells every API process at once that an agent is to be called. Nothing is stored; who still waits posts again."""

from collections.abc import Callable
from typing import Any

import asyncpg

from app.store.errors import call_database

Listener = Callable[[str], None]


class Calls:
    """`heard` is called by the store's listening connection; a database that is away loses what was said meanwhile."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._listeners: list[Listener] = []

    async def post(self, notice: str) -> None:
        """Call all listeners of all processes, this one's too. At most 8,000 bytes."""
        await call_database(self._pool.execute("select pg_notify('calls', $1)", notice))

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def on_notify(self, _connection: Any, _pid: int, _channel: str, notice: object) -> None:
        for listener in self._listeners:
            listener(str(notice))
