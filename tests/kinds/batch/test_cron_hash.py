"""`H` in schedules: what it means, that it spreads, and that it never changes for one name."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.batch.cron_hash import is_hashed, resolve
from app.kinds.batch.cron_schedule import ScheduleError, parse
from app.kinds.batch.cronjob import KIND
from app.kinds.batch.cronjob_validation import CATCH_UP
from tests.kinds.tables.cronjobs import written

NOON = datetime(2026, 7, 24, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "resolved"),
    [
        pytest.param("H * * * *", "33 * * * *", id="a minute"),
        pytest.param("H/15 * * * *", "3-59/15 * * * *", id="a step"),
        pytest.param("H(0-29) * * * *", "3 * * * *", id="a range"),
        pytest.param("H(0-29)/10 * * * *", "3-29/10 * * * *", id="a step in a range"),
        pytest.param("0,H(30-59) * * * *", "0,33 * * * *", id="in a list"),
        pytest.param("TZ=Asia/Tokyo H 4 * * *", "TZ=Asia/Tokyo 33 4 * * *", id="after a zone"),
        pytest.param("0 4 * * THU", "0 4 * * THU", id="no hash: a day"),
        pytest.param("@hourly", "@hourly", id="no hash: a macro"),
        pytest.param("H H", "H H", id="not five fields: for the parser to refuse"),
    ],
)
def test_a_hash_becomes_numbers(text: str, resolved: str) -> None:
    """The numbers of this name are a promise: a new version must not move schedules."""
    assert resolve(text, "default/nightly") == resolved


@given(seed=some.text(max_size=40), step=some.integers(1, 60))
def test_a_step_comes_as_often_in_every_hour(seed: str, step: int) -> None:
    schedule = parse(resolve(f"H/{step} * * * *", seed))
    first = schedule.next_after(NOON, UTC)

    assert first is not None
    assert (first - NOON).total_seconds() <= 60 * step or first.hour == 13


@given(seed=some.text(max_size=40))
def test_a_day_of_the_month_comes_every_month(seed: str) -> None:
    minute, hour, day, month, weekday = map(int, resolve("H H H H H", seed).split())

    assert (minute < 60, hour < 24, 1 <= day <= 28, 1 <= month <= 12, weekday < 7) == (True,) * 5


def test_names_spread_over_the_hour() -> None:
    minutes = [int(resolve("H * * * *", f"default/job-{number}").split()[0]) for number in range(600)]

    assert set(minutes) == set(range(60))
    assert max(minutes.count(each) for each in set(minutes)) < 30


def test_fields_do_not_move_together() -> None:
    pairs = {tuple(resolve("H H * * *", f"default/job-{number}").split()[:2]) for number in range(600)}

    assert len(pairs) > 400


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("H(0-60) * * * *", "end of range (60) above maximum (59): H(0-60)"),
        ("* * H(0-5) * *", "beginning of range (0) below minimum (1): H(0-5)"),
        ("H(5-1) * * * *", "beginning of range (5) beyond end of range (1): H(5-1)"),
        ("H/90 * * * *", "step of range should be from 1 to 60: H/90"),
        ("H/0 * * * *", "step of range should be from 1 to 60: H/0"),
        ("Hx * * * *", "expected H, H/step, H(low-high) or H(low-high)/step, found Hx"),
        ("H(1) * * * *", "expected H, H/step, H(low-high) or H(low-high)/step, found H(1)"),
    ],
)
def test_a_wrong_hash_is_refused_at_admission(text: str, fault: str) -> None:
    assert is_hashed(text)
    with pytest.raises(ScheduleError) as error:
        resolve(text, "default/nightly")

    assert str(error.value) == fault
    causes = KIND.validate(KIND.prepare(written(spec={"schedule": text})))
    assert [(cause.field, cause.message) for cause in causes] == [
        ("spec.schedule", f'Invalid value: "{text}": {fault}')
    ]


def test_the_row_shows_both_schedules() -> None:
    cron_job = KIND.prepare(written(spec={"schedule": "H * * * *"}, namespace="default"))

    assert KIND.validate(cron_job) == []
    assert KIND.row(cron_job, NOON)[1] == "33 * * * * (H * * * *)"


@pytest.mark.parametrize(
    ("policy", "spec", "faults"),
    [
        ("none", {}, []),
        ("last", {"concurrencyPolicy": "Replace"}, []),
        ("all", {}, []),
        ("some", {}, ['Unsupported value: "some": supported values: "none", "last", "all"']),
        (
            "all",
            {"concurrencyPolicy": "Replace"},
            [
                'Invalid value: "all": may not be used with concurrencyPolicy Replace: '
                "each Job would delete the one before"
            ],
        ),
    ],
)
def test_the_catch_up_policy_is_validated(policy: str, spec: dict[str, str], faults: list[str]) -> None:
    causes = KIND.validate(KIND.prepare(written(spec=spec, annotations={CATCH_UP: policy})))

    assert [cause.message for cause in causes] == faults
    assert {cause.field for cause in causes} <= {f"metadata.annotations[{CATCH_UP}]"}
