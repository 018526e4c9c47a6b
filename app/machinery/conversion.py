"""Makes a plain document fit a struct, or says in Go's words why it cannot: the precise, slower half of `decode`.

null goes, unknown and duplicate fields are noted by path, line breaks leave base64. What is returned is new; the
document stays as it was.
"""

import binascii
import re
from typing import Any

import msgspec

from app.machinery.base import Time
from app.machinery.json_document import Repeating
from app.machinery.quantity import BAD_FORMAT
from app.machinery.shape import Shape, Sort

MOST_FAULTS = 100

_INDEX = re.compile(r"\[\d+\]")
_JSON_TYPES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", type(None): "null"}
_ZEROS: dict[Sort, Any] = {
    "struct": {},
    "list": [],
    "map": {},
    "bool": False,
    "integer": 0,
    "number": 0,
    "quantity": 0,
    "either": 0,
}


class MisfitError(Exception):
    """A value of the wrong type."""


class Fit:
    """One walk along a document. `faults` are the unknown and duplicate fields met on the way."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def document(self, value: Any, shape: Shape) -> Any:
        return self._value(value, shape, "", "")

    def _value(self, value: Any, shape: Shape, path: str, owner: str) -> Any:
        """`owner` is the struct whose field this is: Go's errors name it."""
        match shape.sort:
            case "struct" | "map" if isinstance(value, dict):
                self._note_repeated(value, path)
                return (
                    self._struct(value, shape, path) if shape.sort == "struct" else self._map(value, shape, path, owner)
                )
            case "list" if isinstance(value, list):
                items = (self._item(each, shape, f"{path}[{index}]", owner) for index, each in enumerate(value))
                return [each for each in items if each is not None]
            case "any" if isinstance(value, dict) or shape.go.startswith("interface"):
                return self._anything(value, path)
            case "struct" | "map" | "list" | "any":
                raise _mistyped(value, shape, path, owner)
        return _scalar(value, shape, path, owner)

    def _struct(self, value: dict[str, Any], shape: Shape, path: str) -> dict[str, Any]:
        name = shape.go.rpartition(".")[2]
        fitting = {}
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            if key not in shape.fields:
                self._note(f'unknown field "{inner}"')
            elif each is not None:
                fitting[key] = self._value(each, shape.fields[key].shape, inner, name)
        return fitting

    def _map(self, value: dict[str, Any], shape: Shape, path: str, owner: str) -> dict[str, Any]:
        return {key: self._item(each, shape, path, owner) for key, each in value.items()}

    def _item(self, value: Any, shape: Shape, path: str, owner: str) -> Any:
        """Inside a list or map null is not absent but zero."""
        if shape.item is None:
            return value
        return self._value(value, shape.item, path, owner) if value is not None else _ZEROS.get(shape.item.sort, "")

    def _anything(self, value: Any, path: str) -> Any:
        if isinstance(value, list):
            return [self._anything(each, f"{path}[{index}]") for index, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        self._note_repeated(value, path)
        return {key: self._anything(each, f"{path}.{key}") for key, each in value.items()}

    def _note_repeated(self, value: dict[str, Any], path: str) -> None:
        if isinstance(value, Repeating):
            for key in value.repeated:
                self._note(f'duplicate field "{path}.{key}"' if path else f'duplicate field "{key}"')

    def _note(self, fault: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)


def _mistyped(value: Any, shape: Shape, path: str, owner: str, literal: str = "") -> MisfitError:
    found = _JSON_TYPES.get(type(value), "object") + literal
    where = f"struct field {owner}.{_INDEX.sub('', path)}" if owner else "value"
    return MisfitError(f"json: cannot unmarshal {found} into Go {where} of type {shape.go}")


_TYPES: dict[Sort, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (str,),
    "time": (str,),
    "micro": (str,),
    "bool": (bool,),
    "integer": (int,),
    "number": (int, float),
    "quantity": (str, int, float),
    "either": (str, int),
}


def _scalar(value: Any, shape: Shape, path: str, owner: str) -> Any:
    if type(value) not in _TYPES[shape.sort]:  # exactly: to Python, a bool is an int
        raise _mistyped_scalar(value, shape, path, owner)
    match shape.sort:
        case "time" | "micro":
            return _time(value)
        case "bytes":
            return _base64(value)
        case "integer" if not shape.low <= value <= shape.high:
            raise _mistyped(value, shape, path, owner, literal=f" {value}")
    return value


def _mistyped_scalar(value: Any, shape: Shape, path: str, owner: str) -> MisfitError:
    match shape.sort:
        case "quantity":
            return MisfitError(BAD_FORMAT)
        case "either":  # decodes itself, without knowing where it is
            return _mistyped(value, shape, "", "")
        case "integer" if isinstance(value, float):
            return _mistyped(value, shape, path, owner, literal=f" {value}")
    return _mistyped(value, shape, path, owner)


def _time(text: str) -> str:
    try:
        msgspec.convert(text, Time)
    except msgspec.ValidationError:
        raise unreadable_time(text) from None
    return text


def unreadable_time(text: str) -> MisfitError:
    shown = msgspec.json.encode(text).decode()
    return MisfitError(f'parsing time {shown} as "2006-01-02T15:04:05Z07:00": cannot parse {shown} as "2006"')


def _base64(text: str) -> str:
    """Line breaks are fine, as they are in Go."""
    joined = text.replace("\n", "").replace("\r", "")
    try:
        binascii.a2b_base64(joined, strict_mode=True)
    except (binascii.Error, ValueError):
        bad = re.search(r"[^A-Za-z0-9+/]", joined)
        raise MisfitError(f"illegal base64 data at input byte {bad.start() if bad else len(joined)}") from None
    return joined
