"""What tests need of a machine."""

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """Skips the test; where JOBPLANE_CI is set, as `.ci/run` does as root once all is installed, that is a failure."""
    (pytest.fail if os.environ.get("JOBPLANE_CI") else pytest.skip)(what)
