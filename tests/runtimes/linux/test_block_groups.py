"""Where folders are spread over a disk: on ext4 without a journal, and nowhere else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from app.runtimes.linux import block_groups


def sysfs_of(folder: Path, device: os.stat_result, journal: str) -> Path:
    """A stand-in for /sys, in which the device has ext4."""
    (folder / "devices/vda").mkdir(parents=True)
    (folder / "dev/block").mkdir(parents=True)
    number = f"{os.major(device.st_dev)}:{os.minor(device.st_dev)}"
    (folder / "dev/block" / number).symlink_to(folder / "devices/vda")
    (folder / "fs/ext4/vda").mkdir(parents=True)
    (folder / "fs/ext4/vda/journal_task").write_text(f"{journal}\n")
    return folder


@pytest.mark.parametrize(("journal", "expected"), [("<none>", True), ("61", False)])
def test_the_kernel_tells_whether_there_is_a_journal(tmp_path: Path, journal: str, expected: bool) -> None:
    sysfs = sysfs_of(tmp_path / "sys", tmp_path.stat(), journal)

    assert block_groups._lacks_journal(tmp_path, sysfs) == expected


def test_other_file_systems_are_left_alone(tmp_path: Path) -> None:
    assert not block_groups._lacks_journal(tmp_path, tmp_path / "sys")
    assert not block_groups.spread_children(Path("/proc"))


def test_the_folder_has_the_flag_where_it_helps(tmp_path: Path) -> None:
    if not block_groups.spread_children(tmp_path):
        pytest.skip("this file system has a journal, or is not ext4")
    if shutil.which("lsattr") is None:
        pytest.skip("lsattr is not installed")
    flags = subprocess.run(["lsattr", "-d", tmp_path], capture_output=True, text=True, check=True).stdout.split()[0]

    assert "T" in flags
