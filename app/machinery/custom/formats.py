"""Formats of texts in schemas, as strfmt checks them. A format that is not here is not checked, as in Kubernetes."""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_MAC = re.compile(r"([0-9a-f]{2}[:-]){5}[0-9a-f]{2}", re.IGNORECASE)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_HOSTNAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")
_DURATION = re.compile(r"[-+]?(\d+(\.\d+)?\s*(ns|us|µs|ms|s|m|h|d|w|sec\w*|min\w*|hour\w*|day\w*|week\w*)\s*)+|0")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def is_valid(text: str) -> bool:
        with suppress(ValueError, binascii.Error):
            parse(text)
            return True
        return False

    return is_valid


def _is_date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _parses(date.fromisoformat)(text[:10])


def _is_uri(text: str) -> bool:
    with suppress(ValueError):
        return bool(urlsplit(text).scheme)
    return False


def _is_base64(text: str) -> bool:
    return bool(text) and _parses(lambda each: b64decode(each, validate=True))(text)


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "date": _parses(date.fromisoformat),
    "byte": _is_base64,
    "ipv4": _parses(IPv4Address),
    "ipv6": _parses(IPv6Address),
    "cidr": _parses(lambda text: ip_network(text, strict=False)),
    "uuid": _matches(_UUID),
    "mac": _matches(_MAC),
    "email": _matches(_EMAIL),
    "hostname": _matches(_HOSTNAME),
    "uri": _is_uri,
    "duration": _matches(_DURATION),
}
INTEGER_RANGES: Mapping[str, tuple[int, int]] = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
LARGEST_FLOAT = 3.4028235677973366e38  # of 32 bits


def checked_format(type_: str, name: str) -> str:
    """Return the format as it is checked for values of a type: the empty text if it means nothing for them."""
    if type_ in ("", "string"):
        return name if name in FORMATS else ""
    known = {"integer": ("int32", "int64"), "number": ("float", "double")}.get(type_, ())
    return name if name in known else ""
