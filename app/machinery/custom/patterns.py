"""Patterns of schemas, compiled by RE2: they mean what Go's regexp package means by them, and take time that grows with the text.

Python's own `re` can take for ever for a pattern that nests repetitions, and any user of a custom kind sends texts to match.
"""

from functools import lru_cache
from typing import Any

INSTALL = "patterns cannot be checked here: pip install 'jobplane[policies]'"
_MEMORY = 4 << 20  # bytes of one compiled pattern


class PatternError(ValueError):
    """A pattern that is none, or RE2 is not installed."""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern; its `search` finds it in a text. Raises PatternError."""
    try:
        import re2
    except ImportError:
        raise PatternError(INSTALL) from None
    try:
        return re2.compile(pattern, _options(re2))
    except re2.error as error:
        (message,) = error.args
        raise PatternError(message.decode() if isinstance(message, bytes) else str(message)) from None


def _options(re2: Any) -> Any:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    return options
