"""Log lines as an operator reads them, fields and all, of what a test has logged."""

import logging

import pytest

from app.main.log_output import RateLimit, TextFormatter


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[str]:
    """From that level up, `LEVEL: message  name=value ...`; one for each cause, as within a minute."""
    text, limit = TextFormatter("test", {}), RateLimit(clock=lambda: 0.0)
    written = [text.format(record) for record in caplog.records if record.levelno >= level and limit.filter(record)]
    return [line.split(" ", 1)[1].replace(" test:", ":", 1) for line in written]
