"""Which slot of a schedule is due: the latest that was missed, however many were."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.kinds.cron_schedule import ScheduleError, parse
from app.plans.slots import Due, due

NOON = datetime(2026, 7, 24, 12, 0, tzinfo=UTC)  # a Friday


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def found(schedule: str, since: datetime, now: datetime, deadline: int | None = None) -> Due:
    return due(parse(schedule), UTC, since, now, None if deadline is None else timedelta(seconds=deadline))


DAY = "2026-07-24T"


@pytest.mark.parametrize(
    ("schedule", "since", "now", "slot", "missed", "next_at"),
    [
        pytest.param("0 * * * *", DAY + "11:30", DAY + "11:59", "", 0, DAY + "12:00", id="none yet"),
        pytest.param("0 * * * *", DAY + "11:30", DAY + "12:00", DAY + "12:00", 1, DAY + "13:00", id="this second"),
        pytest.param("0 * * * *", DAY + "11:00", DAY + "12:30", DAY + "12:00", 1, DAY + "13:00", id="one"),
        pytest.param("0 * * * *", DAY + "01:00", DAY + "12:30", DAY + "12:00", 11, DAY + "13:00", id="the last of many"),
        pytest.param("* * * * *", "2026-07-20T00:00", DAY + "12:00", DAY + "12:00", 6480, DAY + "12:01", id="of very many"),
        pytest.param("@every 7m", DAY + "11:00", DAY + "12:00", DAY + "11:56", 8, DAY + "12:03", id="in the last start's rhythm"),
        pytest.param(
            "0,1 9 * * 1", "2026-07-20T08:00", "2026-07-26T12:00", "2026-07-20T09:01", 8820, "2026-07-27T09:00", id="no rhythm"
        ),
        pytest.param("0 9-17 * * *", "2026-07-21T16:30", DAY + "12:30", DAY + "12:00", 5, DAY + "13:00", id="after a night"),
    ],
)  # fmt: skip
def test_the_latest_missed_slot_is_due(
    schedule: str, since: str, now: str, slot: str, missed: int, next_at: str
) -> None:
    answer = found(schedule, at(since), at(now))

    assert (answer.slot, answer.next_at) == (at(slot) if slot else None, at(next_at))
    assert answer.missed == pytest.approx(missed, rel=0.1)


def test_what_is_older_than_the_deadline_does_not_count() -> None:
    assert found("0 * * * *", NOON - timedelta(hours=5), NOON + timedelta(minutes=1), 30).slot is None
    assert found("0 * * * *", NOON - timedelta(hours=5), NOON + timedelta(seconds=20), 30).slot == NOON


def test_when_to_look_again_does_not_depend_on_the_deadline() -> None:
    since, now = NOON - timedelta(minutes=5), NOON
    assert found("@every 7m", since, now, 30).next_at == found("@every 7m", since, now).next_at


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", ", * * * *"])
def test_a_schedule_that_never_fires_is_refused(schedule: str) -> None:
    with pytest.raises(ScheduleError):
        found(schedule, NOON, NOON + timedelta(days=1))


@given(
    schedule=st.sampled_from(["*/7 * * * *", "0,1 9 * * 1", "5 4 1 * *", "0 9-17 * * 1-5", "@every 41m", "0 0 13 * 5"]),
    span=st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=90)),
)
@settings(max_examples=60, deadline=None)
def test_the_slot_is_the_one_that_stepping_finds(schedule: str, span: timedelta) -> None:
    now = NOON + timedelta(seconds=int(span.total_seconds()))
    expected, step = None, NOON
    while (step := parse(schedule).next_after(step, UTC)) <= now:
        expected = step

    assert found(schedule, NOON, now)[0] == expected
