"""Log records say what the container wrote, byte by byte."""

from hypothesis import given
from hypothesis import strategies as some

from app.runtimes.logs.log_format import LINE_LIMIT, moment, raw_bytes, stamp
from tests.runtimes.conftest import raw

WHEN = moment(1_767_323_045_000_000_007)


def test_a_moment_has_nine_decimals() -> None:
    assert WHEN == b"2026-01-02T03:04:05.000000007Z"


def test_a_line_and_what_is_left_of_one() -> None:
    assert stamp(b"one\ntwo", "stderr", WHEN, last=False) == (WHEN + b" stderr F one\n", 4)
    assert stamp(b"two", "stderr", WHEN, last=False) == (b"", 0)
    assert stamp(b"two", "stderr", WHEN, last=True) == (WHEN + b" stderr P two\n", 3)


@given(text=some.binary(max_size=200) | some.text(alphabet="a\n\r ", max_size=60).map(str.encode))
def test_everything_comes_back_and_is_counted(text: bytes) -> None:
    records, left = b"", text
    while left:
        stamped = stamp(left, "stdout", WHEN, last=True)
        records, left = records + stamped.records, left[stamped.used :]

    assert raw(records) == text
    assert raw_bytes(records) == {"stdout": len(text), "stderr": 0}


def test_an_overlong_line_does_not_wait_for_its_end() -> None:
    assert stamp(b"x" * LINE_LIMIT, "stdout", WHEN, last=False).used == LINE_LIMIT
