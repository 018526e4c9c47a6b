"""Log output: where log lines go, and in which form. Started by the command line and by the agent's process.

Lines go to stderr, as text or JSON, those of libraries too. Where systemd's journal reads them, each begins with its
priority. No line appears more than once a minute for one cause; the next one says how many were left out. Imports nothing
that an agent would have to keep in memory.
"""

import json
import logging
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO, Unpack

from app.structured_logging import EVENTS, MEASURES, Fields, LogFormat

SECONDS = 60.0
_MOST_CAUSES = 1000
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7
_OWN = "app."  # the names of our own loggers begin with it


def start(level: str, form: LogFormat, component: str, **fields: Unpack[Fields]) -> None:
    """Begin to log, from that level up. `component` and the fields stand in every line of the process."""
    handler = JournalHandler(sys.stderr) if is_journal() else logging.StreamHandler(sys.stderr)
    handler.setFormatter((JsonFormatter if form == "json" else TextFormatter)(component, fields))
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    threading.excepthook, sys.unraisablehook = _log_of_thread, _log_unraisable
    for noisy in ("alembic", "httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # A database that is away is our own store's to tell, in a line.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)


def is_journal() -> bool:
    """Return whether stderr goes to systemd's journal: systemd names the stream in JOURNAL_STREAM."""
    try:
        stream = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{stream.st_dev}:{stream.st_ino}"


def with_priority(text: str, level: int) -> str:
    """Begin each line with the priority of syslog, as sd-daemon(3) has it: the journal takes it off, and files by it."""
    priority = next((number for least, number in _PRIORITIES if level >= least), _DEBUG)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


class JournalHandler(logging.StreamHandler[TextIO]):
    """Writes for the journal, so that `journalctl -p warning` finds the warnings."""

    def format(self, record: logging.LogRecord) -> str:
        return with_priority(super().format(record), record.levelno)


def is_json() -> bool:
    """Return whether this process logs JSON, so that all else that it writes to stderr should be a log line, too."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def _log_of_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit:
        return
    name = failed.thread.name if failed.thread else ""
    logging.getLogger("threading").error("unexpected error in thread %s", name, exc_info=failed.exc_value)


def _log_unraisable(failed: "sys.UnraisableHookArgs") -> None:
    logging.getLogger("unraisable").error(
        "unexpected error in %s", type(failed.object).__name__, exc_info=failed.exc_value
    )


class RateLimit(logging.Filter):
    """Let one line a minute through for each cause: logger, level, message, the objects that it names, and type of error.

    A line that is not from here has no fields: its whole text stands for the cause. The causes that came up longest ago are
    forgotten when there are too many.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = _MOST_CAUSES) -> None:
        super().__init__()
        self._clock, self._most = clock, most
        self._lines: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()  # the last one's time, and left out since
        self._lock = threading.RLock()  # finalizers may log while it is held

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            cause = cause_of(record)
        except Exception:
            return True  # a library's message that does not fit its arguments: the handler reports it
        return self._limit(record, cause)

    def _limit(self, record: logging.LogRecord, cause: Hashable) -> bool:
        now = self._clock()
        with self._lock:
            if self._is_full_of_repeated_causes(cause, now):
                cause = record.name, record.levelno, record.msg
            written_at, left_out = self._lines.pop(cause, (now - SECONDS, 0))
            if now - written_at < SECONDS:
                self._lines[cause] = written_at, left_out + 1
                return False
            self._lines[cause] = now, 0
            if len(self._lines) > self._most:
                self._lines.popitem(last=False)
        if left_out:
            record.repeated = left_out
        return True

    def _is_full_of_repeated_causes(self, cause: Hashable, now: float) -> bool:
        """True: to remember one more cause, one would be forgotten that was written less than a minute ago.

        More objects than that have the same trouble, as the nodes of a large fleet: one line stands for all of them.
        """
        if cause in self._lines or len(self._lines) < self._most:
            return False
        written_at, _ = next(iter(self._lines.values()))
        return now - written_at < SECONDS


def cause_of(record: logging.LogRecord) -> Hashable:
    """Return what two lines have in common if one of them is enough."""
    fields = _own_fields(record)
    if fields is None:
        return record.name, record.levelno, record.getMessage()
    failure = fields.get("error") or (record.exc_info[1] if record.exc_info else None)
    passed_over = MEASURES | EVENTS if record.levelno > logging.INFO else MEASURES
    named = tuple((name, value) for name, value in fields.items() if name not in passed_over)
    return record.name, record.levelno, record.msg, type(failure), named


class _Formatter(logging.Formatter):
    def __init__(self, component: str, fields: Fields) -> None:
        super().__init__()
        self._component, self._fields = component, fields

    def _all_fields(self, record: logging.LogRecord) -> dict[str, Any]:
        found = {**self._fields, **(_own_fields(record) or {})}
        if repeated := getattr(record, "repeated", 0):
            found["repeated"] = repeated
        return {name: _plain(value) for name, value in found.items()}


class TextFormatter(_Formatter):
    """`time LEVEL component: message  name=value ...`, and the traceback on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        fields = self._all_fields(record)
        if not record.name.startswith(_OWN):
            fields["logger"] = record.name
        head = f"{_time(record)} {record.levelname} {self._component}: {record.getMessage()}"
        line = "  ".join([head, " ".join(f"{name}={_quote(value)}" for name, value in fields.items())]).rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(_Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "component": self._component,
            "msg": record.getMessage(),
            **self._all_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _own_fields(record: logging.LogRecord) -> Mapping[str, Any] | None:
    return getattr(record, "fields", None)


def _time(record: logging.LogRecord) -> str:
    """RFC 3339, UTC."""
    return f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z"


def _plain(value: Any) -> str | int | float:
    if isinstance(value, str | int | float):
        return value
    return str(value) or type(value).__name__  # an error may have no text


def _quote(value: str | float) -> str:
    """In quotes, as JSON has it, if there is a blank or another character in it that would make it unclear."""
    text = str(value)
    is_clear = text and text.isprintable() and not any(each in text for each in ' "=')
    return text if is_clear else json.dumps(text, ensure_ascii=False)
