"""The Event kind of core/v1."""

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


class EventSource(Struct):
    """TODO-DOC"""

    component: Annotated[str, at(1)] = ""
    host: Annotated[str, at(2)] = ""


class EventSeries(Struct):
    """TODO-DOC"""

    count: Annotated[Int32, at(1)] = 0
    last_observed_time: Annotated[MicroTime | None, at(2)] = None


class Event(Object):
    """TODO-DOC"""

    involved_object: Annotated[ObjectReference | None, at(2)] = None
    reason: Annotated[str, at(3)] = ""
    message: Annotated[str, at(4)] = ""
    source: Annotated[EventSource | None, at(5)] = None
    first_timestamp: Annotated[Time | None, at(6)] = None
    last_timestamp: Annotated[Time | None, at(7)] = None
    count: Annotated[Int32, at(8)] = 0
    type: Annotated[str, at(9)] = ""
    event_time: Annotated[MicroTime | None, at(10)] = None
    series: Annotated[EventSeries | None, at(11)] = None
    action: Annotated[str, at(12)] = ""
    related: Annotated[ObjectReference | None, at(13)] = None
    reporting_component: Annotated[str, at(14)] = ""
    reporting_instance: Annotated[str, at(15)] = ""
