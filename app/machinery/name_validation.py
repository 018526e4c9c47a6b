"""Validation of names of objects, labels, ports and environment variables, as apimachinery's `util/validation`.

Validation of every kind calls these. Each returns error messages in Kubernetes' words; an empty list for a valid value.
Lengths are in bytes, though some of Kubernetes' messages say characters.
"""

import ipaddress
import re
from functools import lru_cache
from typing import Literal

MAX_SEGMENT_BYTES = 1024
NameFormat = Literal["subdomain", "label", "path"]

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = _LABEL + r"(\." + _LABEL + ")*"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_KEY})?"
_CONFIG_KEY = "[-._a-zA-Z0-9]+"
_HEADER = "[-A-Za-z0-9]+"

_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035_RE = re.compile(_LABEL_1035)
_LABEL_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character"
)
_LABEL_RE = re.compile(_LABEL)
_SUBDOMAIN_RE = re.compile(_SUBDOMAIN)
_KEY_RE = re.compile(_KEY)
_VALUE_RE = re.compile(_VALUE)
_CONFIG_KEY_RE = re.compile(_CONFIG_KEY)
_HEADER_RE = re.compile(_HEADER)
_ENV_RE = re.compile("[ -<>-~]*")  # printable ASCII without "="

_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_KEY_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_ENV_TEXT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_CONFIG_KEY_TEXT = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_HEADER_TEXT = "a valid HTTP header must consist of alphanumeric characters or '-'"


_MAX_CACHED_LENGTH = 320  # characters of the longest value in a cache, so that memory stays bounded


def _regex_error(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)  # two spaces before "or", as upstream has it
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _matches(pattern: re.Pattern[str], value: str) -> bool:
    """Match values up to 4 KiB only: a megabyte is no name, and matching it would take long."""
    return len(value) <= 4096 and pattern.fullmatch(value) is not None


def _byte_length(value: str) -> int:
    return len(value) if value.isascii() else len(value.encode())


def dns_label(value: str) -> list[str]:
    """Validate a DNS-1123 label: names of containers, volumes, namespaces, host names."""
    return [] if len(value) <= _MAX_CACHED_LENGTH and _is_label(value) else _dns_label(value)


@lru_cache(4096)
def _is_label(value: str) -> bool:
    return not _dns_label(value)


def _dns_label(value: str) -> list[str]:
    faults = ["must be no more than 63 characters"] if _byte_length(value) > 63 else []
    if not _matches(_LABEL_RE, value):
        dotted = _matches(_SUBDOMAIN_RE, value)
        faults.append("must not contain dots" if dotted else _regex_error(_LABEL_TEXT, _LABEL, "my-name", "123-abc"))
    return faults


def dns_label_1035(value: str) -> list[str]:
    """Validate a DNS-1035 label, which begins with a letter: names of services, versions and custom kinds."""
    faults = ["must be no more than 63 characters"] if _byte_length(value) > 63 else []
    if not _matches(_LABEL_1035_RE, value):
        faults.append(_regex_error(_LABEL_1035_TEXT, _LABEL_1035, "my-name", "abc-123"))
    return faults


def dns_subdomain(value: str, *, unit: str = "characters") -> list[str]:
    """Validate a DNS-1123 subdomain: names of most objects."""
    faults = [f"must be no more than 253 {unit}"] if _byte_length(value) > 253 else []
    if not _matches(_SUBDOMAIN_RE, value):
        faults.append(_regex_error(_SUBDOMAIN_TEXT, _SUBDOMAIN, "example.com"))
    return faults


def path_segment(value: str) -> list[str]:
    """Validate a name that only has to fit into a URL path, and into the database's index."""
    if value in (".", ".."):
        return [f"may not be '{value}'"]
    if _byte_length(value) > MAX_SEGMENT_BYTES:
        return [f"must be no more than {MAX_SEGMENT_BYTES} bytes"]
    return [f"may not contain '{each}'" for each in "/%" if each in value]


