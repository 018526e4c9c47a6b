"""Tables never are wider than the terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.main.commands.terminal.tables import GAP, NARROWEST, format_table

ROWS = [["train", "pending: waits for 2 free CPUs: 0/1 nodes are available: 1 Insufficient cpu", "0/1"]]


def test_without_a_width_nothing_is_cut() -> None:
    assert format_table(["NAME", "STATE", "DONE"], ROWS, None)[1] == "   ".join(ROWS[0])


def test_the_widest_column_is_cut_and_the_others_stay() -> None:
    header, row = format_table(["NAME", "STATE", "DONE"], ROWS, 40)
    assert row == "train   pending: waits for 2 fre…   0/1"
    assert header == "NAME    STATE                       DONE"


def test_cells_of_several_lines_become_one() -> None:
    assert format_table(["A"], [["x\n  y"]], None) == ["A", "x y"]


@given(st.lists(st.lists(st.text(max_size=60), min_size=3, max_size=3), max_size=5), st.integers(30, 120))
def test_no_line_is_wider_than_the_terminal(rows: list[list[str]], width: int) -> None:
    least = 3 * NARROWEST + 2 * len(GAP)
    assert max(map(len, format_table(["A", "B", "C"], rows, width))) <= max(width, least)


@pytest.mark.parametrize("width", [1, 10])
def test_a_terminal_that_is_too_narrow_still_shows_the_beginning_of_each_cell(width: int) -> None:
    assert format_table(["NAME", "STATE", "DONE"], ROWS, width)[1].startswith("train   pending")
