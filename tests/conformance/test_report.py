"""The page tells what has happened, and nothing else."""

import pytest

from tests.conformance.report import BY_HAND, FAILS, NO_TEST, PASSES, Results, Row


def results(*outcomes: str) -> Results:
    return Results(titles={"J1": "a title"}, outcomes={"J1": [*outcomes]} if outcomes else {})


@pytest.mark.parametrize(
    ("outcomes", "told"),
    [
        pytest.param([PASSES], PASSES, id="what passes passes"),
        pytest.param([PASSES, FAILS, PASSES], FAILS, id="one failure decides"),
        pytest.param(["not run: gated"], "not run: gated", id="what was skipped is told with the reason"),
        pytest.param(["not run: gated", PASSES], PASSES, id="what was run decides"),
    ],
)
def test_the_result_of_a_scenario_with_several_tests(outcomes: list[str], told: str) -> None:
    assert results(*outcomes).row("J1", {}) == Row("J1", "a title", told)


def test_what_a_run_has_left_out_is_told_as_before() -> None:
    committed = str(Row("J1", "a title", PASSES))

    page = results().page(committed)

    assert committed in page.splitlines()
    assert "1 of 29 pass." in page
    assert results().page(page) == page


def test_what_is_written_by_hand_is_kept() -> None:
    page = f"{results().page('')}\n{BY_HAND}A title\n\nText.\n"

    assert results().page(page) == page


def test_a_scenario_whose_test_has_gone_has_none() -> None:
    assert str(Row("J2", "", NO_TEST)) in results().page(str(Row("J2", "gone", PASSES))).splitlines()


def test_what_several_processes_have_shown_is_one_result() -> None:
    both = results(PASSES)
    both.join(results(FAILS).told())
    both.join(Results(titles={"J3": "another"}, outcomes={"J3": [PASSES]}).told())

    assert [both.row(number, {}).result for number in ("J1", "J2", "J3")] == [FAILS, NO_TEST, PASSES]
