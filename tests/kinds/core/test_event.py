"""Events of both versions: what the older lets pass, and what the newer insists on."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event_v1 import KIND as NEW_EVENTS
from app.kinds.core.event_v1 import inward, outward

AT = "2025-01-02T03:04:05.000000Z"
NEW: dict[str, Any] = {
    "metadata": {"name": "pi.1", "namespace": "default"},
    "eventTime": AT,
    "reportingController": "example.com/controller",
    "reportingInstance": "controller-1",
    "action": "Binding",
    "reason": "Scheduled",
    "note": "Assigned",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "pi"},
}


def new(**changed: Any) -> Any:
    return msgspec.convert(NEW | changed, NEW_EVENTS.type)


def stored(event: Any) -> Any:
    return replace(event, metadata=replace(event.metadata, resource_version="7"))


def said(causes: list[Any]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("home", "other", "time", "right"),
    [
        pytest.param("a", "a", None, True, id="with its object"),
        pytest.param("default", "", None, True, id="in default without a namespace"),
        pytest.param("kube-system", "", None, False, id="not in kube-system"),
        pytest.param("kube-system", "", AT, True, id="unless it is of the newer sort"),
        pytest.param("a", "", None, False, id="nor anywhere else"),
        pytest.param("a", "", AT, False, id="whichever sort"),
        pytest.param("default", "a", None, False, id="not apart from its object"),
        pytest.param("default", "a", AT, True, id="which the newer sort may be"),
    ],
)
def test_where_an_event_lives(home: str, other: str, time: str | None, right: bool) -> None:
    doc = {"metadata": {"namespace": home}, "involvedObject": {"namespace": other}, "eventTime": time}

    fields = [cause.field for cause in EVENTS.validate(msgspec.convert(doc, EVENTS.type))]

    assert ("involvedObject.namespace" not in fields) == right


def test_the_older_version_hardly_looks() -> None:
    event = msgspec.convert({"metadata": {"namespace": "default"}, "type": "Odd", "message": "x" * 5000}, EVENTS.type)

    assert EVENTS.validate(event) == []
    assert EVENTS.validate_update(replace(event, message="other"), event) == []


def test_who_gives_the_time_to_the_microsecond_must_say_by_whom() -> None:
    event = msgspec.convert({"metadata": {"namespace": "default"}, "eventTime": AT, "message": "x" * 1025}, EVENTS.type)

    fields = [cause.field for cause in EVENTS.validate(event)]

    assert list(dict.fromkeys(fields)) == ["reportingComponent", "reportingInstance", "action", "reason", "message"]


def test_a_whole_event_of_the_newer_sort_is_valid() -> None:
    assert NEW_EVENTS.validate(new()) == []
    assert NEW_EVENTS.validate(new(series={"count": 2, "lastObservedTime": AT})) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({"type": "Odd"}, 'type: Invalid value: "": has invalid value: Odd', id="an odd type"),
        pytest.param(
            {"series": {"count": 1, "lastObservedTime": AT}},
            'series.count: Invalid value: "": should be at least 2',
            id="a series of one",
        ),
        pytest.param({"series": {"count": 2}}, "series.lastObservedTime: Required value", id="a series without time"),
        pytest.param({"deprecatedCount": 1}, 'count: Invalid value: "": needs to be unset', id="the older count"),
        pytest.param(
            {"deprecatedSource": {"component": "x"}},
            'source: Invalid value: "": needs to be unset',
            id="the older source",
        ),
        pytest.param(
            {"deprecatedFirstTimestamp": "2025-01-02T03:04:05Z"},
            'firstTimestamp: Invalid value: "": needs to be unset',
            id="the older time",
        ),
        pytest.param(
            {"note": "x" * 1025}, 'message: Invalid value: "": can have at most 1024 characters', id="a long note"
        ),
    ],
)
def test_the_newer_version_refuses(changed: dict[str, Any], told: str) -> None:
    assert said(NEW_EVENTS.validate(new(**changed))) == [told]


def test_a_new_event_needs_its_time() -> None:
    assert "eventTime: Required value" in said(NEW_EVENTS.validate(new(eventTime=None)))


def test_an_event_of_the_older_sort_can_be_updated_through_the_newer_version() -> None:
    old = stored(new(eventTime=None, deprecatedCount=3, deprecatedSource={"component": "x"}))

    assert NEW_EVENTS.validate(old) == []
    assert NEW_EVENTS.validate_update(old, old) == []


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"note": "other"}, "message"),
        ({"reason": "Other"}, "reason"),
        ({"type": "Warning"}, "type"),
        ({"regarding": {"name": "other"}}, "involvedObject"),
        ({"related": {"name": "other"}}, "related"),
        ({"eventTime": "2025-01-02T03:04:06.000000Z"}, "eventTime"),
        ({"action": "Other"}, "action"),
        ({"reportingController": "other"}, "reportingController"),
        ({"reportingInstance": "other"}, "reportingInstance"),
        ({"deprecatedCount": 4}, "count"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_newer_version_does_not_change(changed: dict[str, Any], field: str) -> None:
    (cause,) = NEW_EVENTS.validate_update(stored(new(**changed)), stored(new()))

    assert cause.field == field
    assert cause.message.endswith("field is immutable")


def test_the_series_may_change() -> None:
    series = {"count": 3, "lastObservedTime": AT}

    assert NEW_EVENTS.validate_update(stored(new(series=series)), stored(new())) == []
    broken = stored(new(series={"count": 1, "lastObservedTime": AT}))
    assert [cause.field for cause in NEW_EVENTS.validate_update(broken, stored(new()))] == ["series.count"]


def test_both_versions_say_the_same() -> None:
    event = new(series={"count": 3, "lastObservedTime": AT})

    core = inward(event)

    assert (core.series.count, core.message, core.reporting_component) == (3, "Assigned", "example.com/controller")
    assert replace(outward(core), api_version="", kind="") == event


def test_the_newer_version_always_says_when_a_series_last_went_on() -> None:
    older = msgspec.convert({"series": {"count": 2}, "lastTimestamp": "2025-01-02T03:04:05Z"}, EVENTS.type)

    assert outward(older).series.last_observed_time == "2025-01-02T03:04:05.000000Z"
