"""YAML as far as JSON goes: one document of maps with text keys, lists, texts, numbers, booleans and null.

`document` reads YAML bodies through this. It takes the parser's events one by one, and so gives up early on whatever is
too deep, too large, or made to grow: aliases may repeat only so much. No tag ever constructs anything.
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
MOST_REPEATED = 64 * 1024  # bytes that all aliases together may stand for

_TAG = "tag:yaml.org,2002:"


def load(text: str) -> Any:
    """The plain value of the only document; None if there is none."""
    try:
        return _Reader(text).document()
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise _refused(" ".join(str(error).split())) from None


def _refused(why: str) -> ApiError:
    return bad_request(f"error converting YAML to JSON: yaml: {why}")


class _Reader:
    """Turns one document's events into a value."""

    def __init__(self, text: str) -> None:
        self._loader: Any = Loader(text)
        self._anchored: dict[str, Any] = {}
        self._nodes = 0
        self._repeated = 0

    def document(self) -> Any:
        loader = self._loader
        loader.get_event()
        if loader.check_event(yaml.StreamEndEvent):
            return None
        loader.get_event()
        value = self._value(0)
        loader.get_event()
        if not loader.check_event(yaml.StreamEndEvent):
            raise _refused("only one document is accepted")
        return value

    def _value(self, depth: int) -> Any:
        self._nodes += 1
        if depth > DEEPEST or self._nodes > MOST_NODES:
            raise _refused(f"exceeded max depth of {DEEPEST} or max size of {MOST_NODES} values")
        event: Any = self._loader.get_event()
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor)
        value = self._plain(event, depth)
        if event.anchor:
            self._anchored[event.anchor] = value
        return value

    def _plain(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if event.tag not in (None, "!", f"{_TAG}map", f"{_TAG}seq"):
            raise _refused(f"tag {event.tag} is not accepted")
        return self._map(depth) if isinstance(event, yaml.MappingStartEvent) else self._list(depth)

    def _list(self, depth: int) -> list[Any]:
        values = []
        while not self._loader.check_event(yaml.SequenceEndEvent):
            values.append(self._value(depth + 1))
        self._loader.get_event()
        return values

    def _map(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self._loader.check_event(yaml.MappingEndEvent):
            key = _key(self._value(depth + 1))
            if key in values:
                raise _refused(f'unmarshal errors: key "{key}" already set in map')
            values[key] = self._value(depth + 1)
        self._loader.get_event()
        return values

    def _alias(self, anchor: str | None) -> Any:
        """The anchored value again. Its size counts, so that aliases of aliases cannot explode."""
        if anchor is None or anchor not in self._anchored:
            raise _refused(f"unknown anchor '{anchor}' referenced")
        value = self._anchored[anchor]
        self._repeated += len(msgspec.json.encode(value))
        if self._repeated > MOST_REPEATED:
            raise _refused("document contains excessive aliasing")
        return value

    def _scalar(self, event: Any) -> Any:
        tag = event.tag
        if tag in (None, "!"):
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return _scalar(tag.removeprefix(_TAG), event.value)


def _scalar(tag: str, text: str) -> Any:
    """Times stay texts, as do numbers to base 60. `<<` is refused as a key, and a text elsewhere."""
    match tag:
        case "str" | "timestamp" | "value":
            return text
        case "merge":
            raise _refused("merge keys are not accepted")
        case "null":
            return None
        case "bool":
            return text.lower() in {"yes", "true", "on"}
        case "int" | "float" if ":" in text:
            return text
        case "int":
            return _integer(text.replace("_", ""))
        case "float":
            return _float(text.replace("_", ""))
    raise _refused(f"tag {tag} is not accepted")


def _integer(text: str) -> int:
    """YAML 1.1: a leading zero means octal."""
    return int(text, 8 if re.fullmatch("[-+]?0[0-7]+", text) else 0)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _refused(f"{text} is not a JSON number")
    return number


def _key(value: Any) -> str:
    """Keys that are numbers or booleans count as their text, as in Kubernetes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise _refused("a map's keys must be texts")
