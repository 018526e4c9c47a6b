"""Logs stay for a while when their containers have ended, with or without their pods; then they go.

They are no objects, so nothing is planned: the elected controllers look every half minute, and what they do is harmless
to do twice. When a container ended is what they notice, so a log may stay half a minute longer than it must.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from app.controllers.planned_write import PlannedWrite
from app.plans.plan import Plan
from app.store import Key, Store
from app.store.logs import CAP

TOGETHER = 500  # logs in one statement
EVERY = timedelta(seconds=30)
_ALL = Key("expiry", "", "logs")


class LogController:
    component = "log-controller"

    def __init__(self, store: Store, ttl: timedelta, cap: int = CAP) -> None:
        self._logs = store.kept_logs
        self._ttl = ttl
        self._cap = cap

    def on_event(self, *_: object) -> Iterable[Key]:
        """Time wakes it."""
        return []

    def enqueue_all(self) -> Iterable[Key]:
        return [_ALL]

    async def reconcile(self, _: Key, now: datetime) -> Sequence[PlannedWrite]:
        ended = await self._logs.end(now, TOGETHER)
        await self._logs.pack(ended)
        await self._logs.trim(ended, self._cap)
        gone = await self._logs.expire(now - self._ttl, TOGETHER)
        homeless = await self._logs.forget_homeless(TOGETHER)
        more = TOGETHER in (len(ended), gone, homeless)
        return [PlannedWrite(Plan(again_at=now if more else now + EVERY))]
