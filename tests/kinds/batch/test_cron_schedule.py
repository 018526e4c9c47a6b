"""Schedules: what is one, in the reference parser's words, and when it comes; against a walk through every minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from app.kinds.batch.cron_schedule import ScheduleError, parse

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
NOON = datetime(2026, 7, 24, 12, 0, 30, tzinfo=UTC)  # a Friday


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("", "empty spec string", id="nothing"),
        pytest.param("a b c", "expected exactly 5 fields, found 3: [a b c]", id="too few fields"),
        pytest.param("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]", id="seconds"),
        pytest.param("0 0 * * 7", "end of range (7) above maximum (6): 7", id="a seventh weekday"),
        pytest.param("0 0 0 * *", "beginning of range (0) below minimum (1): 0", id="a day zero"),
        pytest.param("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1", id="backwards"),
        pytest.param("*/0 * * * *", "step of range should be a positive number: */0", id="a step of nothing"),
        pytest.param("*/-3 * * * *", "negative number (-3) not allowed: -3", id="a step back"),
        pytest.param("1-2-3 * * * *", "too many hyphens: 1-2-3", id="three ends"),
        pytest.param("*/2/3 * * * *", "too many slashes: */2/3", id="two steps"),
        pytest.param(
            "x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax', id="a letter"
        ),
        pytest.param("@often", "unrecognized descriptor: @often", id="an unknown word"),
        pytest.param("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"', id="no unit"),
        pytest.param(
            "@every 5d", 'failed to parse duration @every 5d: time: unknown unit "d" in duration "5d"', id="days"
        ),
        pytest.param("@every x", 'failed to parse duration @every x: time: invalid duration "x"', id="no duration"),
        pytest.param("TZ=Mars 0 0 * * *", "provided bad location Mars: unknown time zone Mars", id="no such zone"),
    ],
)
def test_this_is_no_schedule(text: str, fault: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse(text)

    assert str(error.value) == fault


@pytest.mark.parametrize("text", ["TZ=UTC", "1," * 10_000 + " * * * *"])
def test_what_would_upset_the_parser_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="invalid schedule format"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("* * * * *", "2026-07-24T12:01", id="every minute"),
        pytest.param("0 12 * * *", "2026-07-25T12:00", id="not the minute that has begun"),
        pytest.param("*/20 * * * *", "2026-07-24T12:20", id="a step"),
        pytest.param("50/5 * * * *", "2026-07-24T12:50", id="a step from a number on"),
        pytest.param("0 0 ? AUG *", "2026-08-01T00:00", id="names and a question mark"),
        pytest.param("0 0 * * mon-tue", "2026-07-27T00:00", id="a range of names"),
        pytest.param("0 0 13 * 5", "2026-07-31T00:00", id="either of the days: a Friday"),
        pytest.param("0 0 25 * 0", "2026-07-25T00:00", id="either of the days: the date"),
        pytest.param("0 0 */1 * 1", "2026-07-27T00:00", id="a step of one demands nothing"),
        pytest.param("0 0 */2 * 1", "2026-07-25T00:00", id="a step of two does"),
        pytest.param("0 0 29 2 *", "2028-02-29T00:00", id="a leap day"),
        pytest.param("@hourly", "2026-07-24T13:00", id="hourly"),
        pytest.param("@daily", "2026-07-25T00:00", id="daily"),
        pytest.param("@weekly", "2026-07-26T00:00", id="weekly"),
        pytest.param("@monthly", "2026-08-01T00:00", id="monthly"),
        pytest.param("@yearly", "2027-01-01T00:00", id="yearly"),
        pytest.param("@every 90m", "2026-07-24T13:30:30", id="every so often"),
        pytest.param("@every 1.9s", "2026-07-24T12:00:31", id="every so often, in whole seconds"),
        pytest.param("@every 1ms", "2026-07-24T12:00:31", id="every second at most"),
        pytest.param("TZ=Asia/Tokyo 0 0 * * *", "2026-07-24T15:00", id="in a zone of its own"),
    ],
)
def test_the_next_time(text: str, expected: str) -> None:
    assert parse(text).next_after(NOON, UTC) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["0 0 30 2 *", ", * * * *", "* * , * *"])
def test_what_never_comes(text: str) -> None:
    assert parse(text).next_after(NOON, UTC) is None


def times(text: str, start: str, zone: ZoneInfo, count: int) -> list[str]:
    """The next so many times as a clock in the zone shows them."""
    moment, shown = datetime.fromisoformat(start).replace(tzinfo=zone), []
    for _ in range(count):
        moment = parse(text).next_after(moment, zone)
        shown.append(moment.astimezone(zone).strftime("%d %H:%M %Z"))
    return shown


def test_an_hour_that_the_clock_skips_is_skipped() -> None:
    assert times("30 2 * * *", "2026-03-28T00:00", BERLIN, 2) == ["28 02:30 CET", "30 02:30 CEST"]


def test_an_hour_that_the_clock_repeats_comes_twice() -> None:
    shown = times("30 1 * * *", "2026-10-31T12:00", NEW_YORK, 3)

    assert shown == ["01 01:30 EDT", "01 01:30 EST", "02 01:30 EST"]


def test_a_day_that_a_zone_left_out_ends_nothing() -> None:
    assert times("0 0 * * 6", "2011-12-29T12:00", ZoneInfo("Pacific/Apia"), 1) == ["31 00:00 +14"]


FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


@some.composite
def field(draw: some.DrawFn, low: int, high: int) -> tuple[str, set[int], bool]:
    """A field, the values that it means, and whether it demands any."""
    if draw(some.booleans()):
        return "*", set(range(low, high + 1)), False
    first = draw(some.integers(low, high))
    last, step = draw(some.integers(first, high)), draw(some.integers(1, 9))
    return f"{first}-{last}/{step}", set(range(first, last + 1, step)), True


def matches(moment: datetime, wanted: list[tuple[str, set[int], bool]]) -> bool:
    shown = (moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)
    minute, hour, day, month, weekday = (value in values for value, (_, values, _) in zip(shown, wanted, strict=True))
    either = wanted[2][2] and wanted[4][2]
    return minute and hour and month and ((day or weekday) if either else (day and weekday))


@given(
    wanted=some.tuples(*(field(low, high) for low, high in FIELDS)).map(list),
    start=some.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=some.just(UTC)),  # noqa: DTZ001
)
def test_it_is_the_first_minute_that_matches(wanted: list[tuple[str, set[int], bool]], start: datetime) -> None:
    found = parse(" ".join(text for text, _, _ in wanted)).next_after(start, UTC)

    assume(found is not None and found - start < timedelta(days=20))
    assert found is not None
    assert found > start
    assert matches(found, wanted)
    minute = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while minute < found:
        assert not matches(minute, wanted)
        minute += timedelta(minutes=1)
