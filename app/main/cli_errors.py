"""Errors that end a program: an exit code and one line that says what to do. Called by `cli` and `agent_process`.

The user sees no traceback: that of an unexpected error goes to a file, which the line names. Imports nothing that an agent
would have to keep in memory.
"""

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from app.machinery.errors import ApiError
from app.main import log_output

FAILED = 1
USAGE = 2
CONFIG = 78  # EX_CONFIG of sysexits.h
INTERRUPTED = 130
PERMANENT = frozenset({USAGE, CONFIG})  # codes of programs that would end the same way if they were started again
LAST_WORDS = "JOBPLANE_LAST_WORDS"  # the descriptor from which `up` reads the last line of a child
TRACEBACK = "traceback.txt"  # in the data folder: the traceback of the last unexpected error


class CommandError(Exception):
    """A command fails; the text is for its user."""

    code = FAILED


class ConfigError(CommandError):
    """A program cannot run until a setting, a file or the machine is changed; the text names it, and the change."""

    code = CONFIG


class Ending(NamedTuple):
    """How a program ends. `line` is empty if there is nothing to say; `foreseen` is false of unexpected errors."""

    code: int
    line: str
    foreseen: bool = True


def ending(error: BaseException) -> Ending:
    """Decide how a program ends: with 78 if waiting cannot help, with 1 if it may, or if the error is unexpected."""
    error = _leaf(error)
    match error:
        case CommandError():
            return Ending(error.code, str(error))
        case ApiError():
            return Ending(FAILED, error.message)
        case KeyboardInterrupt():
            return Ending(INTERRUPTED, "")
        case BrokenPipeError():
            return Ending(FAILED, "")
        case PermissionError() | NotADirectoryError() | IsADirectoryError() | FileExistsError() if error.filename:
            return Ending(
                CONFIG, f"user {os.geteuid()} cannot use {error.filename}: {_reason(error)}: pass another path"
            )
        case FileNotFoundError() if error.filename:
            return Ending(FAILED, f"{error.filename} does not exist: pass another path")
        case OSError():
            return Ending(FAILED, f"{error.filename}: {_reason(error)}" if error.filename else _reason(error))
    return Ending(FAILED, f"unexpected error: {type(error).__name__}: {error}", foreseen=False)


def _leaf(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).rstrip(".")


class _Traceback:
    folder: Path | None = None


def keep_tracebacks_in(folder: Path) -> None:
    """Set the folder in which tracebacks of unexpected errors are kept."""
    _Traceback.folder = folder


def ended(program: Callable[[], None]) -> int:
    """Run a program. Returns the code to exit with; the line is printed, or handed to `up`."""
    try:
        program()
    except Exception as error:
        return _report(error)
    except KeyboardInterrupt as error:
        return _report(error)
    return 0


def _report(error: BaseException) -> int:
    """Print the line, or hand it to `up`. Returns the exit code."""
    code, line, foreseen = ending(error)
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        print_error("".join(traceback.format_exception(error)).rstrip())
    if not foreseen:
        line = f"{line} ({_keep_traceback(error)})"
    line = " ".join(line.split())
    if line and not (code in PERMANENT and _hand_over(line)):
        print_error(line)
    return code


def print_error(text: str) -> None:
    """To stderr; where that is JSON, as a log line, and where it is the journal, as an error."""
    if log_output.is_json():
        logging.getLogger(__name__).critical("%s", text)
    else:
        print(
            log_output.with_priority(text, logging.ERROR) if log_output.is_journal() else text,
            file=sys.stderr,
            flush=True,
        )


def _keep_traceback(error: BaseException) -> str:
    """Write the traceback to its file; returns words that say where it is."""
    if _Traceback.folder:
        path = _Traceback.folder / TRACEBACK
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.writelines(traceback.format_exception(error))
            return f"its traceback is in {path}"
    return f"its traceback could not be kept; it was raised at {_raised_at(error)}"


def _raised_at(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


def _hand_over(line: str) -> bool:
    """Give the line to `up`, which prints it last of all. Returns whether there is an `up`."""
    try:
        os.write(int(os.environ[LAST_WORDS]), line.encode())
    except (KeyError, ValueError, OSError):
        return False
    return True


def keep_last_words() -> None:
    """Keep the descriptor of last words from programs that this process starts: they could write to it."""
    with contextlib.suppress(KeyError, ValueError, OSError):
        os.set_inheritable(int(os.environ[LAST_WORDS]), False)


def text_of(path: Path) -> str:
    """Read a file that a setting names, such as a token, without the blanks around it. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file: pass another path") from None
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist: pass another path") from None
