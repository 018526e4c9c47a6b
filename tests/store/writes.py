"""Writes for the tests of the store: things without a kind, whose body says only what the test is about."""

from typing import Any

import msgspec

from app.store import MUST_NOT_EXIST, Key, SelectorIndex, Write

KIND = "things"


def key(name: str, kind: str = KIND) -> Key:
    return Key(kind, "default", name)


def body(name: str, value: Any = "") -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}, "value": value})


def value_of(stored: bytes) -> Any:
    return msgspec.json.decode(stored)["value"]


def create(name: str, value: Any = "", *, kind: str = KIND, deleting: bool = False, **labels: str) -> Write:
    return Write(
        key=key(name, kind),
        change="A",
        expected=MUST_NOT_EXIST,
        uid=f"uid-of-{name}",
        body=body(name, value),
        selector_index=SelectorIndex(labels),
        deleting=deleting,
    )


def modify(name: str, expected: int, value: Any = "", *, kind: str = KIND, deleting: bool = False) -> Write:
    return Write(
        key=key(name, kind),
        change="M",
        expected=expected,
        uid=f"uid-of-{name}",
        body=body(name, value),
        deleting=deleting,
    )


def delete(name: str, expected: int, value: Any = "", *, kind: str = KIND) -> Write:
    return Write(key=key(name, kind), change="D", expected=expected, uid=f"uid-of-{name}", body=body(name, value))
