"""Index lists: how they read, print and combine, compared with Python's own sets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.batch.completion_indexes import Indexes, IndexListError

sets = some.sets(some.integers(0, 40))
limits = some.integers(0, 45)


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        pytest.param([], "", id="nothing is the empty text"),
        pytest.param([4], "4", id="one index is itself"),
        pytest.param([1, 2], "1,2", id="two in a row have a comma"),
        pytest.param([1, 2, 3], "1-3", id="three in a row have a dash"),
        pytest.param([1, 3, 4, 5, 7, 8], "1,3-5,7,8", id="kinds mix"),
        pytest.param(range(100_000), "0-99999", id="all of the largest Job is short"),
    ],
)
def test_prints_and_reads_back(indexes, text):
    assert str(Indexes.of(indexes)) == text
    assert Indexes.parse(text) == Indexes.of(indexes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have at most two parts '
            "separated by '-'",
            id="an interval has two ends",
        ),
        pytest.param("x", 'cannot convert string to integer for index: "x"', id="letters are no index"),
        pytest.param("1,", 'cannot convert string to integer for index: ""', id="a comma wants something after it"),
        pytest.param("-1", 'cannot convert string to integer for index: ""', id="a minus is not a sign"),
        pytest.param("1, 2", 'cannot convert string to integer for index: " 2"', id="blanks are not skipped"),
        pytest.param("1_0", 'cannot convert string to integer for index: "1_0"', id="underscores are not digits"),
        pytest.param("10", 'too large index: "10"', id="an index is less than completions"),
        pytest.param("2-10", 'too large index: "10"', id="the end of an interval is less than completions"),
        pytest.param("5,3", "non-increasing order, previous: 5, current: 3", id="indexes ascend"),
        pytest.param("5,5", "non-increasing order, previous: 5, current: 5", id="indexes do not repeat"),
        pytest.param("3-3", "non-increasing order, previous: 3, current: 3", id="an interval has two different ends"),
        pytest.param("1-4,3", "non-increasing order, previous: 4, current: 3", id="intervals do not overlap"),
    ],
)
def test_refuses(text, why):
    with pytest.raises(IndexListError) as caught:
        Indexes.parse(text, below=10)

    assert str(caught.value) == why


def test_reads_any_index_when_there_is_no_limit():
    assert Indexes.parse("7,1000000") == Indexes.of([7, 1_000_000])


def test_touching_intervals_become_one():
    assert Indexes.parse("1,2,3-5").intervals == ((1, 5),)


@given(text=some.text("0123,-", max_size=7))
def test_a_list_is_read_or_refused_as_its_numbers_say(text):
    """One that is read names its indexes in order, each once."""
    fragments = [fragment.split("-") for fragment in text.split(",")] if text else []
    numbers = [number for fragment in fragments for number in fragment]
    proper = all(map(str.isdigit, numbers)) and all(len(each) <= 2 for each in fragments)
    ascends = proper and all(int(a) < int(b) for a, b in pairwise(numbers))
    if not ascends:
        with pytest.raises(IndexListError):
            Indexes.parse(text)
        return
    every = {each for ends in fragments for each in range(int(ends[0]), int(ends[-1]) + 1)}
    assert Indexes.parse(text) == Indexes.of(every)


@given(numbers=sets)
def test_text_stands_for_the_same_set(numbers):
    assert Indexes.parse(str(Indexes.of(numbers)), below=41) == Indexes.of(numbers)


@given(numbers=sets, index=some.integers(-2, 45))
def test_holds_what_a_set_holds(numbers, index):
    indexes = Indexes.of(numbers)

    assert (index in indexes) == (index in numbers)
    assert len(indexes) == len(numbers)
    assert list(indexes) == sorted(numbers)
    assert bool(indexes) == bool(numbers)


@given(ours=sets, theirs=sets)
def test_combines_as_sets_do(ours, theirs):
    one, other = Indexes.of(ours), Indexes.of(theirs)

    assert one.union(other) == one.add(theirs) == Indexes.of(ours | theirs)
    assert one.intersection(other) == Indexes.of(ours & theirs)


@given(numbers=sets, below=limits)
def test_clip_keeps_what_is_below(numbers, below):
    assert Indexes.of(numbers).clip(below) == Indexes.of({each for each in numbers if each < below})


@given(numbers=sets, below=limits, taken=sets, count=some.integers(-1, 12))
def test_first_missing_are_the_lowest_that_neither_has(numbers, below, taken, count):
    free = sorted(set(range(below)) - numbers - taken)

    assert Indexes.of(numbers).missing(below) == Indexes.of(set(range(below)) - numbers)
    assert Indexes.of(numbers).first_missing(count, below, taken) == free[: max(count, 0)]


@given(one=sets, other=sets, below=limits)
def test_results_stay_in_order_and_apart(one, other, below):
    ours, theirs = Indexes.of(one), Indexes.of(other)
    for result in (ours.union(theirs), ours.intersection(theirs), ours.clip(below)):
        assert result == Indexes.of(result)


def test_a_hundred_thousand_indexes_cost_one_interval():
    done = Indexes.parse("0-99998", below=100_000)

    assert done.first_missing(5, 100_000) == [99_999]
    assert done.add([99_999]).intervals == ((0, 99_999),)
