"""Log lines: their two forms, and the limit of one a minute for a cause."""

import json
import logging
import sys
from typing import Any

import pytest

from app.main.log_output import JsonFormatter, RateLimit, TextFormatter, with_priority


def a_record(message: str = "cannot sync", level: int = logging.WARNING, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("app.agent.x", level, "x.py", 1, message, (), None)
    record.created, record.msecs = 1_769_860_800.25, 250.0  # noon
    record.fields = fields
    return record


def of_a_library(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("uvicorn.error", logging.WARNING, "x.py", 1, message, arguments, None)


def failed(text: str = "broken") -> Any:
    try:
        raise ValueError(text)
    except ValueError:
        return sys.exc_info()


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"pod": "default/pi", "attempt": 2}, "  pod=default/pi attempt=2", id="plain"),
        pytest.param({"error": ValueError('no "x"')}, '  error="no \\"x\\""', id="quotes"),
        pytest.param({"error": ValueError("a=b")}, '  error="a=b"', id="an equals sign"),
        pytest.param({"error": ValueError("a\nb")}, '  error="a\\nb"', id="a line break"),
        pytest.param({"reason": ""}, '  reason=""', id="empty"),
        pytest.param({"error": TimeoutError()}, "  error=TimeoutError", id="an error without a text"),
        pytest.param({"seconds": 0.5}, "  seconds=0.5", id="a number"),
    ],
)
def test_text_has_the_fields_behind_the_message(fields: dict[str, Any], line: str) -> None:
    written = TextFormatter("agent", {}).format(a_record(**fields))
    assert written == f"2026-01-31T12:00:00.250Z WARNING agent: cannot sync{line}"


def test_text_names_the_logger_of_a_library() -> None:
    written = TextFormatter("api", {}).format(of_a_library("invalid %s", "request"))
    assert written.endswith(" WARNING api: invalid request  logger=uvicorn.error")


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        pytest.param(logging.DEBUG, 7, id="debug"),
        pytest.param(logging.INFO, 6, id="info"),
        pytest.param(logging.WARNING, 4, id="warning"),
        pytest.param(logging.ERROR, 3, id="error"),
        pytest.param(logging.CRITICAL, 2, id="critical"),
    ],
)
def test_lines_for_the_journal_begin_with_their_priority(level: int, priority: int) -> None:
    assert with_priority("cannot sync\nValueError: x", level) == f"<{priority}>cannot sync\n<{priority}>ValueError: x"


def test_text_has_the_traceback_on_lines_of_its_own() -> None:
    record = a_record()
    record.exc_info = failed()
    first, *others = TextFormatter("agent", {}).format(record).splitlines()
    assert first.endswith("agent: cannot sync")
    assert (others[0], others[-1]) == ("Traceback (most recent call last):", "ValueError: broken")


def test_json_is_one_object_a_line() -> None:
    record = a_record(pod="default/pi", attempt=2, error=ValueError("ä\nb"))
    record.exc_info = failed()
    written = JsonFormatter("agent", {"node": "n1"}).format(record)
    assert "\n" not in written
    line = json.loads(written)
    assert "ValueError: broken" in line.pop("exception")
    assert line == {
        "ts": "2026-01-31T12:00:00.250Z",
        "level": "warning",
        "logger": "app.agent.x",
        "component": "agent",
        "msg": "cannot sync",
        "node": "n1",
        "pod": "default/pi",
        "attempt": 2,
        "error": "ä\nb",
    }


def test_json_of_a_library_s_line() -> None:
    line = json.loads(JsonFormatter("api", {}).format(of_a_library("invalid %s", "request")))
    assert (line["msg"], line["logger"]) == ("invalid request", "uvicorn.error")


class Minutes:
    """A limit, and a clock to move."""

    def __init__(self, most: int = 1000) -> None:
        self.now = 0.0
        self.limit = RateLimit(lambda: self.now, most)

    def let_through(self, record: logging.LogRecord) -> bool:
        return self.limit.filter(record)


