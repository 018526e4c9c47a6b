"""Conversion of a plain document to the types of a struct, with Go's error messages: the precise, slower half of `decode`.

`decode` and the API's apply call it. It drops nulls, collects unknown and duplicate fields by path and removes line breaks
from base64. The result is a new document; the given one is never changed.
"""

import binascii
import re
from typing import Any

import msgspec

from app.machinery.base import Time
from app.machinery.decoding.json_document import ObjectWithDuplicates
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


class ConversionError(Exception):
    """A value has the wrong type; the text is encoding/json's."""


class Converter:
    """Converts one document. `faults` collects its unknown and duplicate fields."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def convert_document(self, value: Any, shape: Shape) -> Any:
        return self._convert_value(value, shape, "", "")

    def _convert_value(self, value: Any, shape: Shape, path: str, owner: str) -> Any:
        """`owner` is the struct that has this field: Go's errors name it."""
        match shape.sort:
            case "struct" if isinstance(value, dict):
                return self._convert_struct(value, shape, path)
            case "map" if isinstance(value, dict):
                self._note_duplicates(value, path)
                return self._convert_map(value, shape, path, owner)
            case "list" if isinstance(value, list):
                items = (self._convert_item(each, shape, f"{path}[{index}]", owner) for index, each in enumerate(value))
                return [each for each in items if each is not None]
            case "any" if isinstance(value, dict) or shape.go.startswith("interface"):
                return self._copy_any(value, path)
            case "struct" | "map" | "list" | "any":
                raise _type_error(value, shape, path, owner)
        return _convert_scalar(value, shape, path, owner)

    def _convert_struct(self, value: dict[str, Any], shape: Shape, path: str) -> dict[str, Any]:
        """Faults are noted in the order of the document, as Go finds them."""
        name = shape.go.rpartition(".")[2]
        duplicates = value.duplicate_keys if isinstance(value, ObjectWithDuplicates) else {}
        fitting = {}
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            if key in duplicates:
                self._note(f'duplicate field "{inner}"')
            if key not in shape.fields:
                self._note(f'unknown field "{inner}"')
            elif each is not None:
                fitting[key] = self._convert_value(each, shape.fields[key].shape, inner, name)
        return fitting

    def _convert_map(self, value: dict[str, Any], shape: Shape, path: str, owner: str) -> dict[str, Any]:
        return {key: self._convert_item(each, shape, path, owner) for key, each in value.items()}

    def _convert_item(self, value: Any, shape: Shape, path: str, owner: str) -> Any:
        """Inside a list or map, null is the zero value, as in encoding/json."""
        if shape.item is None:
            return value
        return (
            self._convert_value(value, shape.item, path, owner)
            if value is not None
            else _ZEROS.get(shape.item.sort, "")
        )

    def _copy_any(self, value: Any, path: str) -> Any:
        if isinstance(value, list):
            return [self._copy_any(each, f"{path}[{index}]") for index, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        self._note_duplicates(value, path)
        return {key: self._copy_any(each, f"{path}.{key}" if path else key) for key, each in value.items()}

    def _note_duplicates(self, value: dict[str, Any], path: str) -> None:
        if isinstance(value, ObjectWithDuplicates):
            for key in value.duplicate_keys:
                self._note(f'duplicate field "{path}.{key}"' if path else f'duplicate field "{key}"')

    def _note(self, fault: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(fault)


def _type_error(value: Any, shape: Shape, path: str, owner: str, literal: str = "") -> ConversionError:
    found = _JSON_TYPES.get(type(value), "object") + literal
    where = f"struct field {owner}.{_INDEX.sub('', path)}" if owner else "value"
    return ConversionError(f"json: cannot unmarshal {found} into Go {where} of type {shape.go}")


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


def _convert_scalar(value: Any, shape: Shape, path: str, owner: str) -> Any:
    if type(value) not in _TYPES[shape.sort]:  # exactly: to Python, a bool is an int
        raise _scalar_type_error(value, shape, path, owner)
    match shape.sort:
        case "time" | "micro":
            return _check_time(value)
        case "bytes":
            return _normalize_base64(value)
        case "integer" if not shape.low <= value <= shape.high:
            raise _type_error(value, shape, path, owner, literal=f" {value}")
    return value


def _scalar_type_error(value: Any, shape: Shape, path: str, owner: str) -> ConversionError:
    match shape.sort:
        case "quantity":
            return ConversionError(BAD_FORMAT)
        case "either":  # IntOrString has its own UnmarshalJSON, which knows no path
            return _type_error(value, shape, "", "")
        case "integer" if isinstance(value, float):
            return _type_error(value, shape, path, owner, literal=f" {value}")
    return _type_error(value, shape, path, owner)


def _check_time(text: str) -> str:
    try:
        msgspec.convert(text, Time)
    except msgspec.ValidationError:
        raise time_parse_error(text) from None
    return text


def time_parse_error(text: str) -> ConversionError:
    shown = msgspec.json.encode(text).decode()
    return ConversionError(f'parsing time {shown} as "2006-01-02T15:04:05Z07:00": cannot parse {shown} as "2006"')


def _normalize_base64(text: str) -> str:
    """Remove line breaks, which encoding/base64 ignores; ConversionError for anything that is no base64."""
    joined = text.replace("\n", "").replace("\r", "")
    try:
        binascii.a2b_base64(joined, strict_mode=True)
    except (binascii.Error, ValueError):
        bad = re.search(r"[^A-Za-z0-9+/]", joined)
        raise ConversionError(f"illegal base64 data at input byte {bad.start() if bad else len(joined)}") from None
    return joined
