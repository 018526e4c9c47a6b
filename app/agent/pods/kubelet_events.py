"""Events about one pod on their way to the API: they travel with its next status, and what repeats is counted.

As in client-go's event recorder: messages that differ a little are combined after a while, and what happens too often is
left out. The API makes the objects (`app.registry.agents.kubelet_events`) and counts; a resend is harmless.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.client.protocol import EventReport
from app.plans.kubelet.pod_events import Note

MANY = 10  # messages of one sort about one pod that are sent one by one
BURST = 25  # events about one pod for one reason
REFILL = timedelta(minutes=5)  # after which one more may be sent
COMBINED = "(combined from similar events): "
LONGEST = 1024


_Sort = tuple[str, str, str]


class EventRecorder:
    """Events about one pod. Most pods need little of it."""

    __slots__ = ("_allowed", "_known", "_once", "_pending", "_sorts")

    def __init__(self) -> None:
        self._pending: dict[tuple[_Sort, str], EventReport] = {}
        self._known: dict[tuple[_Sort, str], None] = {}
        self._once: dict[tuple[str, str], None] = {}
        self._sorts: dict[_Sort, int] = {}
        self._allowed: dict[str, tuple[float, datetime]] = {}

    def record(self, note: Note, now: datetime) -> None:
        if note.once:
            if (note.reason, note.once) in self._once:
                return
            self._once[note.reason, note.once] = None
        if not self._is_allowed(note.reason, now):
            return
        sort = (note.type, note.reason, note.path)
        message = self._message(sort, note.message)
        key = (sort, message if not message.startswith(COMBINED) else COMBINED)
        pending = self._pending.get(key)
        count = pending.count + 1 if pending else 1
        self._pending[key] = EventReport(
            type=note.type,
            reason=note.reason,
            message=message[:LONGEST],
            when=now.replace(microsecond=0),
            path=note.path,
            count=count,
            known=key in self._known,
            owner=note.owner,
        )

    def take(self) -> tuple[EventReport, ...]:
        """Events to send now; from then on they are known."""
        if not self._pending:
            return ()
        events = tuple(self._pending.values())
        self._known.update(dict.fromkeys(self._pending))
        self._pending = {}
        return events

    def put_back(self, events: Iterable[EventReport]) -> None:
        """Not accepted; sent again with the next report."""
        for each in events:
            message = each.message if not each.message.startswith(COMBINED) else COMBINED
            key = ((each.type, each.reason, each.path), message)
            newer = self._pending.get(key)
            self._pending[key] = replace(each, count=each.count + (newer.count if newer else 0))

    def _message(self, sort: _Sort, text: str) -> str:
        if (sort, text) in self._known or (sort, text) in self._pending:
            return text
        self._sorts[sort] = self._sorts.get(sort, 0) + 1
        return text if self._sorts[sort] <= MANY else COMBINED + text

    def _is_allowed(self, reason: str, now: datetime) -> bool:
        tokens, since = self._allowed.get(reason, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL)
        self._allowed[reason] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1
