"""Patterns of Go's regexp package."""

import pytest

from app.machinery.custom.patterns import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("^a$", "a", "a\n"),
        (r"^a\z", "a", "ab"),
        ("^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$", "Ab", "A-"),
        ("^((?i)a|b)c$", "Bc", "BC"),
        ("^[[:alpha:]]+$", "ab", "a1"),
        ("^[^]$(]$", "a", "]"),
        (r"^\$[$]$", "$$", "a$"),
        (r"^\pL$", "ä", "1"),
        (r"^\Q.*\E$", ".*", "ab"),
    ],
)
def test_a_pattern_means_what_it_means_in_go(pattern: str, matching: str, other: str) -> None:
    assert compile_pattern(pattern).search(matching)
    assert not compile_pattern(pattern).search(other)


@pytest.mark.parametrize("pattern", ["[", "(", "a)", "*"])
def test_a_pattern_that_is_none_is_an_error(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_a_pattern_that_nests_repetitions_takes_no_longer_than_its_text() -> None:
    """By Python's own `re`, this text takes longer than the age of the universe."""
    assert not compile_pattern("^(a+)+$").search("a" * 100_000 + "!")