def test_one_line_a_minute_for_a_cause_and_the_next_counts_those_between() -> None:
    minutes, written = Minutes(), []
    for second in range(121):
        minutes.now = float(second)
        record = a_record(pod="default/pi")
        if minutes.let_through(record):
            written.append((second, getattr(record, "repeated", 0)))
    assert written == [(0, 0), (60, 59), (120, 59)]


def test_the_line_says_how_many_were_left_out() -> None:
    minutes = Minutes()
    for second in (0, 1, 2):
        minutes.now = float(second)
        minutes.let_through(a_record())
    minutes.now = 60.0
    last = a_record()
    assert minutes.let_through(last)
    assert TextFormatter("agent", {}).format(last).endswith("cannot sync  repeated=2")


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        pytest.param(a_record(pod="a/x"), a_record(pod="a/y"), True, id="two pods"),
        pytest.param(a_record("one"), a_record("another"), True, id="two messages"),
        pytest.param(a_record(level=logging.INFO), a_record(), True, id="two levels"),
        pytest.param(
            a_record(error=ValueError("a")), a_record(error=ValueError("b")), False, id="another text of an error"
        ),
        pytest.param(a_record(error=ValueError()), a_record(error=OSError()), True, id="another type of error"),
        pytest.param(a_record(count=1, seconds=2.0), a_record(count=3, seconds=4.0), False, id="other measures"),
        pytest.param(
            a_record(attempt=1, revision=5), a_record(attempt=2, revision=6), False, id="another try of a warning"
        ),
        pytest.param(
            a_record(level=logging.INFO, attempt=1), a_record(level=logging.INFO, attempt=2), True, id="another event"
        ),
        pytest.param(of_a_library("a %s", 1), of_a_library("a %s", 2), True, id="two texts of a library"),
        pytest.param(of_a_library("a %s", 1), of_a_library("a %s", 1), False, id="one text of a library"),
    ],
)
def test_what_a_cause_is(first: logging.LogRecord, second: logging.LogRecord, both: bool) -> None:
    minutes = Minutes()
    assert minutes.let_through(first)
    assert minutes.let_through(second) is both


def test_tracebacks_of_one_type_of_error_are_one_cause() -> None:
    first, second = a_record(), a_record()
    first.exc_info, second.exc_info = failed("a"), failed("b")
    minutes = Minutes()
    assert (minutes.let_through(first), minutes.let_through(second)) == (True, False)


def test_the_oldest_causes_are_forgotten_so_that_memory_is_bounded() -> None:
    minutes = Minutes(most=10)
    for number in range(100):
        minutes.now = 10.0 * number
        assert minutes.let_through(a_record(pod=f"a/{number}"))
    assert len(minutes.limit._lines) == 10
    assert not minutes.let_through(a_record(pod="a/99"))
    assert minutes.let_through(a_record(pod="a/0"))


def test_one_line_stands_for_all_when_more_objects_have_the_same_trouble_than_can_be_remembered() -> None:
    """Every node of a large fleet tries again every two seconds."""
    minutes, written = Minutes(most=10), 0
    for second in range(0, 60, 2):
        minutes.now = float(second)
        written += sum(minutes.let_through(a_record(node=f"n-{number}")) for number in range(100))
    assert written == 10 + 1
    assert len(minutes.limit._lines) == 10


def test_a_line_of_a_library_that_does_not_fit_its_arguments_raises_nothing() -> None:
    record = of_a_library("%d", "x")
    assert Minutes().let_through(record)


@pytest.mark.timeout(20)
def test_a_finalizer_may_log_while_a_line_is_judged() -> None:
    """The garbage collector may run at any time, and asyncio logs from finalizers."""
    minutes = Minutes()

    class Collected:
        def __hash__(self) -> int:
            minutes.let_through(a_record("task was never awaited"))
            return 1

    assert minutes.let_through(a_record(pod=Collected()))
