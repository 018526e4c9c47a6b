"""While pods run: files follow what they are made of, and tokens stay fresh."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.agent.volumes import files as volume_files
from app.agent.volumes.files import File
from app.agent.volumes.volumes import VolumeRefresh
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    ObjectFieldSelector,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from tests.agent.volumes.volume_lab import VolumeLab, visible
from tests.log_lines import lines

SCRIPTS = Volume(name="v", config_map=ConfigMapVolumeSource(name="scripts"))


class Kept:
    """Pods that are looked after."""

    def __init__(self, node: VolumeLab, *pods: Pod) -> None:
        self.pods = pods
        self.upkeep = VolumeRefresh(node.volumes, lambda: self.pods, node.clock)


def a_token(**asked: object) -> Volume:
    part = VolumeProjection(service_account_token=ServiceAccountTokenProjection(path="token", **asked))
    return Volume(name="v", projected=ProjectedVolumeSource(sources=(part,)))


async def test_files_follow_their_config_map_all_at_once(node: VolumeLab) -> None:
    folder = await node.folder(SCRIPTS)
    before = os.readlink(folder / "..data")
    node.config_maps["scripts"] = {"run.sh": "echo new", "c": "3"}
    await Kept(node, node.pod(SCRIPTS)).upkeep.refresh()

    assert visible(folder) == {"run.sh": "echo new", "c": "3"}
    assert os.readlink(folder / "..data") != before
    assert sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink()) == [
        os.readlink(folder / "..data")
    ]


async def test_what_has_not_changed_is_not_written(node: VolumeLab) -> None:
    folder = await node.folder(SCRIPTS)
    before = os.readlink(folder / "..data")
    await Kept(node, node.pod(SCRIPTS)).upkeep.refresh()

    assert os.readlink(folder / "..data") == before


async def test_a_config_map_of_many_pods_is_read_once_a_round(node: VolumeLab) -> None:
    pods = [node.pod(SCRIPTS, uid=f"u-{number}") for number in range(5)]
    for pod in pods:
        await node.volumes.mounts(pod, pod.spec.containers[0], {})
    node.reads = 0
    await Kept(node, *pods).upkeep.refresh()

    assert node.reads == 1


async def test_a_config_map_that_has_gone_leaves_the_files(node: VolumeLab, caplog: pytest.LogCaptureFixture) -> None:
    folder = await node.folder(SCRIPTS)
    node.config_maps.clear()
    await Kept(node, node.pod(SCRIPTS)).upkeep.refresh()

    assert visible(folder) == {"run.sh": "echo hi", "b": "2"}
    (line,) = lines(caplog)
    assert line.startswith("WARNING: cannot refresh the volumes of a pod; retrying  pod=default/pi error=")


async def test_facts_follow_the_pod(node: VolumeLab) -> None:
    file = DownwardAPIVolumeFile(path="app", field_ref=ObjectFieldSelector(field_path="metadata.labels['app']"))
    volume = Volume(name="v", downward_api=DownwardAPIVolumeSource(items=(file,)))
    folder = await node.folder(volume)
    pod = node.pod(volume)
    await Kept(node, replace(pod, metadata=replace(pod.metadata, labels={"app": "tau"}))).upkeep.refresh()

    assert visible(folder) == {"app": "tau"}


async def test_a_token_is_renewed_when_a_fifth_of_its_life_is_left(node: VolumeLab) -> None:
    volume = a_token(audience="vault", expiration_seconds=1000)
    folder = await node.folder(volume)
    kept = Kept(node, node.pod(volume))
    node.clock.advance(799)
    await kept.upkeep.refresh()
    assert visible(folder) == {"token": "vault-1"}
    node.clock.advance(1)
    await kept.upkeep.refresh()

    assert visible(folder) == {"token": "vault-2"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("rights", "mode", "owner"),
    [
        pytest.param({}, 0o644, (os.geteuid(), os.getegid()), id="whoever the container is"),
        pytest.param({"user": 1000}, 0o600, (1000, os.getegid()), id="the one user of the pod"),
        pytest.param({"fs_group": 2000}, 0o640, (os.geteuid(), 2000), id="the pod's group"),
    ],
)
async def test_a_token_is_read_by(node: VolumeLab, rights: dict, mode: int, owner: tuple[int, int]) -> None:
    found = (await node.folder(a_token(), **rights) / "token").stat()

    assert (found.st_mode & 0o777, (found.st_uid, found.st_gid)) == (mode, owner)


def test_files_of_one_folder_become_others(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    assert volume_files.write(folder, {"a/b": File(b"1", 0o644), "c": File(b"2", 0o600)})
    assert not volume_files.write(folder, {"a/b": File(b"1", 0o644), "c": File(b"2", 0o600)})
    assert volume_files.write(folder, {"a": File(b"1", 0o644), "d": File(b"2", 0o444)})

    assert visible(folder) == {"a": "1", "d": "2"}
    assert (folder / "d").stat().st_mode & 0o777 == 0o444
