"""Quantities: exact values, canonical texts, refusals."""

from fractions import Fraction
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.machinery.quantity import (
    BAD_FORMAT,
    BAD_NUMBER,
    BAD_SUFFIX,
    canonical,
    compare,
    fault,
    milli_value,
    parse,
    value,
)


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        pytest.param("1", 1, "1", id="plain"),
        pytest.param(2, 2, "2", id="a JSON integer"),
        pytest.param(0.5, Fraction(1, 2), "500m", id="a JSON number"),
        pytest.param(1e21, 10**21, "1e21", id="a large JSON number keeps its exponent form"),
        pytest.param("0.1", Fraction(1, 10), "100m", id="a fraction becomes thousandths"),
        pytest.param("1000m", 1, "1", id="thousandths become units"),
        pytest.param("1500m", Fraction(3, 2), "1500m", id="no fraction is written"),
        pytest.param("1.5Gi", 1536 * 1024**2, "1536Mi", id="binary goes down a suffix"),
        pytest.param("2048Ki", 2 * 1024**2, "2Mi", id="binary goes up a suffix"),
        pytest.param("512Ki", 512 * 1024, "512Ki", id="binary stays"),
        pytest.param("1Ei", 1024**6, "1Ei", id="the largest suffix"),
        pytest.param("0.5Ki", 512, "512", id="small binary is written in decimal"),
        pytest.param("0.0001Ki", Fraction(1024, 10000), "102400u", id="tiny binary is written in decimal"),
        pytest.param("1000k", 10**6, "1M", id="decimal goes up a suffix"),
        pytest.param("12e6", 12 * 10**6, "12e6", id="exponent form stays"),
        pytest.param("1E3", 1000, "1e3", id="a capital exponent"),
        pytest.param("1E", 10**18, "1E", id="a lone E is exa"),
        pytest.param("100e-3", Fraction(1, 10), "100e-3", id="negative exponent"),
        pytest.param(".5", Fraction(1, 2), "500m", id="no digit before the point"),
        pytest.param("5.", 5, "5", id="no digit after the point"),
        pytest.param("+5", 5, "5", id="plus sign"),
        pytest.param("-1.5", Fraction(-3, 2), "-1500m", id="minus sign"),
        pytest.param("-2Gi", -2 * 1024**3, "-2Gi", id="negative binary"),
        pytest.param("0Mi", 0, "0", id="zero has no suffix"),
        pytest.param("1n", Fraction(1, 10**9), "1n", id="the smallest"),
        pytest.param("0.1n", Fraction(1, 10**9), "1n", id="finer than that is rounded up"),
        pytest.param("-0.1n", Fraction(-1, 10**9), "-1n", id="rounded away from zero"),
        pytest.param("100Ei", 2**63 - 1, str(2**63 - 1), id="binary is capped"),
        pytest.param("1000E", 10**21, "1000E", id="beyond the last suffix nothing is lost"),
    ],
)
def test_reads_and_writes(quantity, value, text):
    assert parse(quantity) == value
    assert canonical(quantity) == text


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        *[
            pytest.param(each, BAD_FORMAT, id=repr(each))
            for each in ("", "abc", "1 ", " 1", "1.2.3", "٣", "1\n", ".", "1e1e1")
        ],
        *[pytest.param(each, BAD_SUFFIX, id=repr(each)) for each in ("1Kii", "1mm", "1e", "1K", "1ki")],
        pytest.param("1e999999", BAD_SUFFIX, id="an exponent that is too large"),
        pytest.param("1e-999999999999", BAD_SUFFIX, id="an exponent that is too small"),
        pytest.param("1e99Gi", BAD_FORMAT, id="an exponent and a suffix"),
        pytest.param("9" * 5000, BAD_NUMBER, id="thousands of digits"),
        pytest.param(10**5000, BAD_NUMBER, id="a JSON integer of thousands of digits"),
        pytest.param(float("inf"), BAD_FORMAT, id="infinity"),
        pytest.param(float("nan"), BAD_FORMAT, id="not a number"),
    ],
)
def test_refuses(quantity, text):
    assert fault(quantity) == text
    with pytest.raises(ValueError, match="quantit"):
        parse(quantity)


@pytest.mark.parametrize(
    ("quantity", "thousandths", "units"),
    [("100m", 100, 1), ("0.1m", 1, 1), ("1.5", 1500, 2), ("-1.5", -1500, -1), ("1Ki", 1024000, 1024), (0, 0, 0)],
)
def test_counts_are_rounded_up(quantity, thousandths, units):
    assert milli_value(quantity) == thousandths
    assert value(quantity) == units


def test_compares_values_not_texts():
    assert compare("1000m", "1") == 0
    assert compare("1Gi", "1G") == 1
    assert compare(0.5, "1") == -1


@given(some.text(max_size=200) | some.integers() | some.floats())
def test_is_refused_with_a_text_or_read(quantity):
    if fault(quantity):
        assert fault(quantity) in (BAD_FORMAT, BAD_NUMBER, BAD_SUFFIX)
    else:
        assert canonical(quantity)


@given(some.from_regex(r"-?[0-9]{1,9}(\.[0-9]{1,6})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|e[0-9])?", fullmatch=True))
def test_canonical_form_means_the_same_and_is_final(quantity):
    text = canonical(quantity)

    assert compare(text, quantity) == 0
    assert canonical(text) == text


def test_hostile_texts_are_refused_at_once():
    started = perf_counter()
    for hostile in ("9" * 10**7, "1e" + "9" * 10**6, "." * 10**6, 1 << 10**7):
        assert fault(hostile)
    assert perf_counter() - started < 1
