"""Recovery of exit codes that a Docker Engine forgot, or reported only."""

from datetime import UTC, datetime, timedelta

import pytest

from app.runtimes.docker import recovery
from app.runtimes.docker.recovery import EngineLoss, ReportedEnd
from app.runtimes.docker.status import status_of
from tests.runtimes.conftest import a_key


def test_what_ended_without_anybody_s_knowing_is_unknown() -> None:
    state = {"Status": "exited", "StartedAt": "2026-01-01T00:00:00.5Z", "FinishedAt": "0001-01-01T00:00:00Z"}
    status = status_of(a_key(), {"Id": "x", "State": {**state, "ExitCode": 255}}, "", "")

    assert (status.exit_code, status.reason) == (None, "ContainerStatusUnknown")


LOST_AT = datetime(2026, 1, 1, 0, 0, 10, 300_000, UTC)


@pytest.mark.parametrize(
    ("began", "ended", "expected"),
    [
        pytest.param("00:00:10.123456789", "00:00:10.9", True, id="ran when the engine died"),
        pytest.param("00:00:10.300001001", "00:00:10.9", False, id="began later in the same second"),
        pytest.param("00:00:01", "00:00:08.299999", False, id="ended well before"),
        pytest.param("00:00:01", "00:00:08.3", True, id="ended just before, as the engine noted it down"),
    ],
)
def test_an_end_may_be_lost_if_it(began: str, ended: str, *, expected: bool) -> None:
    state = {"StartedAt": f"2026-01-01T{began}Z", "FinishedAt": f"2026-01-01T{ended}Z"}

    assert recovery.may_be_lost(state, EngineLoss(LOST_AT)) is expected
    assert recovery.may_be_lost(state, recovery.losses_before(LOST_AT)) is expected


def test_what_ends_long_after_the_engine_began_is_not_lost_by_that() -> None:
    state = {"StartedAt": "2026-01-01T00:00:01Z", "FinishedAt": "2026-01-01T00:01:10.4Z"}

    assert recovery.may_be_lost(state, EngineLoss(LOST_AT))
    assert not recovery.may_be_lost(state, recovery.losses_before(LOST_AT))


BEFORE, AFTER = LOST_AT - timedelta(milliseconds=200), LOST_AT + timedelta(milliseconds=200)


@pytest.mark.parametrize(
    ("says", "told", "expected"),
    [
        pytest.param(255, None, True, id="nothing was told"),
        pytest.param(255, ReportedEnd(BEFORE, 255), False, id="it told so before it was lost"),
        pytest.param(255, ReportedEnd(AFTER, 255), True, id="it told so when it was back"),
        pytest.param(255, ReportedEnd(AFTER), True, id="it told of the end when it was back"),
        pytest.param(255, ReportedEnd(AFTER, 3), False, id="it told something better"),
        pytest.param(3, None, False, id="it says something better"),
    ],
)
def test_how_a_container_ended_is_lost_if(says: int, told: ReportedEnd | None, *, expected: bool) -> None:
    state = {"Status": "exited", "StartedAt": "2026-01-01T00:00:01Z", "FinishedAt": "2026-01-01T00:00:10.9Z"}
    status = status_of(a_key(), {"Id": "x", "State": {**state, "ExitCode": says}}, "", "")

    assert recovery.is_lost(status, state, told, [EngineLoss(LOST_AT)]) is expected
    assert not recovery.is_lost(status, state, told, [])


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        pytest.param({"exitCode": "3", "name": "x"}, 3, id="by Docker"),
        pytest.param({"exitCode": "0"}, 0, id="that all is well"),
        pytest.param({"containerExitCode": "3"}, 3, id="by Podman"),
        pytest.param({"exitCode": "", "containerExitCode": "4"}, 4, id="by a Podman that tells it twice"),
        pytest.param({"name": "x"}, None, id="not at all"),
        pytest.param(None, None, id="without anything else"),
    ],
)
def test_an_exit_code_is_told(attributes: dict[str, str] | None, code: int | None) -> None:
    event = {"Actor": {"ID": "x", "Attributes": attributes}, "timeNano": 1_767_225_610_300_000_000}

    assert recovery.end_in(event) == ReportedEnd(LOST_AT, code)


def test_the_moment_of_an_event_is_told_in_whole_seconds_if_nothing_better_is_there() -> None:
    event = {"Actor": {"ID": "x"}, "time": 1_767_225_610}

    assert recovery.end_in(event) == ReportedEnd(LOST_AT.replace(microsecond=0))


SOON, EARLIER = "2026-01-01T00:00:12.5Z", "2026-01-01T00:00:09.9Z"  # an engine's return, and before it told of the end


@pytest.mark.parametrize(
    ("says", "told", "expected"),
    [
        pytest.param((0, SOON), 3, (3, "Error", 10), id="0 of one that failed"),
        pytest.param((255, SOON), 3, (3, "Error", 10), id="255 of one that failed"),
        pytest.param((255, SOON), 0, (0, "Completed", 10), id="255 of one that did not"),
        pytest.param((255, "0001-01-01T00:00:00Z"), 0, (0, "Completed", 10), id="that nobody knows"),
        pytest.param((0, SOON), 255, (255, "Error", 10), id="0 of one that ended with 255"),
        pytest.param((3, EARLIER), 3, (3, "Error", 9), id="the same"),
        pytest.param((137, EARLIER), 255, (137, "Error", 9), id="what it knew only after it told of the end"),
        pytest.param((0, EARLIER), 255, (0, "Completed", 9), id="likewise that all is well"),
        pytest.param((255, SOON), None, (255, "Error", 12), id="all that there is, for no code was told"),
    ],
)
def test_the_code_that_was_told_counts_if_a_returned_engine_says(
    says: tuple[int, str], told: int | None, expected: tuple[int, str, int]
) -> None:
    state = {"Status": "exited", "StartedAt": "2026-01-01T00:00:01Z", "ExitCode": says[0], "FinishedAt": says[1]}
    status = status_of(a_key(), {"Id": "x", "State": state}, "", "words")
    found = recovery.with_reported_end(status, state, ReportedEnd(LOST_AT, told))

    assert found.finished_at
    assert (found.exit_code, found.reason, found.finished_at.second) == expected
    assert (found.message, found.termination_message) == ("", "words")


def test_what_the_engine_says_of_memory_is_kept() -> None:
    state = {"Status": "exited", "StartedAt": "2026-01-01T00:00:01Z", "FinishedAt": SOON, "ExitCode": 255}
    state["OOMKilled"] = True  # type: ignore[assignment]
    status = status_of(a_key(), {"Id": "x", "State": state}, "", "")
    found = recovery.with_reported_end(status, state, ReportedEnd(LOST_AT, 137))

    assert (found.exit_code, found.reason) == (137, "OOMKilled")


def test_what_could_not_be_started_has_no_other_end() -> None:
    state = {"Status": "created", "StartedAt": "", "FinishedAt": "", "ExitCode": 127}
    status = status_of(a_key(), {"Id": "x", "State": state}, "no such file or directory", "")

    assert recovery.with_reported_end(status, state, ReportedEnd(LOST_AT, 3)) == status
