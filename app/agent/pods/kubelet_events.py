"""Events about one pod on their way to the API: they travel with its next status, and what repeats is counted.

As the kubelet's recorder has it: messages that differ a little are told as one after a while, and whatever happens too
often is left out. The API makes the objects (`app.registry.kubelet_events`) and counts; a resend is harmless.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from app.plans.kubelet.pod_events import Note

MANY = 10  # messages of one sort about one pod that are told one by one
BURST = 25  # events about one pod for one reason
REFILL = timedelta(minutes=5)  # after which one more may be told
COMBINED = "(combined from similar events): "
LONGEST = 1024


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event as it is sent. `count`: how often since it was last told; `known`: it was told before.

    owner: UID of the pod's controller, if the event is stored once for all of its pods.
    """

    type: str
    reason: str
    message: str
    when: datetime
    path: str = ""
    count: int = 1
    known: bool = False
    owner: str = ""


_Sort = tuple[str, str, str]


class Telling:
    """What is told about one pod. Most pods need little of it."""

    __slots__ = ("_allowed", "_known", "_once", "_sorts", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[tuple[_Sort, str], Event] = {}
        self._known: dict[tuple[_Sort, str], None] = {}
        self._once: dict[tuple[str, str], None] = {}
        self._sorts: dict[_Sort, int] = {}
        self._allowed: dict[str, tuple[float, datetime]] = {}

    def tell(self, note: Note, now: datetime) -> None:
        if note.once:
            if (note.reason, note.once) in self._once:
                return
            self._once[note.reason, note.once] = None
        if not self._is_allowed(note.reason, now):
            return
        sort = (note.type, note.reason, note.path)
        message = self._message(sort, note.message)
        key = (sort, message if not message.startswith(COMBINED) else COMBINED)
        waiting = self._waiting.get(key)
        count = waiting.count + 1 if waiting else 1
        self._waiting[key] = Event(
            note.type,
            note.reason,
            message[:LONGEST],
            now.replace(microsecond=0),
            note.path,
            count,
            known=key in self._known,
            owner=note.owner,
        )

    def take(self) -> tuple[Event, ...]:
        """What is to be sent now; from then on it is known."""
        if not self._waiting:
            return ()
        events = tuple(self._waiting.values())
        self._known.update(dict.fromkeys(self._waiting))
        self._waiting = {}
        return events

    def untold(self, events: Iterable[Event]) -> None:
        """They were not taken: with the next word, then."""
        for each in events:
            message = each.message if not each.message.startswith(COMBINED) else COMBINED
            key = ((each.type, each.reason, each.path), message)
            newer = self._waiting.get(key)
            self._waiting[key] = msgspec.structs.replace(each, count=each.count + (newer.count if newer else 0))

    def _message(self, sort: _Sort, text: str) -> str:
        if (sort, text) in self._known or (sort, text) in self._waiting:
            return text
        self._sorts[sort] = self._sorts.get(sort, 0) + 1
        return text if self._sorts[sort] <= MANY else COMBINED + text

    def _is_allowed(self, reason: str, now: datetime) -> bool:
        tokens, since = self._allowed.get(reason, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL)
        self._allowed[reason] = (tokens - 1 if tokens >= 1 else tokens, now)
        return tokens >= 1
