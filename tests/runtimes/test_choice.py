"""Which runtime an agent takes that was told none, and where it can keep containers."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.runtimes.choice import choose
from app.runtimes.oci import machine
from tests.needs import lacking
from tests.runtimes import oci_images


def able(_: Path) -> str:
    return ""


def unable(_: Path) -> str:
    return "the oci runtime needs skopeo: apt-get install skopeo"


def test_containers_of_images_where_the_machine_has_what_it_takes(tmp_path: Path) -> None:
    assert choose(tmp_path / "agent", able).runtime == "oci"


def test_programs_of_the_machine_where_it_has_not(tmp_path: Path) -> None:
    found = choose(tmp_path / "agent", unable)

    assert found.runtime == "process"
    assert "apt-get install skopeo" in found.reason


@pytest.mark.parametrize(("first", "then", "kept"), [(able, unable, "oci"), (unable, able, "process")])
def test_what_was_chosen_stays(tmp_path: Path, first: machine.Obstacle, then: machine.Obstacle, kept: str) -> None:
    choose(tmp_path, first)

    assert choose(tmp_path, then).runtime == kept


def test_a_folder_of_an_earlier_version_keeps_its_processes(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()

    found = choose(tmp_path, able)
    assert found.runtime == "process"
    assert "--runtime oci" in found.reason


def test_the_machine_of_the_tests_is_able(tmp_path: Path) -> None:
    if not oci_images.missing():
        assert machine.find_obstacle(tmp_path / "new") == ""
        assert os.listdir(tmp_path / "new") == []


def test_a_folder_that_cannot_be_named_in_options_is_an_obstacle(tmp_path: Path) -> None:
    assert "choose a folder without spaces" in machine.find_obstacle(tmp_path / "a b") or oci_images.missing()


MOUNTS = """\
22 1 0:21 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/x
23 22 0:22 / /proc rw - proc proc rw
24 22 254:0 /vol /data rw,relatime - ext4 /dev/vda rw
25 24 0:30 / /data/tmp rw - tmpfs tmpfs rw
26 22 0:31 / /top rw - tmpfs tmpfs rw
27 26 0:32 / /top rw - overlay overlay rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "overlay"),
        ("/root/.jobplane/agent", "overlay"),
        ("/data", "ext4"),
        ("/data/agent/oci", "ext4"),
        ("/data/tmp/x", "tmpfs"),
        ("/database", "overlay"),
        pytest.param("/top/x", "overlay", id="the last one mounted is what is seen"),
    ],
)
def test_the_file_system_of_a_folder_is_that_of_the_mount_nearest_above(path: str, kind: str) -> None:
    assert machine.find_file_system(MOUNTS, Path(path)) == kind


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid():
        lacking("no root, who may mount")
    for name in ("lower", "upper", "work", "root"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, tmp_path / "root"], check=True)
    yield tmp_path / "root"
    subprocess.run(["umount", tmp_path / "root"], check=True)


def test_a_data_folder_on_overlayfs_is_an_obstacle_with_advice(overlay: Path) -> None:
    if not oci_images.missing():
        obstacle = machine.find_obstacle(overlay / "agent")
        assert "is itself on overlayfs" in obstacle
        assert "choose a --data-dir" in obstacle
