"""The Event kind of core/v1, which both versions of events are stored as."""

from collections.abc import Callable, Iterator
from datetime import datetime
from operator import attrgetter
from typing import Any

from app.kinds.core.event_schema import Event, EventSeries, EventSource
from app.machinery import name_validation
from app.machinery.base import (
    Column,
    Kind,
    MicroTime,
    ObjectReference,
    wire_name,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, invalid, required

__all__ = [
    "FIELDS",
    "FIELD_ALIASES",
    "KIND",
    "LONGEST",
    "LONGEST_MESSAGE",
    "NO_REFERENCE",
    "NO_SOURCE",
    "Event",
    "EventSeries",
    "EventSource",
    "faults",
    "involved",
    "row",
    "validate",
]


NO_REFERENCE, NO_SOURCE = ObjectReference(), EventSource()
LONGEST = 128  # of reason, action and reporting instance, where they are checked
LONGEST_MESSAGE = 1024


def involved(event: Event) -> ObjectReference:
    return event.involved_object or NO_REFERENCE


def validate(event: Event) -> list[Cause]:
    """Strict about events that give a time to the microsecond, as only clients of the newer API do."""
    return faults(event, "reportingComponent")


def faults(event: Event, reporter: str) -> list[Cause]:
    """Of an event of either version. `reporter` is what that version calls who reports it."""
    causes = list(_faults_in_namespace(event))
    return causes + list(_faults_in_new_style(event, reporter)) if event.event_time else causes


def _faults_in_namespace(event: Event) -> Iterator[Cause]:
    """Events live where their object does; those about objects without a namespace live in default."""
    home, other = event.metadata.namespace, involved(event).namespace
    homeless = {"", "default"} | ({"kube-system"} if event.event_time else set())
    wrong = home not in homeless if not other else home != other and not event.event_time
    if wrong:
        yield invalid("involvedObject.namespace", other, "does not match event.namespace")


def _faults_in_new_style(event: Event, reporter: str) -> Iterator[Cause]:
    if not event.reporting_component:
        yield required(reporter)
    for fault in name_validation.qualified_name(event.reporting_component):
        yield invalid(reporter, event.reporting_component, fault)
    for field, text in (
        ("reportingInstance", event.reporting_instance),
        ("action", event.action),
        ("reason", event.reason),
    ):
        if not text:
            yield required(field)
        yield from _too_long(field, text, LONGEST)
    yield from _too_long("message", event.message, LONGEST_MESSAGE)


def _too_long(field: str, text: str, limit: int) -> Iterator[Cause]:
    if len(text.encode()) > limit:
        yield invalid(field, "", f"can have at most {limit} characters")


def row(event: Event, now: datetime) -> list[Any]:
    first = age(event.first_timestamp or _moment(event.event_time), now)
    about = involved(event)
    return [
        _last_seen(event, now, first),
        event.type,
        event.reason,
        f"{about.kind.lower()}/{about.name}" if about.name else about.kind.lower(),
        about.field_path,
        _reporter(event),
        event.message.strip(),
        first,
        event.series.count if event.series else event.count or 1,
        event.metadata.name,
    ]


def _last_seen(event: Event, now: datetime, first: str) -> str:
    if event.series:
        return age(_moment(event.series.last_observed_time), now)
    return age(event.last_timestamp, now) if event.last_timestamp else first


def _moment(text: MicroTime | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _reporter(event: Event) -> str:
    source = event.source or NO_SOURCE
    who, where = source.component or event.reporting_component, source.host or event.reporting_instance
    return f"{who}, {where}" if where else who


def _source(event: Event) -> str:
    return (event.source or NO_SOURCE).component or event.reporting_component


def _of_involved(name: str) -> Callable[[Event], str]:
    """Read for every event that is stored, seven times: without a call in between."""
    read: Callable[[ObjectReference], str] = attrgetter(name)
    return lambda event: read(event.involved_object or NO_REFERENCE)


_REFERENCE = ("kind", "namespace", "name", "uid", "api_version", "resource_version", "field_path")

FIELDS: dict[str, Callable[[Event], str]] = {
    **{f"involvedObject.{wire_name(name)}": _of_involved(name) for name in _REFERENCE},
    "reason": attrgetter("reason"),
    "reportingComponent": attrgetter("reporting_component"),
    "source": _source,
    "type": attrgetter("type"),
}
# Names of events.k8s.io. Either version can be selected by the names of both.
FIELD_ALIASES = {
    **{f"regarding.{wire_name(name)}": f"involvedObject.{wire_name(name)}" for name in _REFERENCE},
    "reportingController": "reportingComponent",
}


KIND = Kind(
    type=Event,
    group="",
    version="v1",
    plural="events",
    short_names=("ev",),
    validate=validate,
    tracked=False,
    garbage_collection="Unsupported",
    columns=(
        Column(name="Last Seen", description="Time since it last happened."),
        Column(name="Type", description="Normal or Warning."),
        Column(name="Reason", description="One word for what happened."),
        Column(name="Object", description="The object that it happened to."),
        Column(name="Subobject", priority=1, description="The part of the object."),
        Column(name="Source", priority=1, description="Who reported it."),
        Column(name="Message", description="What happened."),
        Column(name="First Seen", priority=1, description="Time since it first happened."),
        Column(name="Count", priority=1, description="How often it has happened."),
        Column(name="Name", priority=1, format="name", description="Name of the event."),
    ),
    row=row,
    fields=FIELDS,
    field_aliases=FIELD_ALIASES,
    name_format="path",
    example="""\
apiVersion: v1
kind: Event
metadata:
  name: pi.17c4d5e6f7a8b9c0
  namespace: default
involvedObject:
  apiVersion: batch/v1
  kind: Job
  namespace: default
  name: pi
  uid: 2f0c4d3e-7a5b-4c1d-9e8f-001122334455
reason: SuccessfulCreate
message: "Created pod: pi-x7k2p"
type: Normal
source:
  component: job-controller
firstTimestamp: "2025-01-02T03:04:05Z"
lastTimestamp: "2025-01-02T03:04:05Z"
count: 1
""",
)
