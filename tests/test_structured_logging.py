"""Every log call of the program: a constant message, and fields that docs/logs.md describes."""

import ast
import logging
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from app.structured_logging import EVENTS, MEASURES, Fields, Logger, name_pods_by, object_fields
from tests.log_lines import lines

ROOT = Path(__file__).parents[1]
METHODS = {"debug": 0, "info": 0, "warning": 0, "error": 0, "at": 1}  # and the place of the message
FIELDS = frozenset(get_type_hints(Fields))
OF_LOGGING = {  # who may use the library itself: these, and one that hands a logger to another library
    "app/structured_logging.py",
    "app/main/log_output.py",
    "app/main/cli_errors.py",
    "app/client/websocket_framing.py",
}


def modules(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules that have one of the words."""
    for path in sorted((ROOT / "app").rglob("*.py")):
        text = path.read_text()
        if any(word in text for word in words):
            yield str(path.relative_to(ROOT)), ast.parse(text)


@cache
def calls() -> list[tuple[str, str, ast.Call]]:
    """Return where, method and call. Once, and only where it is asked for: each test process imports this module."""
    return [
        (f"{path}:{node.lineno}", node.func.attr, node)
        for path, tree in modules("logger")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "logger"
    ]


def test_calls_are_found() -> None:
    assert len(calls()) > 100
    assert {method for _, method, _ in calls()} <= METHODS.keys()


def test_every_message_is_a_constant_sentence() -> None:
    faults = []
    for where, method, call in calls():
        match call.args[METHODS[method] :]:
            case [ast.Constant(value=str(text))] if not re.search(r"%[sdrf]|\{|\.$|\n", text):
                continue
        faults.append(where)
    assert faults == []


def test_every_field_is_declared() -> None:
    given = {(where, each.arg) for where, _, call in calls() for each in call.keywords if each.arg}
    assert [each for each in given if each[1] not in FIELDS | {"traceback_of"}] == []


def test_every_field_is_described_and_no_other() -> None:
    page = (ROOT / "docs" / "logs.md").read_text().partition("## Fields")[2]
    tables = [
        set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", part, re.MULTILINE))))
        for part in page.split("\n\n")
    ]
    objects, events, measures = (table for table in tables if table)
    assert objects == FIELDS - EVENTS - MEASURES
    assert events == EVENTS
    assert measures == MEASURES | {"repeated"}


def test_nobody_goes_past_it() -> None:
    others = [
        path
        for path, tree in modules("getLogger", "basicConfig")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("getLogger", "basicConfig")
    ]
    assert set(others) <= OF_LOGGING


@pytest.mark.parametrize(
    ("resource", "namespace", "fields"),
    [
        ("jobs.batch", "default", {"job": "default/x"}),
        ("pods", "default", {"pod": "default/x"}),
        ("nodes", "", {"node": "x"}),
        ("configmaps", "default", {"object": "configmaps/default/x"}),
    ],
)
def test_an_object_has_a_field_of_its_own(resource: str, namespace: str, fields: dict[str, Any]) -> None:
    assert object_fields(resource, namespace, "x") == fields


async def test_a_line_with_the_uid_of_a_pod_names_the_pod(caplog: pytest.LogCaptureFixture) -> None:
    logger = Logger("app.x")
    name_pods_by(lambda uid: {"pod": f"default/{uid}", "job": "default/pi"} if uid == "u1" else {})
    logger.warning("known", pod_uid="u1")
    logger.warning("unknown", pod_uid="u2")
    logger.warning("named already", pod_uid="u1", pod="default/a")
    assert lines(caplog) == [
        "WARNING: known  pod=default/u1 job=default/pi pod_uid=u1",
        "WARNING: unknown  pod_uid=u2",
        "WARNING: named already  pod_uid=u1 pod=default/a",
    ]


def test_an_error_with_a_traceback_is_in_the_line_too(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        Logger("app.x").error("unexpected error", traceback_of=error)
    (line,) = lines(caplog)
    assert line.startswith("ERROR: unexpected error  error=broken\nTraceback")


def test_a_level_that_is_off_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    Logger("app.x").info("not shown", count=1)
    assert caplog.records == []
