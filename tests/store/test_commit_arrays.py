"""Commit arrays: where each write of a batch stands, and which guards are sent once for all sets."""

from app.store import precondition
from app.store.commit_arrays import lay_out, parameters_of
from app.store.encryption.encryption import KeyRing
from tests.store.writes import create, key

HOME, OTHER = precondition(key("home")), precondition(key("other"))


def test_writes_stand_in_order() -> None:
    a, b, c = create("a"), create("b"), create("c")
    layout = lay_out([[a, b], [], [c]])
    assert layout.rows == [(0, a), (0, b), (2, c)]
    assert layout.items == [[1, 2], [], [3]]


def test_a_guard_that_all_sets_demand_stands_once_and_belongs_to_none() -> None:
    a, b, c = create("a"), create("b"), create("c")
    layout = lay_out([[a, HOME], [precondition(HOME.key), b, c]])
    assert layout.rows == [(None, HOME), (0, a), (1, b), (1, c)]
    assert layout.items == [[2, 1], [1, 3, 4]]


def test_guards_of_some_sets_stay_in_their_sets() -> None:
    a, b, c = create("a"), create("b"), create("c")
    assert lay_out([[a, HOME]]).rows == [(0, a), (0, HOME)]
    assert lay_out([[a, HOME], [b, OTHER]]).rows == [(0, a), (0, HOME), (1, b), (1, OTHER)]
    assert lay_out([[a, HOME], [b, HOME], []]).rows == [(0, a), (0, HOME), (1, b), (1, HOME)]
    layout = lay_out([[a, HOME, OTHER], [b, OTHER], [c, OTHER]])
    assert layout.rows == [(None, OTHER), (0, a), (0, HOME), (1, b), (2, c)]


def test_guards_of_one_object_that_expect_different_things_are_different() -> None:
    old, live = precondition(HOME.key, 7), HOME
    a, b = create("a"), create("b")
    assert lay_out([[a, old], [b, live]]).rows == [(0, a), (0, old), (1, b), (1, live)]


def test_a_batch_of_empty_sets_has_empty_columns() -> None:
    """The controllers commit one to wait for what was sent before."""
    *columns, old_indexes, owners, nodes, deleting, origin, dormant, expires_at = parameters_of(
        lay_out([[], []]), "me", KeyRing()
    )
    assert columns == [[]] * 9
    assert (old_indexes, owners, nodes, deleting, origin, dormant, expires_at) == (
        None,
        None,
        None,
        [],
        "me",
        None,
        None,
    )
