"""Errors of container engines. The runtimes that drive one (cri, docker) raise and read them."""

from collections.abc import Iterator
from contextlib import contextmanager

GONE = "NotFound"


class EndpointError(ValueError):
    """No engine can be spoken to in that way."""


class EngineError(Exception):
    """`code` as Go names it, such as NotFound; `details` in the engine's own words; `text` as a user is shown it."""

    def __init__(self, code: str, details: str, text: str) -> None:
        super().__init__(text)
        self.code, self.details = code, details


@contextmanager
def unless_gone() -> Iterator[None]:
    """What no longer exists needs nothing done to it."""
    try:
        yield
    except EngineError as error:
        if error.code != GONE:
            raise
