"""A lab of the oci runtime, for whoever runs the tests: root, or an ordinary user."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtimes.conftest import Lab, Made


@pytest.fixture
async def lab(images_of_oci: Path, tmp_path: Path) -> AsyncIterator[Lab]:
    made = Lab(Made("oci", tmp_path / "state", str(images_of_oci)))
    yield made
    await made.close()
