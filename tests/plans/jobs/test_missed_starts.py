"""Which scheduled time is due: the latest that was missed, however many were."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kinds.batch.cron_schedule import ScheduleError, parse
from app.plans.jobs.catch_up import Rule, Ticks, find_ticks
from app.plans.jobs.missed_starts import Due, find_due

NOON = datetime(2026, 7, 24, 12, 0, tzinfo=UTC)  # a Friday


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"{text}+00:00")


def found(schedule: str, since: datetime, now: datetime, deadline: int | None = None) -> Due:
    return find_due(parse(schedule), UTC, since, now, None if deadline is None else timedelta(seconds=deadline))


DAY = "2026-07-24T"


@pytest.mark.parametrize(
    ("schedule", "since", "now", "scheduled_at", "missed", "next_at"),
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
def test_the_latest_missed_start_is_due(
    schedule: str, since: str, now: str, scheduled_at: str, missed: int, next_at: str
) -> None:
    answer = found(schedule, at(since), at(now))

    assert (answer.scheduled_at, answer.next_at) == (at(scheduled_at) if scheduled_at else None, at(next_at))
    assert answer.missed == pytest.approx(missed, rel=0.1)


def test_what_is_older_than_the_deadline_does_not_count() -> None:
    assert found("0 * * * *", NOON - timedelta(hours=5), NOON + timedelta(minutes=1), 30).scheduled_at is None
    assert found("0 * * * *", NOON - timedelta(hours=5), NOON + timedelta(seconds=20), 30).scheduled_at == NOON


def test_when_to_look_again_does_not_depend_on_the_deadline() -> None:
    since, now = NOON - timedelta(minutes=5), NOON
    assert found("@every 7m", since, now, 30).next_at == found("@every 7m", since, now).next_at


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", ", * * * *"])
def test_a_schedule_that_never_fires_is_refused(schedule: str) -> None:
    with pytest.raises(ScheduleError):
        found(schedule, NOON, NOON + timedelta(days=1))


# And how many days are enough to see it through whatever it does differently from one time to the next.
SCHEDULES = {
    "*/7 * * * *": 3,
    "0,1 9 * * 1": 30,
    "5 4 1 * *": 90,
    "0 9-17 * * 1-5": 30,
    "@every 41m": 9,
    "0 0 13 * 5": 90,
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@given(part=st.floats(0, 1))
def test_the_latest_start_is_the_one_that_stepping_finds(schedule: str, part: float) -> None:
    now = NOON + timedelta(seconds=int(part * SCHEDULES[schedule] * 86_400))
    expected, step, parsed = None, NOON, parse(schedule)
    while (step := parsed.next_after(step, UTC)) <= now:
        expected = step

    assert found(schedule, NOON, now)[0] == expected


# --- what becomes of all that was missed, by the policy of the CronJob


def ticks(policy: str, since: str, schedule: str = "0 * * * *", **rule: Any) -> Ticks:
    """At half past twelve."""
    return find_ticks(Rule(policy, **rule), parse(schedule), UTC, at(DAY + since), at(DAY + "12:30"))


def hours(found: Ticks) -> list[int]:
    return [each.hour for each in found.starts]


@pytest.mark.parametrize(
    ("policy", "rule", "starts", "skipped"),
    [
        pytest.param("none", {}, [], 3, id="none starts nothing late"),
        pytest.param("none", {"deadline": timedelta(hours=1)}, [12], 2, id="none, within its deadline"),
        pytest.param("last", {}, [12], 2, id="last"),
        pytest.param("last", {"deadline": timedelta(minutes=10)}, [], 3, id="last, but too late"),
        pytest.param("last", {"is_blocked": True}, [], 2, id="last waits for the active Job"),
        pytest.param("all", {}, [10, 11, 12], 0, id="all"),
        pytest.param("all", {"room": 2}, [10, 11], 0, id="all, as many as there is room for"),
        pytest.param("all", {"is_blocked": True}, [], 0, id="all wait for the active Job"),
        pytest.param("all", {"deadline": timedelta(minutes=100)}, [11, 12], 1, id="all that are not too late"),
    ],
)
def test_what_was_missed_is_started_or_skipped(
    policy: str, rule: dict[str, Any], starts: list[int], skipped: int
) -> None:
    answer = ticks(policy, "09:00", **rule)

    assert hours(answer) == starts
    assert (answer.skipped.count if answer.skipped else 0) == skipped
    assert answer.next_at == at(DAY + "13:00")


@pytest.mark.parametrize("policy", ["none", "last", "all"])
def test_what_is_on_time_is_started_under_every_policy(policy: str) -> None:
    answer = ticks(policy, "12:00", schedule="30 * * * *")

    assert answer.starts == (at(DAY + "12:30"),)
    assert answer.skipped is None


def test_skipped_times_are_named_or_counted() -> None:
    assert [ticks(policy, since).skipped.message for policy, since in (("last", "10:30"), ("last", "09:00"))] == [
        "Skipped the scheduled time 2026-07-24T11:00:00Z: only the latest missed time is started",
        "Skipped 2 scheduled times (2026-07-24T10:00:00Z, 2026-07-24T11:00:00Z): only the latest missed time is started",
    ]
    assert ticks("last", "11:00", schedule="* * * * *").skipped.message == (
        "Skipped 89 scheduled times from 2026-07-24T11:01:00Z to 2026-07-24T12:29:00Z: only the latest missed time is started"
    )
    assert ticks("last", "09:00", schedule="* * * * *").skipped.message == (
        "Skipped about 209 scheduled times from 2026-07-24T09:01:00Z to 2026-07-24T12:29:00Z: "
        "only the latest missed time is started"
    )


@given(policy=st.sampled_from(["none", "last", "all"]), missed=st.integers(1, 90), room=st.integers(1, 10))
def test_each_time_is_started_once_or_skipped_once(policy: str, missed: int, room: int) -> None:
    since, started, skipped, schedule = NOON, [], 0, parse("*/2 * * * *")
    now = NOON + timedelta(minutes=2 * missed)
    for _ in range(missed + 1):
        answer = find_ticks(Rule(policy, room=room), schedule, UTC, since, now)
        started += answer.starts
        skipped += answer.skipped.count if answer.skipped else 0
        since = max([since, *answer.starts, *([answer.skipped.last] if answer.skipped else [])])

    assert started == sorted(set(started))
    assert len(started) + skipped == missed
    assert policy != "all" or skipped == 0
