"""Volumes as folders: what is in them, how long they last, and that nothing leads out of them."""

import os
from pathlib import Path

import pytest

from app.agent.pods.environment import ContainerConfigError, VolumeError
from app.agent.volumes import mounts as volume_mounts
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    ObjectFieldSelector,
    PersistentVolumeClaimVolumeSource,
    ProjectedVolumeSource,
    SecretVolumeSource,
    Volume,
    VolumeProjection,
)
from app.kinds.pod.volume_sources import ClusterTrustBundleProjection
from tests.agent.volumes.volume_lab import VolumeLab, visible

SCRATCH = Volume(name="scratch", empty_dir=EmptyDirVolumeSource())
MEMORY = Volume(name="memory", empty_dir=EmptyDirVolumeSource(medium="Memory", size_limit="1Mi"))
SCRIPTS = Volume(name="v", config_map=ConfigMapVolumeSource(name="scripts"))
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


async def test_an_empty_folder_is_shared_and_kept_between_containers(node: VolumeLab) -> None:
    (await node.folder(SCRATCH) / "file").write_text("kept")
    node.restart()
    second = await node.folder(SCRATCH)

    assert (second / "file").read_text() == "kept"
    assert mode(second) == 0o777


async def test_goes_with_the_pod(node: VolumeLab) -> None:
    folder = await node.folder(SCRATCH)
    await node.volumes.remove("u-1")

    assert not folder.exists()
    assert node.volumes.uids() == set()


async def test_a_tree_that_is_very_deep_goes_too(node: VolumeLab) -> None:
    folder = await node.folder(SCRATCH)
    inner = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=inner)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)
    await node.volumes.remove("u-1")

    assert not folder.exists()


async def test_a_volume_that_no_container_mounts_is_not_made(node: VolumeLab) -> None:
    pod = node.pod(SCRATCH)
    spec = pod.spec.__class__(volumes=(*pod.spec.volumes, claim()), containers=pod.spec.containers)
    await node.volumes.mounts(Pod(metadata=pod.metadata, spec=spec), spec.containers[0], {})

    assert [path.name for path in (node.root / "u-1").iterdir()] == ["scratch"]


async def test_memory_is_mounted_found_again_and_unmounted(node: VolumeLab, may_mount: None) -> None:
    folder = await node.folder(MEMORY)
    (folder / "file").write_text("kept")
    found = os.statvfs(folder)
    node.restart()

    assert (await node.folder(MEMORY) / "file").read_text() == "kept"
    assert found.f_blocks * found.f_frsize == 1 << 20
    assert mode(folder) == 0o777
    assert len([path for path in volume_mounts.mount_points() if path == str(folder)]) == 1
    await node.volumes.remove("u-1")
    assert not volume_mounts.is_mounted(folder)
    assert not folder.exists()


async def test_a_config_map_is_files_and_read_only(node: VolumeLab) -> None:
    mount = await node.mount(SCRIPTS)

    assert visible(mount.source) == {"run.sh": "echo hi", "b": "2"}
    assert mount.read_only


async def test_chosen_keys_have_their_own_paths_and_modes(node: VolumeLab) -> None:
    items = (KeyToPath(key="run.sh", path="bin/go"), KeyToPath(key="b", path="b", mode=0o400))
    source = ConfigMapVolumeSource(name="scripts", items=items, default_mode=0o755)
    folder = await node.folder(Volume(name="v", config_map=source))

    assert mode(folder / "bin/go") == 0o755
    assert mode(folder / "b") == 0o400
    assert not (folder / "run.sh").exists()


async def test_facts_about_the_pod_are_files(node: VolumeLab) -> None:
    file = DownwardAPIVolumeFile(path="name", field_ref=ObjectFieldSelector(field_path="metadata.name"))

    assert visible(await node.folder(Volume(name="v", downward_api=DownwardAPIVolumeSource(items=(file,))))) == {
        "name": "pi"
    }


