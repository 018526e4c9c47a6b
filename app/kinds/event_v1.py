"""The Event kind of events.k8s.io/v1: the same events as in core/v1, under newer names. Stored as those."""

from typing import Annotated, Any

from app.kinds import event as core
from app.kinds.base import (
    Int32,
    Kind,
    MicroTime,
    Object,
    ObjectReference,
    Struct,
    Time,
    at,
)
from app.kinds.errors import Cause, required
from app.kinds.event import EventSource


class EventSeries(Struct):
    """That the same thing happens over and over."""

    count: Annotated[Int32, at(1, "How often it has happened, up to the last observation.", required=True)] = 0
    last_observed_time: Annotated[MicroTime | None, at(2, "When it last happened.", required=True)] = None


class Event(Object):
    """Something that happened to an object, told for people to read."""

    event_time: Annotated[MicroTime | None, at(2, "When it happened, to the microsecond.", required=True)] = None
    series: Annotated[EventSeries | None, at(3, "How it repeats; nothing for a single event.")] = None
    reporting_controller: Annotated[str, at(4, "The controller that reports it, as domain/name.")] = ""
    reporting_instance: Annotated[str, at(5, "Which instance of that controller.")] = ""
    action: Annotated[str, at(6, "What was done, or failed, about the object.")] = ""
    reason: Annotated[str, at(7, "One word for why it was done.")] = ""
    regarding: Annotated[ObjectReference | None, at(8, "The object that it happened to.")] = None
    related: Annotated[ObjectReference | None, at(9, "A second object that the action was about.")] = None
    note: Annotated[str, at(10, "A sentence for people.")] = ""
    type: Annotated[str, at(11, "Normal or Warning.")] = ""
    deprecated_source: Annotated[EventSource | None, at(12, "Who reported it, in the older way.")] = None
    deprecated_first_timestamp: Annotated[Time | None, at(13, "When it first happened, in the older way.")] = None
    deprecated_last_timestamp: Annotated[Time | None, at(14, "When it last happened, in the older way.")] = None
    deprecated_count: Annotated[Int32, at(15, "How often it has happened, in the older way.")] = 0


def inward(event: Event) -> core.Event:
    series = event.series
    return core.Event(
        api_version=core.KIND.api_version,
        kind="Event",
        metadata=event.metadata,
        involved_object=event.regarding,
        reason=event.reason,
        message=event.note,
        source=event.deprecated_source,
        first_timestamp=event.deprecated_first_timestamp,
        last_timestamp=event.deprecated_last_timestamp,
        count=event.deprecated_count,
        type=event.type,
        event_time=event.event_time,
        series=core.EventSeries(count=series.count, last_observed_time=series.last_observed_time) if series else None,
        action=event.action,
        related=event.related,
        reporting_component=event.reporting_controller,
        reporting_instance=event.reporting_instance,
    )


def outward(stored: core.Event) -> Event:
    series = stored.series
    return Event(
        api_version=f"{GROUP}/v1",
        kind="Event",
        metadata=stored.metadata,
        regarding=stored.involved_object,
        reason=stored.reason,
        note=stored.message,
        deprecated_source=stored.source,
        deprecated_first_timestamp=stored.first_timestamp,
        deprecated_last_timestamp=stored.last_timestamp,
        deprecated_count=stored.count,
        type=stored.type,
        event_time=stored.event_time,
        series=EventSeries(count=series.count, last_observed_time=series.last_observed_time) if series else None,
        action=stored.action,
        related=stored.related,
        reporting_controller=stored.reporting_component,
        reporting_instance=stored.reporting_instance,
    )


GROUP = "events.k8s.io"
_RENAMED = {"involvedObject": "regarding", "message": "note"}


def validate(event: Event) -> list[Cause]:
    """The stored kind's rules, under this version's names. An event that is new-style must say when it was."""
    causes = [_renamed(cause) for cause in core.validate(inward(event))]
    is_old = event.deprecated_first_timestamp or event.deprecated_count
    return causes if event.event_time or is_old else [required("eventTime"), *causes]


def _renamed(cause: Cause) -> Cause:
    head, dot, rest = cause.field.partition(".")
    return cause._replace(field=_RENAMED.get(head, head) + dot + rest)


def _field(name: str) -> Any:
    return lambda event: core.FIELDS[name](inward(event))


KIND = Kind(
    type=Event,
    group=GROUP,
    version="v1",
    plural="events",
    short_names=("ev",),
    validate=validate,
    columns=core.KIND.columns,
    row=lambda event, now: core.row(inward(event), now),
    fields={name: _field(name) for name in core.FIELDS},
    name_format="path",
    stored_as=("", "events"),
    inward=inward,
    outward=outward,
    example="""\
apiVersion: events.k8s.io/v1
kind: Event
metadata:
  name: pi.17c4d5e6f7a8b9c1
  namespace: default
eventTime: "2025-01-02T03:04:05.678901Z"
reportingController: jobplane.dev/agent
reportingInstance: worker-1
regarding:
  apiVersion: v1
  kind: Pod
  namespace: default
  name: pi-x7k2p
action: Binding
reason: Scheduled
note: Assigned pi-x7k2p to worker-1
type: Normal
""",
)
