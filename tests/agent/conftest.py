"""Fixtures of the agent's tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.agent.volumes import mounts as volume_mounts
from tests.agent.scene import Scene
from tests.agent.volumes.volume_lab import VolumeLab


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    await scene.stop_agent()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[VolumeLab]:
    """Where volumes are mounted, and in the end no longer are."""
    yield VolumeLab(tmp_path)
    volume_mounts.unmount_below(tmp_path)


@pytest.fixture
def may_mount(tmp_path: Path) -> None:
    """Skips a test where the kernel does not let us mount."""
    try:
        volume_mounts.mount_memory(tmp_path, 4096)
    except OSError:
        pytest.skip("this machine does not let us mount")
    volume_mounts.unmount(tmp_path)
