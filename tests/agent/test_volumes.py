"""Volumes as folders: what is in them, how long they last, and that nothing leads out of them."""

from pathlib import Path

import pytest

from app.agent.environment import ConfigError, Lookup
from app.agent.volumes import Volumes
from app.kinds.base import ObjectMeta
from app.kinds.configmap import ConfigMap
from app.kinds.container import Container
from app.kinds.pod import Pod, PodSpec
from app.kinds.volume import (
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    ObjectFieldSelector,
    SecretVolumeSource,
    Volume,
    VolumeMount,
)


async def config_map(namespace: str, name: str) -> ConfigMap | None:
    return ConfigMap(data={"run.sh": "echo hi", "b": "2"}) if name == "scripts" else None


async def secret(namespace: str, name: str) -> None:
    return None


def volumes(root: Path) -> Volumes:
    return Volumes(root, "10.0.0.1", Lookup(config_map, secret, {}))


async def mounted(root: Path, volume: Volume, uid: str = "u-1", **mount) -> Path:
    """What the container sees at the mount's path."""
    container = Container(name="main", volume_mounts=(VolumeMount(name=volume.name, mount_path="/v", **mount),))
    pod = Pod(
        metadata=ObjectMeta(name="pi", namespace="default", uid=uid),
        spec=PodSpec(volumes=(volume,), containers=(container,)),
    )
    (made,) = await volumes(root).mounts(pod, container, {"I": "3"})
    return made.source


SCRATCH = Volume(name="scratch", empty_dir=EmptyDirVolumeSource())


async def test_an_empty_folder_is_shared_and_kept_between_containers(tmp_path: Path) -> None:
    first = await mounted(tmp_path, SCRATCH)
    (first / "file").write_text("kept")
    second = await mounted(tmp_path, SCRATCH)

    assert (second / "file").read_text() == "kept"
    assert second.stat().st_mode & 0o777 == 0o777


async def test_goes_with_the_pod(tmp_path: Path) -> None:
    folder = await mounted(tmp_path, SCRATCH)
    await volumes(tmp_path).remove("u-1")

    assert not folder.exists()
    assert volumes(tmp_path).uids() == set()


async def test_a_part_of_a_volume_may_depend_on_the_environment(tmp_path: Path) -> None:
    folder = await mounted(tmp_path, SCRATCH, sub_path_expr="part-$(I)")

    assert folder == tmp_path / "u-1" / "scratch" / "part-3"


async def test_a_config_map_is_files(tmp_path: Path) -> None:
    folder = await mounted(tmp_path, Volume(name="v", config_map=ConfigMapVolumeSource(name="scripts")))

    assert {path.name: path.read_text() for path in folder.iterdir()} == {"run.sh": "echo hi", "b": "2"}


async def test_chosen_keys_have_their_own_paths_and_mode(tmp_path: Path) -> None:
    source = ConfigMapVolumeSource(name="scripts", items=(KeyToPath(key="run.sh", path="bin/go"),), default_mode=0o755)
    folder = await mounted(tmp_path, Volume(name="v", config_map=source))

    assert (folder / "bin/go").stat().st_mode & 0o777 == 0o755
    assert not (folder / "b").exists()


async def test_facts_about_the_pod_are_files(tmp_path: Path) -> None:
    file = DownwardAPIVolumeFile(path="name", field_ref=ObjectFieldSelector(field_path="metadata.name"))
    folder = await mounted(tmp_path, Volume(name="v", downward_api=DownwardAPIVolumeSource(items=(file,))))

    assert (folder / "name").read_text() == "pi"


@pytest.mark.parametrize(
    ("volume", "mount", "uid"),
    [
        pytest.param(SCRATCH, {}, "../u-1", id="the uid leads out"),
        pytest.param(Volume(name="..", empty_dir=EmptyDirVolumeSource()), {}, "u-1", id="the name leads out"),
        pytest.param(SCRATCH, {"sub_path": "../x"}, "u-1", id="the subPath leads out"),
        pytest.param(SCRATCH, {"sub_path": "/etc"}, "u-1", id="the subPath is absolute"),
        pytest.param(
            Volume(
                name="v",
                config_map=ConfigMapVolumeSource(name="scripts", items=(KeyToPath(key="b", path="../../x"),)),
            ),
            {},
            "u-1",
            id="a key's path leads out",
        ),
        pytest.param(
            Volume(name="v", host_path=HostPathVolumeSource(path="/etc")), {}, "u-1", id="it is the host's own"
        ),
        pytest.param(
            Volume(name="v", secret=SecretVolumeSource(secret_name="none")), {}, "u-1", id="the secret is missing"
        ),
    ],
)
async def test_is_refused_when(volume: Volume, mount: dict, uid: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with pytest.raises(ConfigError):
        await mounted(root, volume, uid, **mount)

    assert not [path for path in tmp_path.rglob("x") if path.exists()]


async def test_a_link_that_a_container_made_does_not_lead_out(tmp_path: Path) -> None:
    folder = await mounted(tmp_path / "root", SCRATCH)
    (folder / "link").symlink_to(tmp_path)

    with pytest.raises(ConfigError):
        await mounted(tmp_path / "root", SCRATCH, sub_path="link")
