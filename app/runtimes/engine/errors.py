"""Errors of container engines, and Kubernetes' reasons and exit codes for them. Raised and read by the runtimes with engines."""

from collections.abc import Iterator
from contextlib import contextmanager

GONE = "NotFound"
UNKNOWN = "ContainerStatusUnknown"
LOST = "the container engine does not know how the container ended"
MISSING, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 128
_MISSING = ("executable file not found", "no such file or directory")
_NOT_EXECUTABLE = ("permission denied", "exec format error", "is a directory")


class EndpointError(ValueError):
    """No engine can be spoken to in that way."""


class EngineError(Exception):
    """`code` as Go names it, such as NotFound; `details` in the engine's own words; `text` as a user is shown it."""

    def __init__(self, code: str, details: str, text: str) -> None:
        super().__init__(text)
        self.code, self.details = code, details


@contextmanager
def unless_gone() -> Iterator[None]:
    """Ignore the error that an object does not exist: then nothing has to be done to it."""
    try:
        yield
    except EngineError as error:
        if error.code != GONE:
            raise


def start_code(message: str) -> int:
    """Exit code of a container that could not be started, by the engine's message."""
    words = message.lower()  # each of the programs that start containers has its own way with capitals
    if any(text in words for text in _MISSING):
        return MISSING
    if any(text in words for text in _NOT_EXECUTABLE):
        return NOT_EXECUTABLE
    return NOT_STARTED
