"""YAML documents, limited to what JSON can express: maps with string keys, lists, strings, numbers, booleans and null.

`json_document` reads YAML bodies through this. It consumes the parser's events one by one, and so stops early at a body that
is too deep, too large, or grows by aliases. No tag constructs an object.
"""

import math
import re
from typing import Any

import msgspec
import yaml

from app.machinery.errors import ApiError, bad_request

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may be built without libyaml
DEEPEST = 100
MOST_NODES = 100_000  # takes about half a second
MOST_REPEATED = 64 * 1024  # bytes, as JSON, that all aliases together may expand to

_TAG = "tag:yaml.org,2002:"


def load(text: str) -> Any:
    """Return the plain value of the only document, None if there is none. 400 for anything else."""
    try:
        return _EventReader(text).read_document()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise _yaml_error(" ".join(str(error).split())) from None


def _yaml_error(why: str) -> ApiError:
    return bad_request(f"error converting YAML to JSON: yaml: {why}")


class _EventReader:
    """Reads one document's events into a plain value."""

    def __init__(self, text: str) -> None:
        self._loader: Any = Loader(text)
        self._anchored: dict[str, Any] = {}
        self._nodes = 0
        self._repeated = 0

    def read_document(self) -> Any:
        loader = self._loader
        loader.get_event()
        if loader.check_event(yaml.StreamEndEvent):
            return None
        loader.get_event()
        value = self._read_value(0)
        loader.get_event()
        if not loader.check_event(yaml.StreamEndEvent):
            raise _yaml_error("only one document is accepted")
        return value

    def _read_value(self, depth: int) -> Any:
        self._nodes += 1
        if depth > DEEPEST or self._nodes > MOST_NODES:
            raise _yaml_error(f"exceeded max depth of {DEEPEST} or max size of {MOST_NODES} values")
        event: Any = self._loader.get_event()
        if isinstance(event, yaml.AliasEvent):
            return self._resolve_alias(event.anchor)
        value = self._read_event(event, depth)
        if event.anchor:
            self._anchored[event.anchor] = value
        return value

    def _read_event(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(event)
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            raise _yaml_error(f"tag {event.tag} is not accepted")
        return self._read_map(depth) if isinstance(event, yaml.MappingStartEvent) else self._read_list(depth)

    def _read_list(self, depth: int) -> list[Any]:
        values = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            values.append(self._read_value(depth + 1))
        self._loader.get_event()
        return values

    def _read_map(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            line = self._loader.peek_event().start_mark.line + 1
            key = _format_key(self._read_value(depth + 1))
            if key in values:
                raise _yaml_error(f'unmarshal errors:\n  line {line}: key "{key}" already set in map')
            values[key] = self._read_value(depth + 1)
        self._loader.get_event()
        return values

    def _resolve_alias(self, anchor: str | None) -> Any:
        """Return the anchored value. Its size counts, so that aliases of aliases cannot explode."""
        if anchor is None or anchor not in self._anchored:
            raise _yaml_error(f"unknown anchor '{anchor}' referenced")
        value = self._anchored[anchor]
        self._repeated += len(msgspec.json.encode(value))
        if self._repeated > MOST_REPEATED:
            raise _yaml_error("document contains excessive aliasing")
        return value

    def _read_scalar(self, event: Any) -> Any:
        tag = event.tag
        if tag in (None, "!"):
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return _parse_scalar(tag.removeprefix(_TAG), event.value)


def _parse_scalar(tag: str, text: str) -> Any:
    """Convert a scalar by its tag. Times and base-60 numbers stay strings; merge keys (`<<`) are refused."""
    match tag:
        case "str" | "timestamp" | "value":
            return text
        case "merge":
            raise _yaml_error("merge keys are not accepted")
        case "null":
            return None
        case "bool":
            return text.lower() in {"yes", "true", "on"}
        case "int" | "float" if ":" in text:
            return text
        case "int":
            return _parse_integer(text.replace("_", ""))
        case "float":
            return _parse_float(text.replace("_", ""))
    raise _yaml_error(f"tag {tag} is not accepted")


def _parse_integer(text: str) -> int:
    """YAML 1.1: a leading zero means octal."""
    return int(text, 8 if re.fullmatch("[-+]?0[0-7]+", text) else 0)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _yaml_error(f"{text} is not a JSON number")
    return number


def _format_key(value: Any) -> str:
    """Return a map key as a string: numbers and booleans become their text, as in Kubernetes (sigs.k8s.io/yaml)."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise _yaml_error("a map's keys must be texts")
