"""JSON paths of printer columns, selectable fields and scale: the part of kubectl's language that is used there.

Fields, quoted fields, indexes, slices, wildcards and filters such as `[?(@.type=="Ready")]`.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]
_STEP = re.compile(
    r"""\.(?P<field>(?:[^.\[\\]|\\.)+)
    |\[\?\(\s*@(?P<left>[^=!<>]*?)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]
    |\[(?P<index>-?\d+)\]
    |\[(?P<start>-?\d*):(?P<end>-?\d*)\]
    |\[(?P<any>\*)\]
    |\[(?P<quoted>'[^']*'|"[^"]*")\]""",
    re.VERBOSE,
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


class JsonPathError(ValueError):
    """A path that cannot be read."""


@lru_cache(maxsize=4096)
def compile_path(path: str) -> tuple[Step, ...]:
    """Compile a path such as `.status.conditions[0].type`. Raises JsonPathError."""
    steps: list[Step] = []
    at = 0
    text = path if path.startswith((".", "[")) else f".{path}"
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise JsonPathError(f"cannot read {text[at:]!r}")
        steps.append(_make_step(found))
        at = found.end()
    return tuple(steps)


def find_first(path: str, document: Any) -> Any:
    """Return the first value at a path; None if there is none."""
    values = iter([document])
    for step in compile_path(path):
        values = _follow(step, values)
    return next(values, None)


def _follow(step: Step, values: Iterator[Any]) -> Iterator[Any]:
    for each in values:
        yield from step(each)


def _make_step(found: re.Match[str]) -> Step:
    parts = found.groupdict()
    if parts["field"] is not None:
        return _everything if parts["field"] == "*" else _field(re.sub(r"\\(.)", r"\1", parts["field"]))
    if parts["quoted"] is not None:
        return _field(parts["quoted"][1:-1])
    if parts["any"]:
        return _everything
    if parts["index"] is not None:
        return _index(int(parts["index"]))
    if parts["operator"]:
        return _filter(parts["left"], _OPERATORS[parts["operator"]], _literal(parts["right"]))
    return _slice(slice(*(int(parts[name]) if parts[name] else None for name in ("start", "end"))))


def _field(name: str) -> Step:
    return lambda value: iter([value[name]] if isinstance(value, dict) and name in value else [])


def _everything(value: Any) -> Iterator[Any]:
    return iter(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())


def _index(index: int) -> Step:
    return lambda value: iter([value[index]] if isinstance(value, list) and -len(value) <= index < len(value) else [])


def _slice(part: slice) -> Step:
    return lambda value: iter(value[part] if isinstance(value, list) else ())


def _filter(left: str, operator: Callable[[Any, Any], bool], right: Any) -> Step:
    def step(value: Any) -> Iterator[Any]:
        for each in value if isinstance(value, list) else ():
            found = find_first(left, each) if left else each
            if type(found) is type(right) and operator(found, right):
                yield each

    return step


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text
