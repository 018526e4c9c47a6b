"""What a structural schema makes of an object, written a second time: plainly, slowly, and without a look at the first.

Used by `test_schemas` as an oracle. It knows no texts: it tells which fields are at fault.
"""

import re
from datetime import date, datetime
from ipaddress import IPv4Address
from typing import Any

Schema = dict[str, Any]
META = ("apiVersion", "kind", "metadata")
GONE: Any = object()


# --- defaults and pruning: one pass after the other, on a copy that may be changed


def fill(value: Any, schema: Schema | None) -> Any:
    """Fill in defaults. A null that is no value is as good as nothing."""
    if schema is None:
        return value
    if value is None and not schema.get("nullable") and schema.get("default") is not None:
        value = schema["default"]
    if isinstance(value, list):
        return [fill(each, schema.get("items")) for each in value]
    if isinstance(value, dict):
        missing = {
            name: each["default"] for name, each in fields(schema).items()
            if each.get("default") is not None and name not in value
        }  # fmt: skip
        return {name: fill(each, schema_of(name, schema)) for name, each in {**value, **missing}.items()}
    return int(value) if isinstance(value, float) and value == int(value) else value


def prune(value: Any, schema: Schema | None, *, is_object: bool = False, keep: bool = False) -> Any:
    """Drop what the schema does not know, and nulls that are no value. `is_object` is for the root, which has metadata."""
    given = schema or {}
    keep = keep or bool(given.get("x-kubernetes-preserve-unknown-fields"))
    if isinstance(value, list):
        inner = given.get("items")
        return [prune(each, inner, keep=keep) if inner or not keep else each for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        known = schema_of(name, given)
        if name in META and (is_object or given.get("x-kubernetes-embedded-resource")):
            kept[name] = each
        elif each is None and known is not None and not known.get("nullable"):
            continue
        elif known is not None or given.get("additionalProperties"):
            kept[name] = prune(each, known)
        elif keep:
            kept[name] = each
    return kept


def fields(schema: Schema) -> dict[str, Schema]:
    return schema.get("properties") or {}


def schema_of(name: str, schema: Schema) -> Schema | None:
    more = schema.get("additionalProperties")
    return fields(schema).get(name) or (more if isinstance(more, dict) else None)


# --- validation


def faults(value: Any, schema: Schema, old: Any = GONE, path: str = "") -> set[str]:
    """Return the fields at fault. Where alternatives are, there is no telling which one was meant: such fields end with `?`."""
    if path and old is not GONE and same(value, old, schema):
        return set()
    found = set()
    if not fits(value, schema):
        found.add(path)
    if "enum" in schema and not any(equal(value, each) for each in schema["enum"]):
        found.add(path)
    if value is None:
        return found
    found |= {f"{path}?"} if not fits_alternatives(value, schema) else set()
    if isinstance(value, list):
        for index, each in enumerate(value):
            was = counterpart(each, old, schema)
            found |= faults(each, schema.get("items") or {}, was, f"{path}[{index}]")
    if isinstance(value, dict):
        found |= {f"{path}.{name}" for name in schema.get("required") or () if name not in value}
        for name, each in value.items():
            was = old[name] if isinstance(old, dict) and name in old else GONE
            found |= faults(each, schema_of(name, schema) or {}, was, f"{path}.{name}")
    return found


def fits(value: Any, schema: Schema) -> bool:
    """Whether a value is right by itself, whatever is in it."""
    if value is None:
        return bool(schema.get("nullable")) or not types(schema)
    if types(schema) and not any(is_a(value, each) for each in types(schema)):
        return False
    if isinstance(value, str):
        least, most = schema.get("minLength", 0), schema.get("maxLength", 10**9)
        matches = re.search(schema["pattern"], value) if "pattern" in schema else True
        return least <= len(value) <= most and bool(matches) and is_formatted(value, schema)
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return is_number(value, schema)
    return len(value) in range(
        schema.get("minItems" if isinstance(value, list) else "minProperties", 0),
        schema.get("maxItems" if isinstance(value, list) else "maxProperties", 10**9) + 1,
    )


def types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if "type" in schema else ()


def is_a(value: Any, type_: str) -> bool:
    if isinstance(value, bool):
        return type_ == "boolean"
    if type_ in ("integer", "number"):
        return isinstance(value, int | float) and (type_ == "number" or value == int(value))
    return isinstance(value, {"string": str, "boolean": bool, "array": list, "object": dict}[type_])


def is_number(value: float, schema: Schema) -> bool:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and (value < low or (schema.get("exclusiveMinimum") and value == low)):
        return False
    if high is not None and (value > high or (schema.get("exclusiveMaximum") and value == high)):
        return False
    if schema.get("format") == "int32" and not -(2**31) <= value < 2**31:
        return False
    return "multipleOf" not in schema or value % schema["multipleOf"] == 0


def is_formatted(value: str, schema: Schema) -> bool:
    form = schema.get("format")
    if form == "byte":
        return bool(re.fullmatch(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", value))
    if form == "uuid":
        return bool(re.fullmatch("[0-9a-f-]{32,36}", value))
    parse = {"date": date.fromisoformat, "date-time": datetime.fromisoformat, "ipv4": IPv4Address}.get(form or "")
    if parse is None:
        return True
    try:
        parse(value)
    except ValueError:
        return False
    return form != "date-time" or "T" in value


def fits_alternatives(value: Any, schema: Schema) -> bool:
    hold = {
        word: [not faults(value, each) for each in schema[word]]
        for word in ("allOf", "anyOf", "oneOf")
        if schema.get(word)
    }
    return (
        all(hold.get("allOf", [True]))
        and any(hold.get("anyOf", [True]))
        and sum(hold.get("oneOf", [True])) == 1
        and not ("not" in schema and not faults(value, schema["not"]))
    )


# --- lists and embedded objects, which are looked at apart


def further_faults(value: Any, schema: Schema, path: str = "") -> tuple[set[str], set[str]]:
    """Return elements that occur twice, and fields that embedded objects lack."""
    twice, missing = set(), set()
    below: list[tuple[Any, Schema, str]] = []
    if isinstance(value, list):
        twice = {f"{path}[{index}]" for index in doubles(value, schema)}
        below = [(each, schema.get("items") or {}, f"{path}[{index}]") for index, each in enumerate(value)]
    elif isinstance(value, dict):
        if schema.get("x-kubernetes-embedded-resource"):
            forms = {"apiVersion": "[^/]+(/[^/]*)?", "kind": "[A-Za-z]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"}
            texts = {name: value.get(name) if isinstance(value.get(name), str) else "" for name in forms}
            missing = {f"{path}.{name}" for name, form in forms.items() if not re.fullmatch(form, texts[name])}
        for name, each in value.items():
            inner = f"{path}.{name}" if name in fields(schema) else f"{path}[{name}]"
            below.append((each, schema_of(name, schema) or {}, inner))
    for each in below:
        more, lacking = further_faults(*each)
        twice, missing = twice | more, missing | lacking
    return twice, missing


def doubles(values: list[Any], schema: Schema) -> list[int]:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        strange = [index for index, each in enumerate(values) if each is not None and not isinstance(each, dict)]
        if strange:
            return strange[:1]
        keys = schema["x-kubernetes-list-map-keys"]
        values = [{key: each[key] for key in keys if key in each} if each else {} for each in values]
    elif kind != "set":
        return []
    before = [[other for other in values[:index] if equal(each, other)] for index, each in enumerate(values)]
    return [index for index, others in enumerate(before) if len(others) == 1]


# --- comparing with the object before


def same(value: Any, old: Any, schema: Schema) -> bool:
    if isinstance(value, dict) and isinstance(old, dict):
        return set(value) == set(old) and all(
            schema_of(name, schema) is not None and same(value[name], old[name], schema_of(name, schema) or {})
            for name in value
        )
    if isinstance(value, list) and isinstance(old, list) and schema.get("x-kubernetes-list-type") == "map":
        others = [counterpart(each, old, schema) for each in value]
        return len(value) == len(old) and all(
            was is not GONE and same(each, was, schema.get("items") or {})
            for each, was in zip(value, others, strict=True)
        )
    return equal(value, old)


def counterpart(element: Any, old: Any, schema: Schema) -> Any:
    """The first element of the old list with the same keys."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return GONE
    keys = schema["x-kubernetes-list-map-keys"]

    def identity(each: Any) -> list[Any] | None:
        found = [each.get(key) for key in keys] if isinstance(each, dict) else [None]
        return None if any(one is None or isinstance(one, list | dict) for one in found) else found

    mine = identity(element)
    return next((each for each in old if mine is not None and equal(identity(each), mine)), GONE)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(equal(one[name], other[name]) for name in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
