"""The Event kind of events.k8s.io/v1."""

from typing import Annotated

from app.kinds.base import (
    Int32,
    MicroTime,
    Object,
    ObjectReference,
    Struct,
    Time,
    at,
)
from app.kinds.event import EventSource


class EventSeries(Struct):
    """TODO-DOC"""

    count: Annotated[Int32, at(1)] = 0
    last_observed_time: Annotated[MicroTime | None, at(2)] = None


class Event(Object):
    """TODO-DOC"""

    event_time: Annotated[MicroTime | None, at(2)] = None
    series: Annotated[EventSeries | None, at(3)] = None
    reporting_controller: Annotated[str, at(4)] = ""
    reporting_instance: Annotated[str, at(5)] = ""
    action: Annotated[str, at(6)] = ""
    reason: Annotated[str, at(7)] = ""
    regarding: Annotated[ObjectReference | None, at(8)] = None
    related: Annotated[ObjectReference | None, at(9)] = None
    note: Annotated[str, at(10)] = ""
    type: Annotated[str, at(11)] = ""
    deprecated_source: Annotated[EventSource | None, at(12)] = None
    deprecated_first_timestamp: Annotated[Time | None, at(13)] = None
    deprecated_last_timestamp: Annotated[Time | None, at(14)] = None
    deprecated_count: Annotated[Int32, at(15)] = 0
