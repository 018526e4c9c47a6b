"""The Event kind of events.k8s.io/v1: the same events as in core/v1, under newer names. Stored as those."""

from collections.abc import Iterator
from typing import Any

from app.kinds.core import event as core
from app.kinds.core.event_v1_schema import Event, EventSeries
from app.machinery import name_validation
from app.machinery.base import (
    Kind,
)
from app.machinery.errors import Cause, invalid, required
from app.machinery.meta.metadata_validation import IMMUTABLE


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
        series=_series(stored),
        action=stored.action,
        related=stored.related,
        reporting_controller=stored.reporting_component,
        reporting_instance=stored.reporting_instance,
    )


def _series(stored: core.Event) -> EventSeries | None:
    """The stored version may leave its time out; typed clients of this one insist on it."""
    series = stored.series
    if series is None:
        return None
    seen_at = stored.last_timestamp or stored.metadata.creation_timestamp
    told = f"{seen_at.isoformat(timespec='microseconds')[:26]}Z" if seen_at else None
    return EventSeries(count=series.count, last_observed_time=series.last_observed_time or told)


GROUP = "events.k8s.io"


def validate(event: Event) -> list[Cause]:
    """The rules of both versions, under the names of the stored one, as Kubernetes tells them. Stricter when it is new."""
    causes = core.faults(inward(event), "reportingController")
    is_new = not event.metadata.resource_version
    return causes + list(_faults_in_new(event)) if is_new else causes


def _faults_in_new(event: Event) -> Iterator[Cause]:
    for fault in name_validation.dns_subdomain(event.metadata.name) if event.metadata.name else ():
        yield invalid("metadata.name", event.metadata.name, fault)
    yield from _faults_in_series(event)
    if not event.event_time:
        yield required("eventTime")
    if event.type not in ("Normal", "Warning"):
        yield invalid("type", "", f"has invalid value: {event.type}")
    for field, given in (
        ("firstTimestamp", event.deprecated_first_timestamp),
        ("lastTimestamp", event.deprecated_last_timestamp),
        ("count", event.deprecated_count),
        ("source", event.deprecated_source not in (None, core.NO_SOURCE)),
    ):
        if given:
            yield invalid(field, "", "needs to be unset")


def _faults_in_series(event: Event) -> Iterator[Cause]:
    if event.series and event.series.count < 2:
        yield invalid("series.count", "", "should be at least 2")
    if event.series and not event.series.last_observed_time:
        yield required("series.lastObservedTime")


# What an update may not change, by its name in the stored version. What is left is the series, and the metadata.
_FIXED = (
    ("involvedObject", "regarding", core.NO_REFERENCE),
    ("reason", "reason", ""),
    ("message", "note", ""),
    ("source", "deprecated_source", core.NO_SOURCE),
    ("firstTimestamp", "deprecated_first_timestamp", None),
    ("lastTimestamp", "deprecated_last_timestamp", None),
    ("count", "deprecated_count", 0),
    ("type", "type", ""),
    ("eventTime", "event_time", None),
    ("action", "action", ""),
    ("related", "related", None),
    ("reportingController", "reporting_controller", ""),
    ("reportingInstance", "reporting_instance", ""),
)


def validate_update(new: Event, old: Event) -> list[Cause]:
    causes = list(_faults_in_series(new)) if new.series != old.series else []
    for name, field, empty in _FIXED:
        value = getattr(new, field)
        if (value or empty) != (getattr(old, field) or empty):
            causes.append(invalid(name, value, IMMUTABLE))
    return causes


def _field(name: str) -> Any:
    return lambda event: core.FIELDS[name](inward(event))


KIND = Kind(
    type=Event,
    group=GROUP,
    version="v1",
    plural="events",
    short_names=("ev",),
    validate=validate,
    validate_update=validate_update,
    tracked=False,
    columns=core.KIND.columns,
    row=lambda event, now: core.row(inward(event), now),
    fields={name: _field(name) for name in core.FIELDS},
    field_aliases=core.FIELD_ALIASES,
    name_format="path",
    storage=core.KIND,
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
