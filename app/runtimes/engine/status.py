"""Reasons of engines for containers that did not start, or were lost, in Kubernetes' words."""

UNKNOWN = "ContainerStatusUnknown"
LOST = "the container engine does not know how the container ended"
MISSING, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 128
_MISSING = ("executable file not found", "no such file or directory")
_NOT_EXECUTABLE = ("permission denied", "exec format error", "is a directory")


def start_code(message: str) -> int:
    """The exit code of what could not be started, by what the engine says about it."""
    words = message.lower()  # each of the programs that start containers has its own way with capitals
    if any(text in words for text in _MISSING):
        return MISSING
    if any(text in words for text in _NOT_EXECUTABLE):
        return NOT_EXECUTABLE
    return NOT_STARTED
