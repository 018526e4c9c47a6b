"""Amounts of resources, as Kubernetes writes them: 100m, 1.5Gi, 2e3.

Everything that counts CPU or memory comes through here. Values are exact down to a billionth; finer ones are rounded
away from zero, as Kubernetes does. A text of any size is refused or parsed in bounded time. Errors are `ValueError`s in
Kubernetes' words.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

from app.machinery.base import Quantity

BAD_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_NUMBER = "unable to parse numeric part of quantity"
BAD_SUFFIX = "unable to parse quantity's suffix"

_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT = re.compile(r"[eE]([-+]?[0-9]{1,9})")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL.items()}

_NANO = 10**9
_MOST = 2**63 - 1  # Kubernetes caps binary quantities here
_LONGEST = 128
_STEEPEST = 99  # the largest exponent, either way, that is worth computing


class _Amount(NamedTuple):
    nanos: int
    style: Literal["decimal", "binary", "exponent"]


def parse(quantity: Quantity) -> Fraction:
    """The exact value."""
    return Fraction(_amount(quantity).nanos, _NANO)


def milli(quantity: Quantity) -> int:
    """In thousandths, rounded up: how CPU is counted."""
    return -(-_amount(quantity).nanos // 10**6)


def whole(quantity: Quantity) -> int:
    """In units, rounded up: how memory and everything else is counted."""
    return -(-_amount(quantity).nanos // _NANO)


def compare(one: Quantity, other: Quantity) -> int:
    """-1, 0 or 1."""
    left, right = _amount(one).nanos, _amount(other).nanos
    return (left > right) - (left < right)


def plus(one: Quantity, other: Quantity, times: int = 1) -> str:
    """The first and so many times the second, in canonical form; written as the first is, unless that is zero."""
    left, right = _amount(one), _amount(other)
    style = left.style if left.nanos else right.style
    return _written(left.nanos + times * right.nanos, style)


def fault(quantity: Quantity) -> str:
    """Why it is not a quantity; empty if it is one."""
    try:
        _amount(quantity)
    except ValueError as error:
        return str(error)
    return ""


@lru_cache(maxsize=4096)
def canonical(quantity: Quantity) -> str:
    """The form that Kubernetes stores: no fraction, the largest suffix that loses nothing."""
    return _written(*_amount(quantity))


def _written(nanos: int, style: Literal["decimal", "binary", "exponent"]) -> str:
    if style == "binary" and nanos % _NANO == 0 and abs(nanos) >= 1024 * _NANO:
        return _in_binary(nanos // _NANO)
    return _in_decimal(nanos, exponent_style=style == "exponent")


def _in_binary(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY[power]}"


def _in_decimal(nanos: int, *, exponent_style: bool) -> str:
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
def _amount(quantity: Quantity) -> _Amount:
    match = _SHAPE.fullmatch(_text(quantity))
    if not match:
        raise ValueError(BAD_FORMAT)
    sign, whole_digits, fraction_digits, suffix = match.groups(default="")
    digits = whole_digits + fraction_digits
    if not digits:
        raise ValueError(BAD_FORMAT)
    value, style = _scaled(int(digits), -len(fraction_digits), suffix)
    return _Amount(-value if sign == "-" else value, style)


def _text(quantity: Quantity) -> str:
    if isinstance(quantity, int) and quantity.bit_length() > 4 * _LONGEST:
        raise ValueError(BAD_NUMBER)  # str() of a huge int is slow, and Python refuses the largest
    text = quantity if isinstance(quantity, str) else str(quantity)
    if len(text) > _LONGEST:
        raise ValueError(BAD_NUMBER)
    return text


def _scaled(digits: int, exponent: int, suffix: str) -> tuple[int, Literal["decimal", "binary", "exponent"]]:
    """`digits` times ten to the `exponent`, times what the suffix says, in billionths."""
    if suffix in _DECIMAL:
        return _nanos(digits, exponent + _DECIMAL[suffix]), "decimal"
    if suffix in _BINARY:
        nanos = _nanos(digits * 1024 ** _BINARY.index(suffix), exponent)
        small = 0 < nanos < _NANO  # a fraction of a byte can only be written in decimal
        return min(nanos, _MOST * _NANO), "decimal" if small else "binary"
    match = _EXPONENT.fullmatch(suffix)
    if not match or abs(int(match[1])) > _STEEPEST:
        raise ValueError(BAD_SUFFIX)
    return _nanos(digits, exponent + int(match[1])), "exponent"


def _nanos(digits: int, exponent: int) -> int:
    power = exponent + 9
    ten: int = 10 ** abs(power)
    return digits * ten if power >= 0 else -(-digits // ten)
