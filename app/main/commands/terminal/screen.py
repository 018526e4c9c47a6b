"""The terminal while a command waits: log lines on stdout, and below them one line of progress on stderr.

Without a terminal on stderr there is no line of progress, and nothing but logs is printed. Used by `run`, `watch` and `logs`.
"""

import os
import sys
import time
from collections.abc import Callable

PAUSE_SECONDS = 0.1
_CLEAR = "\r\x1b[K"
_USUAL_WIDTH = 80


class Screen:
    """Output of a command, with or without a line of progress at its end."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self.is_live = sys.stderr.isatty() and not is_quiet
        self._shown = ""
        self._drawn_at = float("-inf")
        self._is_line_open = False  # the last log line has not ended yet

    def is_due(self) -> bool:
        """Return whether the line of progress may be drawn again: ten times a second, however much happens."""
        return self.is_live and time.monotonic() - self._drawn_at >= PAUSE_SECONDS

    def show(self, text: str) -> None:
        """Replace the line of progress; it is cut to the terminal."""
        if not self.is_live or self._is_line_open:
            return
        self._drawn_at = time.monotonic()
        width = _read_width() - 1
        shown = text if len(text) <= width else f"{text[: width - 1]}…"
        if shown != self._shown:
            sys.stderr.write(f"{_CLEAR}{shown}")
            sys.stderr.flush()
            self._shown = shown

    def write(self, data: bytes) -> None:
        """Print bytes of a log above the line of progress."""
        self.clear()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        self._is_line_open = not data.endswith(b"\n")

    def say(self, text: str) -> None:
        """Print a line to stderr that stays."""
        self.clear()
        if self._is_line_open and self.is_live:
            sys.stderr.write("\n")
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line of progress."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._shown = ""


class LinePrefixer:
    """Writes whole lines, each behind a prefix, so that logs of several pods do not mix. Without a prefix: at once."""

    def __init__(self, write: Callable[[bytes], None], prefix: bytes) -> None:
        self._write, self._prefix = write, prefix
        self._rest = b""

    def write(self, piece: bytes) -> None:
        """Print what is whole of it."""
        if not self._prefix:
            self._write(piece)
            return
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines:
            self._write(b"".join(self._prefix + line + b"\n" for line in lines))

    def end(self) -> None:
        """Print the last line, if the log does not end with a newline."""
        if self._rest:
            self._write(self._prefix + self._rest + b"\n")
            self._rest = b""


def _read_width() -> int:
    """Return the columns of the terminal on stderr: not those of stdout, which may be a file, nor a shell's stale $COLUMNS."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH
