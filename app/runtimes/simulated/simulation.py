"""The annotation `jobplane.dev/simulate`: what a simulated container does.

The value is a JSON object, or `key=value` pairs with commas or blanks between them. Without it a container succeeds at
once.

    seconds     how long it runs; 0 if not given
    exitCode    how it ends, 0 to 255; 0 if not given
    log         text that it writes to stdout when it starts
    message     its termination message
    failFirst   how many starts fail, with exitCode or else 1, before all others succeed. Counted over restarts and over
                pods of the same owner: those whose names differ only behind the last `-`
    ignoreTerm  true: SIGTERM does nothing, so that only SIGKILL ends it
    startError  it does not start, and this is why

Example: `{"seconds": 2.5, "exitCode": 3}`, or the same as `seconds=2.5 exitCode=3`.
"""

from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

ANNOTATION = "jobplane.dev/simulate"


class Simulation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One container's fate; see above."""

    seconds: Annotated[float, Meta(ge=0, le=10**8)] = 0.0
    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    log: str = ""
    message: str = ""
    fail_first: Annotated[int, Meta(ge=0)] = 0
    ignore_term: bool = False
    start_error: str = ""

    def code(self, starts: int) -> int:
        """The exit code of the start that `starts` others came before."""
        if not self.fail_first:
            return self.exit_code
        return self.exit_code or 1 if starts < self.fail_first else 0


@lru_cache(maxsize=1024)
def parse(text: str) -> Simulation:
    """Raises ValueError."""
    if not text.strip():
        return Simulation()
    if text.lstrip().startswith("{"):
        return msgspec.json.decode(text, type=Simulation)
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    if unreadable := [name for name, equals, _ in pairs if not equals]:
        raise ValueError(f"neither a JSON object nor key=value pairs: {unreadable[0]}")
    return msgspec.convert({name: value for name, _, value in pairs}, type=Simulation, strict=False)
