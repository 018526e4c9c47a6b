"""Documents that almost fit: grown from a kind's shape, or a valid one with a few things changed in it."""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

from app.machinery.shape import ANY, Shape
from tests.fuzz.words import FITTING, NAMES, NASTY, NUMBERS, anything, known, text

DEEPEST = 7
MOST = 40  # values that are kept of a field
_AMOUNTS = ("1", "100m", "1Gi", "0", "2", 1, 0.5, "1e3", "-1", "5M")
_TIMES = tuple(each for each in NASTY if each[4:5] == "-")


class Place(NamedTuple):
    """A value in a document: what holds it, under which key, and what shape it should have."""

    holder: Any
    key: Any
    shape: Shape


class Stock:
    """What has been seen to fit, by shape and field; documents grow out of it, and out of nothing."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._seen: dict[tuple[str, Any], list[Any]] = {}

    def learn(self, document: Any, shape: Shape) -> None:
        """Every value in a document that was accepted."""
        for holder, key, inner in places(document, shape):
            values = self._seen.setdefault(_slot(inner, key), [])
            if holder[key] not in values:
                values.append(holder[key])
                del values[:-MOST]

    def grown(self, shape: Shape, depth: int = 0, key: Any = None) -> Any:
        """A value of this shape, mostly."""
        rng = self._rng
        if rng.random() < 0.01:
            return anything(rng)
        seen = self._seen.get(_slot(shape, key))
        if seen and rng.random() < 0.5:
            return copy.deepcopy(rng.choice(seen))
        match shape.sort:
            case "struct":
                return self._struct(shape, depth)
            case "list" if shape.item:
                return [self.grown(shape.item, depth + 1) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
            case "map" if shape.item:
                return {_key(rng): self.grown(shape.item, depth + 1) for _ in range(rng.choice((0, 1, 1, 2)))}
            case "any":
                return anything(rng)
        return _scalar(rng, shape)

    def _struct(self, shape: Shape, depth: int) -> dict[str, Any]:
        rng = self._rng
        if depth > DEEPEST or not shape.fields:
            return {}
        wanted = rng.choice((1, 2, 2, 3, 4, 8)) / len(shape.fields)
        fields = [each for each in shape.fields.values() if rng.random() < wanted]
        return {each.name: self.grown(each.shape, depth + 1, each.name) for each in fields}

    def mutated(self, document: Any, shape: Shape) -> Any:
        """A copy with one to four changes, each anywhere."""
        rng = self._rng
        root = {"": copy.deepcopy(document)}
        around = Shape("map", "", item=shape)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            found = list(places(root, around))
            if not found:
                break
            self._change(rng.choice(found if rng.random() < 0.5 else found[-len(found) // 2 :]))
        return root.get("")

    def _change(self, place: Place) -> None:
        holder, key, shape = place
        value, rng = holder[key], self._rng
        match rng.randrange(10):
            case 0 if rng.random() < 0.5:
                holder[key] = anything(rng)
            case 1:
                del holder[key]
            case 2 | 3 if isinstance(value, list) and value:
                value.insert(rng.randrange(len(value) + 1), copy.deepcopy(rng.choice(value)))
            case 2 | 3 | 4 | 5 | 6 if isinstance(value, dict) and shape.fields:
                field = rng.choice(list(shape.fields.values()))
                value[field.name] = self.grown(field.shape, 2, field.name)
            case 4 | 5 if isinstance(value, list) and shape.item:
                value.append(self.grown(shape.item, 2))
            case 7 if isinstance(value, dict):
                value[text(rng)] = anything(rng)
            case _:
                holder[key] = self.grown(shape, 2, key)


def _slot(shape: Shape, key: Any) -> tuple[str, Any]:
    """Which values may stand for each other: of the same type, in the field of the same name, or in any list."""
    return shape.go, key if isinstance(key, str) else None


def _key(rng: Random) -> str:
    return rng.choice(("cpu", "memory", "pods", "a", "app", rng.choice(NAMES), rng.choice(known()), text(rng)))


def _scalar(rng: Random, shape: Shape) -> Any:
    match shape.sort:
        case "bool":
            return rng.random() < 0.5
        case "integer":
            return rng.choice(FITTING) if rng.random() < 0.9 else rng.choice(NUMBERS)
        case "number":
            return rng.choice(NUMBERS)
        case "quantity":
            return rng.choice(_AMOUNTS) if rng.random() < 0.6 else rng.choice((*NUMBERS, *NASTY))
        case "either":
            return rng.choice((*FITTING, "50%", "100%", "-1%", "http", text(rng)))
        case "time" | "micro":
            return rng.choice(_TIMES) if rng.random() < 0.9 else text(rng)
        case "bytes":
            return rng.choice(("", "AAE=", "YQ==", text(rng)))
    return text(rng)


def places(value: Any, shape: Shape) -> Iterator[Place]:
    """Every value inside, outermost first."""
    if isinstance(value, dict):
        for key, each in value.items():
            inner = shape.fields[key].shape if key in shape.fields else shape.item or ANY
            yield Place(value, key, inner)
            yield from places(each, inner)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield Place(value, index, shape.item or ANY)
            yield from places(each, shape.item or ANY)