def object_name(value: str, name_format: NameFormat, *, prefix: bool = False) -> list[str]:
    """Validate the name of an object; a `prefix` is a generateName, and may end in a dash."""
    if name_format == "path":
        return [f"may not contain '{each}'" for each in "/%" if each in value] if prefix else path_segment(value)
    if prefix and len(value) > 1 and value.endswith("-"):
        value = value[:-2] + "a"
    return dns_label(value) if name_format == "label" else dns_subdomain(value)


def qualified_name(value: str) -> list[str]:
    """Validate a qualified name, `name` or `domain/name`: keys of labels and annotations, finalizers, condition types."""
    return [] if len(value) <= _MAX_CACHED_LENGTH and _is_qualified(value) else _qualified_name(value)


@lru_cache(4096)
def _is_qualified(value: str) -> bool:
    """Cached, because the same few keys come with every object."""
    return not _qualified_name(value)


def _qualified_name(value: str) -> list[str]:
    prefix, slash, name = value.rpartition("/")
    text = _regex_error(_KEY_TEXT, _KEY, "MyName", "my.name", "123-abc")
    if "/" in prefix:
        return [f"a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    faults = ["prefix part must be non-empty"] if slash and not prefix else []
    if prefix:
        faults += [f"prefix part {fault}" for fault in dns_subdomain(prefix, unit="bytes")]
    if not name:
        faults.append("name part must be non-empty")
    elif _byte_length(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    if not _matches(_KEY_RE, name):
        faults.append(f"name part {text}")
    return faults


def label_value(value: str) -> list[str]:
    return [] if len(value) <= _MAX_CACHED_LENGTH and _is_label_value(value) else _label_value(value)


@lru_cache(4096)
def _is_label_value(value: str) -> bool:
    return not _label_value(value)


def _label_value(value: str) -> list[str]:
    faults = ["must be no more than 63 bytes"] if _byte_length(value) > 63 else []
    if not _matches(_VALUE_RE, value):
        faults.append(_regex_error(_VALUE_TEXT, _VALUE, "MyValue", "my_value", "12345"))
    return faults


def is_label(key: str, value: str) -> bool:
    """Return whether both are valid: in one call, because every write has a dozen labels to look at."""
    return len(key) + len(value) <= _MAX_CACHED_LENGTH and _is_qualified(key) and _is_label_value(value)


def env_name(value: str) -> list[str]:
    if not value:
        return ["environment variable name must be non-empty"]
    return [] if _ENV_RE.fullmatch(value) else [_ENV_TEXT]


def config_key(value: str) -> list[str]:
    """Validate a key of a ConfigMap or Secret."""
    faults = ["must be no more than 253 characters"] if _byte_length(value) > 253 else []
    if not _matches(_CONFIG_KEY_RE, value):
        faults.append(_regex_error(_CONFIG_KEY_TEXT, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    if value in (".", ".."):
        faults.append(f"must not be '{value}'")
    elif value.startswith(".."):
        faults.append("must not start with '..'")
    return faults


def http_header(value: str) -> list[str]:
    return [] if _HEADER_RE.fullmatch(value) else [_regex_error(_HEADER_TEXT, _HEADER, "X-Header-Name")]


def port_number(value: int) -> list[str]:
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def port_name(value: str) -> list[str]:
    faults = {
        "must be no more than 15 characters": _byte_length(value) > 15,
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)": not _is_lower_word(value),
        "must contain at least one letter (a-z)": not re.search("[a-z]", value),
        "must not contain consecutive hyphens": "--" in value,
        "must not begin or end with a hyphen": value.startswith("-") or value.endswith("-"),
    }
    return [text for text, wrong in faults.items() if wrong]


def _is_lower_word(value: str) -> bool:
    return re.fullmatch("[-a-z0-9]+", value) is not None


def ip_address(value: str) -> list[str]:
    try:
        if "%" not in value:
            ipaddress.ip_address(value)
            return []
    except ValueError:
        pass
    return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]


def user_id(value: int) -> list[str]:
    """Validate a UID or GID."""
    return [] if 0 <= value <= 2**31 - 1 else [f"must be between 0 and {2**31 - 1}, inclusive"]
