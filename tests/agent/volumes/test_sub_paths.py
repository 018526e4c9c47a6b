"""Parts of volumes: found, made, kept for the next start; and no link leads out of a volume, however it is timed."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from app.agent.pods.environment import ContainerConfigError
from app.agent.volumes import mounts as volume_mounts
from app.agent.volumes import sub_paths
from app.kinds.pod.volume import ConfigMapVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, Volume
from tests.agent.volumes.volume_lab import VolumeLab

SCRATCH = Volume(name="scratch", empty_dir=EmptyDirVolumeSource())
RACES = 300


async def test_a_part_may_depend_on_the_environment(node: VolumeLab) -> None:
    part = await node.folder(SCRATCH, sub_path_expr="a/part-$(I)")
    (part / "file").write_text("hello")

    assert (node.root / "u-1/scratch/a/part-3/file").read_text() == "hello"


async def test_a_part_that_is_made_is_as_open_as_its_volume(node: VolumeLab) -> None:
    part = await node.folder(SCRATCH, sub_path="a/b")

    assert [(node.root / f"u-1/scratch/{name}").stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o777, 0o777]
    assert part.is_dir()


async def test_a_part_is_mounted_once_for_all_starts(node: VolumeLab, may_mount: None) -> None:
    first = await node.folder(SCRATCH, sub_path="a")
    node.restart()
    second = await node.folder(SCRATCH, sub_path="a")

    assert first == second
    assert volume_mounts.mount_points().count(str(first)) == 1


async def test_a_part_that_was_replaced_is_mounted_anew(node: VolumeLab, may_mount: None) -> None:
    await node.folder(SCRATCH, sub_path="a")
    (node.root / "u-1/scratch/a").rename(node.root / "u-1/scratch/old")
    (await node.folder(SCRATCH, sub_path="a") / "file").write_text("new")

    assert (node.root / "u-1/scratch/a/file").read_text() == "new"


async def test_a_part_may_be_one_file_which_does_not_follow_its_config_map(node: VolumeLab) -> None:
    volume = Volume(name="v", config_map=ConfigMapVolumeSource(name="scripts"))
    file = await node.folder(volume, sub_path="run.sh")
    before = file.read_text()
    node.config_maps["scripts"] = {"run.sh": "changed"}
    with file.open() as held:
        await node.volumes.refresh(node.pod(volume), node.volumes.sources_once())
        assert (before, held.read()) == ("echo hi", "echo hi")


async def test_removing_a_pod_leaves_what_its_parts_show(node: VolumeLab, tmp_path: Path) -> None:
    (tmp_path / "host/inner").mkdir(parents=True)
    (tmp_path / "host/inner/precious").write_text("kept")
    volume = Volume(name="v", host_path=HostPathVolumeSource(path=str(tmp_path / "host")))
    part = await node.folder(volume, sub_path="inner")
    assert (part / "precious").read_text() == "kept"
    await node.volumes.remove("u-1")

    assert (tmp_path / "host/inner/precious").read_text() == "kept"
    assert not (node.root / "u-1").exists()


@pytest.mark.parametrize("target", ["..", "/etc", "../../..", "loop"])
async def test_a_link_that_a_container_made_does_not_lead_out(node: VolumeLab, target: str) -> None:
    (await node.folder(SCRATCH) / "loop").symlink_to(target)

    with pytest.raises(ContainerConfigError):
        await node.folder(SCRATCH, sub_path="loop")


async def test_a_link_within_the_volume_is_followed(node: VolumeLab) -> None:
    folder = await node.folder(SCRATCH)
    (folder / "real").mkdir()
    (folder / "real/file").write_text("hello")
    (folder / "link").symlink_to("real")

    assert (await node.folder(SCRATCH, sub_path="link") / "file").read_text() == "hello"


def test_a_link_that_is_swapped_in_all_the_while_never_leads_out(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    (volume / "a/b").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            try:
                (volume / "a").rename(volume / "kept")
                (volume / "a").symlink_to(outside)
                (volume / "a").unlink()
                (volume / "kept").rename(volume / "a")
            except OSError:  # what was away for a moment has just been made
                shutil.rmtree(volume / "a", ignore_errors=True)
                with suppress(OSError):
                    (volume / "kept").rename(volume / "a")

    swapping = threading.Thread(target=swap)
    swapping.start()
    found = set()
    try:
        for _ in range(RACES):
            try:
                fd = sub_paths.open_sub_path(volume, "a/b")
            except (ContainerConfigError, OSError):
                continue
            found.add(os.fstat(fd).st_ino)
            os.close(fd)
    finally:
        over.set()
        swapping.join()

    assert (outside / "b").stat().st_ino not in found
    assert not list((outside / "b").iterdir())
