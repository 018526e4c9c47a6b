"""Patches of all four forms: of what is there, of what is not, and of no form at all."""

import json
from random import Random
from typing import Any

from app.machinery.shape import ANY, Shape
from tests.fuzz import encodings
from tests.fuzz.documents import Stock
from tests.fuzz.words import anything, text

MERGE, STRATEGIC = b"application/merge-patch+json", b"application/strategic-merge-patch+json"
JSON_PATCH, APPLY = b"application/json-patch+json", b"application/apply-patch+yaml"
_OPERATIONS = ("add", "add", "remove", "replace", "replace", "move", "copy", "test")


def patch(rng: Random, stock: Stock, document: dict[str, Any], shape: Shape) -> tuple[bytes, bytes]:
    """A body and its content type."""
    form = rng.choice((MERGE, STRATEGIC, STRATEGIC, JSON_PATCH, APPLY))
    if rng.random() < 0.03:
        return json.dumps(anything(rng)).encode(), form
    if form == JSON_PATCH:
        return json.dumps(_operations(rng, stock, document, shape)).encode(), form
    if form == APPLY:
        return _applied(rng, stock, document, shape), form
    made = _part(rng, stock, document, shape, directs=form == STRATEGIC)
    if rng.random() < 0.5:
        made = _together(made, _part(rng, stock, document, shape, directs=form == STRATEGIC))
    return json.dumps(made).encode(), form


def _applied(rng: Random, stock: Stock, document: dict[str, Any], shape: Shape) -> bytes:
    """What a client would apply: some parts of the object, without what the server has set."""
    metadata = document.get("metadata") or {}
    kept = {"name": metadata.get("name"), "labels": metadata.get("labels") or {}}
    rest = {key: each for key, each in document.items() if key not in ("metadata", "status") and rng.random() < 0.8}
    made = {**rest, "apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": kept}
    if rng.random() < 0.85:
        made = stock.mutated(made, shape)
    return encodings.as_json(made) if rng.random() < 0.7 else encodings.as_yaml(made)


def _part(rng: Random, stock: Stock, value: Any, shape: Shape, *, directs: bool) -> Any:
    """Goes down into the document, and changes something on the way."""
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not (value or shape.fields):
        return None if rng.random() < 0.2 else stock.grown(shape, 2)
    if isinstance(value, list):
        return _elements(rng, stock, value, shape, directs=directs)
    known = list({**dict.fromkeys(shape.fields), **dict.fromkeys(value)}) or ["a"]
    name = rng.choice(list(value)) if value and rng.random() < 0.7 else rng.choice(known)
    field = shape.fields.get(name)
    inner = field.shape if field else shape.item or ANY
    made = {name: _part(rng, stock, value.get(name), inner, directs=directs)}
    return _directed(rng, made, name, value) if directs and rng.random() < 0.25 else made


def _directed(rng: Random, made: dict[str, Any], name: str, value: dict[str, Any]) -> dict[str, Any]:
    match rng.randrange(4):
        case 0:
            return {**made, "$patch": rng.choice(("replace", "delete", "merge", "explode", anything(rng)))}
        case 1:
            return {**made, "$retainKeys": rng.choice(([name], list(value), [], anything(rng), [anything(rng)]))}
        case 2:
            return {
                **made,
                f"$setElementOrder/{name}": rng.choice((value.get(name), [], anything(rng), [anything(rng)])),
            }
    return {**made, f"$deleteFromPrimitiveList/{name}": rng.choice((value.get(name), [text(rng)], anything(rng)))}


def _elements(rng: Random, stock: Stock, value: list[Any], shape: Shape, *, directs: bool) -> list[Any]:
    item = shape.item or ANY
    if not value or rng.random() < 0.3:
        return [stock.grown(item, 2) for _ in range(rng.randrange(3))]
    each = rng.choice(value)
    made = _part(rng, stock, each, item, directs=directs)
    if isinstance(made, dict) and isinstance(each, dict):
        keys = {
            key: each[key]
            for key in ("name", "key", "type", "uid", "containerPort", "port", "ip", "mountPath")
            if key in each
        }
        made = keys | made
        if directs and rng.random() < 0.2:
            made["$patch"] = rng.choice(("delete", "replace", "merge", anything(rng)))
    return [made, *value[: rng.randrange(2)]]


def _together(one: Any, other: Any) -> Any:
    return {**one, **other} if isinstance(one, dict) and isinstance(other, dict) else one


def _operations(rng: Random, stock: Stock, document: dict[str, Any], shape: Shape) -> list[Any]:
    return [_operation(rng, stock, document, shape) for _ in range(rng.choice((0, 1, 1, 2, 3, 8)))]


def _operation(rng: Random, stock: Stock, document: dict[str, Any], shape: Shape) -> Any:
    if rng.random() < 0.03:
        return anything(rng)
    path, inner = _pointer(rng, document, shape)
    made = {"op": rng.choice(_OPERATIONS), "path": path, "value": stock.grown(inner, 2)}
    if made["op"] in ("move", "copy"):
        made["from"] = _pointer(rng, document, shape)[0]
    if rng.random() < 0.05:
        made[rng.choice(("op", "path", "from", "value"))] = anything(rng)
    if rng.random() < 0.05:
        made.pop(rng.choice(list(made)))
    return made


def _pointer(rng: Random, document: dict[str, Any], shape: Shape) -> tuple[str, Shape]:
    """The way to a place in the document, or to one beside it."""
    steps: list[str] = []
    value: Any = document
    depth = rng.randrange(8)
    while isinstance(value, dict | list) and value and len(steps) < depth:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        field = shape.fields.get(key) if isinstance(value, dict) else None
        shape = field.shape if field else shape.item or ANY
        steps.append(str(key))
        value = value[key]
    if rng.random() < 0.3:
        beside = rng.choice(
            ("-", "0", "1", "00", "-1", "~", "~0", "~1", "", text(rng), rng.choice(list(shape.fields) or ["a"]))
        )
        shape = shape.fields[beside].shape if beside in shape.fields else shape.item or ANY
        return "".join(f"/{_escaped(step)}" for step in steps) + f"/{beside}", shape
    return "".join(f"/{_escaped(step)}" for step in steps), shape


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")
