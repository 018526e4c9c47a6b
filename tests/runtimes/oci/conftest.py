"""A lab of the oci runtime, for whoever runs the tests: root, or an ordinary user."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtimes import oci_images
from tests.runtimes.conftest import Lab, Made


@pytest.fixture
async def lab(images_of_oci: Path, tmp_path: Path) -> AsyncIterator[Lab]:
    cidr = oci_images.pod_cidr() if os.geteuid() == 0 else ""
    made = Lab(Made("oci", tmp_path / "state", str(images_of_oci), pod_cidr=cidr))
    await made.prepare()
    yield made
    await made.close()
