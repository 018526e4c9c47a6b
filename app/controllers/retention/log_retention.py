"""Log retention: logs stay for a while when their containers have ended, with or without their pods; then they are deleted.

They are no objects, so nothing is planned. The leader looks every half minute; when a container ended is what it notices,
so a log may stay half a minute longer than it must.
"""

from datetime import datetime, timedelta

from app.store.logs.kept_logs import KeptLogs
from app.store.logs.logs import CAP

BATCH = 500  # logs in one statement


class LogRetention:
    """`ttl`: since the end of the container. `cap`: bytes of one run; of the runs before the newest two, as much in all."""

    name = "log retention"
    interval = timedelta(seconds=30)

    def __init__(self, logs: KeptLogs, ttl: timedelta, cap: int = CAP, batch: int = BATCH) -> None:
        self._logs = logs
        self._ttl = ttl
        self._cap = cap
        self._batch = batch

    async def run_once(self, now: datetime) -> dict[str, int]:
        packed = trimmed = deleted = 0
        has_more = True
        while has_more:
            ended = await self._logs.end(now, self._batch)
            packed += await self._logs.pack(ended)
            trimmed += await self._logs.trim(ended, self._cap)
            expired = await self._logs.expire(now - self._ttl, self._batch)
            homeless = await self._logs.forget_homeless(self._batch)
            deleted += expired + homeless
            has_more = self._batch in (len(ended), expired, homeless)
        return {"packed logs": packed, "trimmed runs": trimmed, "deleted logs": deleted}
