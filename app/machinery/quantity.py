"""Quantities of resources, such as 100m, 1.5Gi and 2e3: apimachinery's `resource.Quantity`.

Validation, quotas, the scheduler and metrics call this. Values are exact down to a billionth; finer ones are rounded away
from zero, as in Kubernetes. Text of any size is refused or parsed in bounded time. Errors are `ValueError`s with
Kubernetes' messages.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from app.machinery.base import Quantity

BAD_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_NUMBER = "unable to parse numeric part of quantity"
BAD_SUFFIX = "unable to parse quantity's suffix"

_FORMAT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]{1,9})")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

_NANO = 10**9
_MAX_BINARY = 2**63 - 1  # Kubernetes caps binary quantities here
_MAX_LENGTH = 128
_MAX_EXPONENT = 99  # the largest exponent, either way, that is worth computing


class _Amount(NamedTuple):
    nanos: int
    style: Literal["decimal", "binary", "exponent"]


def parse(quantity: Quantity) -> Fraction:
    """Return the exact value; ValueError if it is no quantity."""
    return Fraction(_parse_amount(quantity).nanos, _NANO)


def milli_value(quantity: Quantity) -> int:
    """Return thousandths, rounded up: CPU in millicores."""
    return -(-_parse_amount(quantity).nanos // 10**6)


def value(quantity: Quantity) -> int:
    """Return whole units, rounded up: memory in bytes, and every other resource."""
    return -(-_parse_amount(quantity).nanos // _NANO)


def compare(one: Quantity, other: Quantity) -> int:
    """Return -1, 0 or 1."""
    left, right = _parse_amount(one).nanos, _parse_amount(other).nanos
    return (left > right) - (left < right)


def add(one: Quantity, other: Quantity, times: int = 1) -> str:
    """Return `one + times * other` in canonical form, in the format of `one` unless that is zero."""
    left, right = _parse_amount(one), _parse_amount(other)
    style = left.style if left.nanos else right.style
    return _format(left.nanos + times * right.nanos, style)


def fault(quantity: Quantity) -> str:
    """Return why it is no quantity; empty if it is one."""
    try:
        _parse_amount(quantity)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=4096)
def canonical(quantity: Quantity) -> str:
    """Return the canonical form that Kubernetes stores: no fraction, the largest suffix without loss."""
    return _format(*_parse_amount(quantity))


def _format(nanos: int, style: Literal["decimal", "binary", "exponent"]) -> str:
    if style == "binary" and nanos % _NANO == 0 and abs(nanos) >= 1024 * _NANO:
        return _format_binary(nanos // _NANO)
    return _format_decimal(nanos, exponent_style=style == "exponent")


def _format_binary(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY[power]}"


def _format_decimal(nanos: int, *, exponent_style: bool) -> str:
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0 and (exponent_style or exponent < 18):
        nanos //= 1000
        exponent += 3
    if not exponent_style:
        return f"{nanos}{_SUFFIX_OF[exponent]}"
    return f"{nanos}e{exponent}" if exponent else str(nanos)


@lru_cache(maxsize=4096)
def _parse_amount(quantity: Quantity) -> _Amount:
    match = _FORMAT.fullmatch(_text(quantity))
    if not match:
        raise ValueError(BAD_FORMAT)
    sign, whole_digits, fraction_digits, suffix = match.groups(default="")
    digits = whole_digits + fraction_digits
    if not digits:
        raise ValueError(BAD_FORMAT)
    value, style = _scale(int(digits), -len(fraction_digits), suffix)
    return _Amount(-value if sign == "-" else value, style)


def _text(quantity: Quantity) -> str:
    if isinstance(quantity, int) and quantity.bit_length() > 4 * _MAX_LENGTH:
        raise ValueError(BAD_NUMBER)  # str() of a huge int is slow, and Python refuses the largest
    text = quantity if isinstance(quantity, str) else str(quantity)
    if len(text) > _MAX_LENGTH:
        raise ValueError(BAD_NUMBER)
    return text


def _scale(digits: int, exponent: int, suffix: str) -> tuple[int, Literal["decimal", "binary", "exponent"]]:
    """Return `digits` times ten to the `exponent`, times the suffix, in billionths; and the format of the suffix."""
    if suffix in _DECIMAL:
        return _to_nanos(digits, exponent + _DECIMAL[suffix]), "decimal"
    if suffix in _BINARY:
        nanos = _to_nanos(digits * 1024 ** _BINARY.index(suffix), exponent)
        small = 0 < nanos < _NANO  # a fraction of a byte can only be written in decimal
        return min(nanos, _MAX_BINARY * _NANO), "decimal" if small else "binary"
    match = _EXPONENT.fullmatch(suffix)
    if not match or abs(int(match[1])) > _MAX_EXPONENT:
        raise ValueError(BAD_SUFFIX)
    return _to_nanos(digits, exponent + int(match[1])), "exponent"


def _to_nanos(digits: int, exponent: int) -> int:
    power = exponent + 9
    ten: int = 10 ** abs(power)
    return digits * ten if power >= 0 else -(-digits // ten)