@as_root
async def test_the_group_of_the_pod_gets_its_folders_and_files(node: VolumeLab) -> None:
    scratch = await node.folder(SCRATCH, fs_group=2000)
    source = SecretVolumeSource(secret_name="keys", default_mode=0o400)
    secret = await node.folder(Volume(name="v", secret=source), uid="u-2", fs_group=2000)

    assert (mode(scratch), scratch.stat().st_gid) == (0o2777, 2000)
    assert (mode(secret / "token"), (secret / "token").stat().st_gid) == (0o440, 2000)
    assert mode(secret) & 0o2070 == 0o2070


async def test_what_is_mounted_read_only_is_told(node: VolumeLab) -> None:
    assert (await node.mount(SCRATCH, read_only=True)).read_only
    assert not (await node.mount(SCRATCH)).read_only


async def test_the_host_s_own_are_where_they_are(node: VolumeLab, tmp_path: Path) -> None:
    volume = Volume(name="v", host_path=HostPathVolumeSource(path=str(tmp_path / "new"), type="DirectoryOrCreate"))
    mount = await node.mount(volume)

    assert (mount.source, mount.read_only) == (tmp_path / "new", False)
    await node.volumes.remove("u-1")
    assert (tmp_path / "new").is_dir()


def claim() -> Volume:
    return Volume(name="data", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="c"))


def bundle() -> Volume:
    part = VolumeProjection(cluster_trust_bundle=ClusterTrustBundleProjection(path="x"))
    return Volume(name="v", projected=ProjectedVolumeSource(sources=(part,)))


@pytest.mark.parametrize(
    ("volume", "why"),
    [
        pytest.param(claim(), 'persistentvolumeclaim "c" not found', id="its claim is gone"),
        pytest.param(
            bundle(), "projected volumes with a clusterTrustBundle are not supported by this node", id="it is trust"
        ),
        pytest.param(
            Volume(name="v", secret=SecretVolumeSource(secret_name="none")),
            'secret "none" not found',
            id="its secret is missing",
        ),
        pytest.param(
            Volume(
                name="v",
                config_map=ConfigMapVolumeSource(name="scripts", items=(KeyToPath(key="c", path="c"),)),
            ),
            "references non-existent config key: c",
            id="its key is missing",
        ),
        pytest.param(
            Volume(name="v", empty_dir=EmptyDirVolumeSource(medium="HugePages")),
            "this node has no medium HugePages",
            id="its medium is missing",
        ),
        pytest.param(
            Volume(name="v", host_path=HostPathVolumeSource(path="/etc/passwd", type="Directory")),
            "hostPath type check failed: /etc/passwd is not a directory",
            id="the host has something else",
        ),
    ],
)
async def test_no_container_starts_while_a_volume_cannot_be_had_because(
    node: VolumeLab, volume: Volume, why: str
) -> None:
    with pytest.raises(VolumeError) as refused:
        await node.folder(volume)

    assert (refused.value.volume, str(refused.value)) == (volume.name, why)


@pytest.mark.parametrize(
    ("volume", "how"),
    [
        pytest.param(SCRATCH, {"uid": "../u-1"}, id="the uid leads out"),
        pytest.param(Volume(name="..", empty_dir=EmptyDirVolumeSource()), {}, id="the name leads out"),
        pytest.param(SCRATCH, {"sub_path": "../x"}, id="the subPath leads out"),
        pytest.param(SCRATCH, {"sub_path": "/etc"}, id="the subPath is absolute"),
        pytest.param(SCRATCH, {"sub_path_expr": "../$(I)/x"}, id="what the subPath becomes leads out"),
        pytest.param(SCRATCH, {"mount_propagation": "Bidirectional"}, id="mounts would get out"),
        pytest.param(
            Volume(
                name="v",
                config_map=ConfigMapVolumeSource(name="scripts", items=(KeyToPath(key="b", path="../../x"),)),
            ),
            {},
            id="a key's path leads out",
        ),
    ],
)
async def test_is_refused_when(volume: Volume, how: dict, node: VolumeLab, tmp_path: Path) -> None:
    with pytest.raises(ContainerConfigError):
        await node.folder(volume, **how)

    assert not [path for path in tmp_path.rglob("x") if path.exists()]
