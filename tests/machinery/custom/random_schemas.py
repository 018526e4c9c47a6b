"""Random structural schemas, and objects that nearly fit them. A seed is a case: it gives the same ones each time."""

import json
from random import Random
from typing import Any

Schema = dict[str, Any]
NAMES = ("a", "b", "c", "d", "e-f", "metadata")
SCALARS = ("string", "integer", "number", "boolean")
DEEPEST = 3
TEXTS = (
    "",
    "a",
    "ab",
    "abcd",
    "red",
    "blue",
    "1",
    "10.0.0.1",
    "2026-01-31",
    "2026-01-31T10:00:00Z",
    "AA==",
    "é",
    "1h30m",
)
NUMBERS = (-3, 0, 1, 2, 3, 4, 10, 2**31, 0.5, 1.5, 2.0)
FORMATS = ("date", "date-time", "byte", "ipv4", "uuid", "int32", "nonsense")
PATTERNS = ("^[a-z]*$", "b", "^$", r"^\d+$")


class SchemaMaker:
    """Makes schemas, and objects for them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def make_schema(self) -> Schema:
        """A schema as a definition has it: an object with fields."""
        root = self._object(0)
        root.pop("nullable", None)
        root["properties"].pop("metadata", None)
        if not root["properties"]:
            root["properties"]["a"] = self._node(1)
        return root

    def _node(self, depth: int) -> Schema:
        deep = () if depth >= DEEPEST else ("object", "object", "map", "array", "array", "embedded")
        kind = self.random.choice((*SCALARS, "either", "any", *deep))
        made: Schema = getattr(self, f"_{kind}")(depth)
        if self.chance(0.15):
            made["nullable"] = True
        if self.chance(0.1):
            self._add_alternatives(made)
        if self.chance(0.25):
            made["default"] = self.make_value(made, wild=0.02)
        return made

    def _string(self, _: int) -> Schema:
        made: Schema = {"type": "string"}
        if self.chance(0.2):
            made["enum"] = self.random.sample(TEXTS, 3)
        if self.chance(0.2):
            made["maxLength"] = self.random.randint(0, 4)
        if self.chance(0.2):
            made["minLength"] = self.random.randint(0, 2)
        if self.chance(0.2):
            made["pattern"] = self.random.choice(PATTERNS)
        if self.chance(0.2):
            made["format"] = self.random.choice(FORMATS)
        return made

    def _integer(self, _: int, type_: str = "integer") -> Schema:
        made: Schema = {"type": type_}
        whole = [each for each in NUMBERS if isinstance(each, int)] if type_ == "integer" else NUMBERS
        if self.chance(0.3):
            made["minimum"] = self.random.choice((0, 1))
            if self.chance(0.3):
                made["exclusiveMinimum"] = True
        if self.chance(0.3):
            made["maximum"] = self.random.choice((2, 3, 10))
            if self.chance(0.3):
                made["exclusiveMaximum"] = True
        if self.chance(0.1):
            made["multipleOf"] = self.random.choice((1, 2, 3))
        if self.chance(0.1):
            made["enum"] = self.random.sample(whole, 3)
        if self.chance(0.2):
            made["format"] = self.random.choice(("int32", "int64"))
        return made

    def _number(self, depth: int) -> Schema:
        made = self._integer(depth, "number")
        made.pop("format", None)
        return made

    def _boolean(self, _: int) -> Schema:
        return {"type": "boolean"}

    def _either(self, _: int) -> Schema:
        made: Schema = {"x-kubernetes-int-or-string": True}
        if self.chance(0.5):
            made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
        if self.chance(0.3):
            made["pattern"] = self.random.choice(PATTERNS)
        if self.chance(0.2):
            made["maximum"] = 3
        return made

    def _any(self, _: int) -> Schema:
        return {"x-kubernetes-preserve-unknown-fields": True}

    def _object(self, depth: int) -> Schema:
        names = [each for each in NAMES if self.chance(0.5)]
        made: Schema = {"type": "object", "properties": {each: self._node(depth + 1) for each in names}}
        required = [each for each in names if self.chance(0.2)]
        if required:
            made["required"] = required
        if self.chance(0.1) and depth:
            made["x-kubernetes-preserve-unknown-fields"] = True
        if self.chance(0.1) and depth:
            made["x-kubernetes-map-type"] = self.random.choice(("atomic", "granular"))
        if self.chance(0.1):
            made["minProperties"] = self.random.randint(0, 2)
        if self.chance(0.1):
            made["maxProperties"] = self.random.randint(1, 3)
        return made

    def _map(self, depth: int) -> Schema:
        made: Schema = {"type": "object", "additionalProperties": self._node(depth + 1)}
        if self.chance(0.15):
            made["additionalProperties"] = True
        elif isinstance(made["additionalProperties"], dict):
            made["additionalProperties"].pop("default", None)
        if self.chance(0.2):
            made["maxProperties"] = self.random.randint(0, 2)
        return made

    def _embedded(self, depth: int) -> Schema:
        made = self._object(depth)
        for name in ("metadata", "kind", "apiVersion"):
            made["properties"].pop(name, None)
        if "required" in made:
            made["required"] = [each for each in made["required"] if each in made["properties"]]
        made["x-kubernetes-embedded-resource"] = True
        if not made["properties"]:
            made["x-kubernetes-preserve-unknown-fields"] = True
        return made

    def _array(self, depth: int) -> Schema:
        made: Schema = {"type": "array"}
        sort = self.random.choice(("plain", "plain", "atomic", "set", "map", "map"))
        if sort == "set" and self.chance(0.1):
            made["items"] = self._node(depth + 1)
        elif sort == "set":
            made["items"] = self._string(depth) if self.chance(0.5) else self._integer(depth)
        elif sort == "map":
            made["items"] = self._list_map_item(depth)
            made["x-kubernetes-list-map-keys"] = ["a"] if self.chance(0.7) else ["a", "b"]
        else:
            made["items"] = self._node(depth + 1)
            made["items"].pop("default", None)
        if sort != "plain":
            made["x-kubernetes-list-type"] = sort
        if self.chance(0.15):
            made["minItems"] = self.random.randint(0, 2)
        if self.chance(0.15):
            made["maxItems"] = self.random.randint(1, 3)
        if self.chance(0.05):
            made["x-kubernetes-preserve-unknown-fields"] = True
        return made

    def _list_map_item(self, depth: int) -> Schema:
        made = self._object(depth + 1)
        keys = {"a": self._string(depth), "b": self._integer(depth)}
        if self.chance(0.05):
            keys[self.random.choice(("a", "b"))] = self._node(depth + 1)
        demanded = ["a", "b"] if self.chance(0.95) else ["a"]
        return {**made, "properties": {**made["properties"], **keys}, "required": demanded}

    def _add_alternatives(self, made: Schema) -> None:
        word = self.random.choice(("allOf", "anyOf", "oneOf", "not"))
        if word in made:
            return
        parts = [self._constraint(made) for _ in range(self.random.randint(1, 3))]
        made[word] = parts[0] if word == "not" else parts

    def _constraint(self, made: Schema) -> Schema:
        """What an alternative may say of a value: no types and no fields of its own."""
        properties = made.get("properties") or {}
        if properties:
            name = self.random.choice(list(properties))
            return (
                {"required": [name]} if self.chance(0.6) else {"properties": {name: self._constraint(properties[name])}}
            )
        if made.get("type") == "array":
            return {"minItems": self.random.randint(0, 2)}
        if made.get("type") in ("integer", "number"):
            return {"minimum": self.random.randint(0, 3)}
        if made.get("type") == "boolean":
            return {"enum": [self.chance(0.5)]}
        return {"minLength": self.random.randint(0, 3)} if self.chance(0.5) else {"enum": self.random.sample(TEXTS, 3)}

    def make_object(self, schema: Schema) -> dict[str, Any]:
        """An object that fits the schema in most places."""
        made = self.make_value(schema, wild=0.0)
        assert isinstance(made, dict)
        wilder = self.make_value({**schema, "x-wild": True}, wild=0.08)
        return wilder if isinstance(wilder, dict) else made

    def change_object(self, schema: Schema, obj: dict[str, Any]) -> dict[str, Any]:
        """The object with another value here and there."""
        changed = json.loads(json.dumps(obj))
        other = self.make_object(schema)
        for name in {**other, **changed}:
            if self.chance(0.3):
                if name in other:
                    changed[name] = other[name]
                else:
                    del changed[name]
            elif name in changed and name in other:
                changed[name] = self._mix(changed[name], other[name])
        return changed

    def _mix(self, one: Any, other: Any) -> Any:
        if isinstance(one, dict) and isinstance(other, dict):
            names = [each for each in {**one, **other} if self.chance(0.8)]
            return {each: self._mix(one[each], other[each]) if each in one and each in other
                    else one.get(each, other.get(each)) for each in names}  # fmt: skip
        if isinstance(one, list) and isinstance(other, list):
            mixed = [each for each in (*one, *other) if self.chance(0.6)]
            self.random.shuffle(mixed)
            return mixed
        return one if self.chance(0.7) else other

    def make_value(self, schema: Schema, *, wild: float) -> Any:
        if self.chance(wild):
            return self._anything(2)
        if schema.get("nullable") and self.chance(0.2):
            return None
        if "default" in schema and self.chance(0.1 if wild else 0.0):
            return None
        if schema.get("enum") and not self.chance(wild):
            return self.random.choice(schema["enum"])
        return self._typed(schema, wild)

    def _typed(self, schema: Schema, wild: float) -> Any:
        match schema.get("type"):
            case "string":
                return self._text(schema)
            case "integer":
                return self.random.choice([each for each in NUMBERS if isinstance(each, int)])
            case "number":
                return self.random.choice(NUMBERS)
            case "boolean":
                return self.chance(0.5)
            case "array":
                most = schema.get("maxItems", 3)
                return [self.make_value(schema["items"], wild=wild) for _ in range(self.random.randint(0, most))]
            case "object":
                return self._fields(schema, wild)
        return self.random.choice((1, 2, "a", "10%")) if "x-kubernetes-int-or-string" in schema else self._anything(2)

    def _text(self, schema: Schema) -> str:
        fitting = [each for each in TEXTS if len(each) <= schema.get("maxLength", 99)]
        return self.random.choice(fitting)

    def _fields(self, schema: Schema, wild: float) -> dict[str, Any]:
        required = schema.get("required") or ()
        made = {
            name: self.make_value(each, wild=wild)
            for name, each in (schema.get("properties") or {}).items()
            if self.chance(0.95 if name in required else 0.6)
        }
        if isinstance(schema.get("additionalProperties"), dict):
            for name in self.random.sample(NAMES, 2):
                made[name] = self.make_value(schema["additionalProperties"], wild=wild)
        elif schema.get("additionalProperties"):
            made[self.random.choice(NAMES)] = self._anything(1)
        if self.chance(wild):
            made["z"] = self._anything(1)
        if schema.get("x-kubernetes-embedded-resource"):
            made |= {"apiVersion": "v1", "kind": "Pod"} if not self.chance(wild) else {"kind": self._anything(1)}
            if self.chance(0.3):
                made["metadata"] = {"name": "x", "labels": {"a": "b"}}
        return made

    def _anything(self, depth: int) -> Any:
        simple = self.random.choice((None, True, False, *NUMBERS, *TEXTS))
        shape = self.random.choice(("simple", "simple", "list", "dict") if depth else ("simple",))
        if shape == "list":
            return [self._anything(depth - 1) for _ in range(self.random.randint(0, 3))]
        if shape == "dict":
            return {each: self._anything(depth - 1) for each in self.random.sample(NAMES, 2)}
        return simple


def make_case(seed: int) -> tuple[Schema, list[dict[str, Any]]]:
    """A schema, and objects of which each is an update of the one before."""
    maker = SchemaMaker(seed)
    schema = maker.make_schema()
    objects = [maker.make_object(schema)]
    for _ in range(2):
        objects.append(maker.change_object(schema, objects[-1]))
    typed = {"apiVersion": "example.com/v1", "kind": "Case", "metadata": {"name": "x"}}
    return schema, [{**typed, **each, "metadata": typed["metadata"]} for each in objects]
