"""Claims on a node: folders of Jobplane's drivers are made, kept apart and removed; hand-made volumes are mounted as they are."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.agent.pods.environment import ContainerConfigError, VolumeError
from app.agent.volumes.claims import DATA, Owner
from app.kinds.pod.volume import HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Volume
from app.kinds.pod.volume_sources import NFSVolumeSource
from app.kinds.storage.persistentvolume import CSIPersistentVolumeSource, LocalVolumeSource, PersistentVolume
from app.plans.volumes import binding
from tests.agent.volumes.volume_lab import VolumeLab
from tests.plans.volumes.storage import NOW, a_claim, a_volume

CLAIM = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="data"))


@pytest.fixture
def node(tmp_path: Path) -> VolumeLab:
    return VolumeLab(tmp_path)


def bind(node: VolumeLab, **source: Any) -> PersistentVolume:
    """The claim `data` is bound to a volume of this source."""
    made = a_volume("v", **({"host_path": None} | source))
    claim = binding.bound_claim(a_claim(), made)
    volume = binding.bound_volume(made, claim, NOW)
    node.claims["data"], node.persistent_volumes["v"] = claim, volume
    return volume


def shared(base: Path, handle: str = "pvc-1", require_mount: str = "false") -> CSIPersistentVolumeSource:
    attributes = {"path": str(base), "requireMount": require_mount}
    return CSIPersistentVolumeSource(
        driver="jobplane.dev/shared-folder", volume_handle=handle, volume_attributes=attributes
    )


def local(handle: str = "pvc-1") -> CSIPersistentVolumeSource:
    return CSIPersistentVolumeSource(driver="jobplane.dev/local", volume_handle=handle)


async def test_the_first_pod_makes_the_folder_and_all_see_the_same(node: VolumeLab, tmp_path: Path) -> None:
    base = tmp_path / "shared"
    base.mkdir()
    bind(node, csi=shared(base))
    folder = await node.folder(CLAIM)
    (folder / "result").write_text("42")

    assert folder == base / "pvc-1" / DATA
    assert ((base / "pvc-1").stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o700, 0o777)
    other = VolumeLab(tmp_path / "another-node")
    bind(other, csi=shared(base))
    assert ((await other.folder(CLAIM, uid="u-2")) / "result").read_text() == "42"
    await node.volumes.remove("u-1")
    assert (folder / "result").read_text() == "42", "the pod goes, its data stay"


async def test_a_read_only_claim_cannot_be_written_to(node: VolumeLab) -> None:
    bind(node, csi=local())
    source = replace(CLAIM.persistent_volume_claim, read_only=True)

    assert not (await node.mount(CLAIM)).read_only
    assert (await node.mount(replace(CLAIM, persistent_volume_claim=source))).read_only


@pytest.mark.parametrize("made", ["nothing", "the outer folder", "all of it"])
async def test_an_agent_that_was_killed_while_it_made_the_folder_is_followed_by_one_that_goes_on(
    node: VolumeLab, made: str
) -> None:
    bind(node, csi=local())
    outer = node.root.parent / "claims" / "pvc-1"
    if made != "nothing":
        outer.mkdir(parents=True, mode=0o700)
    if made == "all of it":
        (outer / DATA).mkdir()
        (outer / DATA / "kept").touch()

    assert os.listdir(await node.folder(CLAIM)) == (["kept"] if made == "all of it" else [])


@pytest.mark.parametrize("inner", [False, True], ids=["the folder", "its data"])
async def test_a_link_in_the_place_of_a_folder_is_not_followed(node: VolumeLab, tmp_path: Path, inner: bool) -> None:
    bind(node, csi=local())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outer = node.root.parent / "claims" / "pvc-1"
    outer.parent.mkdir(parents=True)
    if inner:
        outer.mkdir()
    (outer / DATA if inner else outer).symlink_to(elsewhere)

    with pytest.raises(VolumeError):
        await node.mount(CLAIM)
    assert os.listdir(elsewhere) == []


def refusals() -> list[Any]:
    nowhere = Path("/nowhere")
    return [
        pytest.param({"csi": shared(nowhere)}, "folder /nowhere does not exist on this node", id="no such folder"),
        pytest.param(
            {"csi": shared(Path("/usr"), require_mount="true")}, "no file system is mounted at /usr", id="not mounted"
        ),
        pytest.param(
            {"csi": CSIPersistentVolumeSource(driver="ebs.example.com", volume_handle="x")},
            "driver name ebs.example.com not found in the list of registered CSI drivers",
            id="another driver",
        ),
        pytest.param({"csi": local("../../etc")}, "bad volumeHandle", id="a path for a name"),
        pytest.param({"local": LocalVolumeSource(path="/nowhere")}, "does not exist on this node", id="no such disk"),
        pytest.param({"csi": local(), "volume_mode": "Block"}, "is a block device", id="a block device"),
        pytest.param(
            {"nfs": NFSVolumeSource(server="127.0.0.1", path="/x")}, "cannot mount 127.0.0.1:/x", id="no server"
        ),
    ]


@pytest.mark.parametrize(("source", "why"), refusals())
async def test_a_volume_that_cannot_be_had(node: VolumeLab, source: dict[str, Any], why: str) -> None:
    volume = replace(a_volume("v"), spec=replace(a_volume("v").spec, host_path=None))
    volume = replace(volume, spec=replace(volume.spec, **source))
    claim = binding.bound_claim(a_claim(), volume)
    node.claims["data"], node.persistent_volumes["v"] = claim, binding.bound_volume(volume, claim, NOW)

    with pytest.raises(VolumeError, match=why):
        await node.mount(CLAIM)
    await node.volumes.remove("u-1")


async def test_a_claim_that_is_not_bound_to_its_volume_is_not_mounted(node: VolumeLab) -> None:
    volume = bind(node, csi=local())
    node.persistent_volumes["v"] = binding.bound_volume(volume, a_claim("other"), NOW)
    with pytest.raises(VolumeError, match="is bound to another claim"):
        await node.mount(CLAIM)

    node.claims["data"] = a_claim()
    with pytest.raises(VolumeError, match='persistentvolumeclaim "data" is not bound'):
        await node.mount(CLAIM)


async def test_hand_made_volumes_are_where_they_are(node: VolumeLab, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    bind(node, local=LocalVolumeSource(path=str(disk)))
    assert await node.folder(CLAIM) == disk

    node.restart()
    bind(node, host_path=HostPathVolumeSource(path=str(tmp_path / "new")))
    assert await node.folder(CLAIM) == tmp_path / "new"
    await node.volumes.remove("u-1")
    assert disk.is_dir()


def test_a_folder_is_its_user_s_alone(node: VolumeLab) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives folders to others")
    claims = node.volumes.claims
    one, other = (claims.make(local(f"pvc-{user}"), "u-1", Owner(user=user)) for user in (20001, 20002))

    assert [(each.stat().st_uid, each.stat().st_mode & 0o777) for each in (one, other)] == [
        (20001, 0o770),
        (20002, 0o770),
    ]
    assert one.parent.stat().st_mode & 0o777 == 0o700
    grouped = claims.make(local("pvc-3"), "u-1", Owner(group=20003))
    assert grouped.stat().st_gid == 20003


async def test_what_is_removed_is_gone_and_links_lead_nowhere(node: VolumeLab, tmp_path: Path) -> None:
    bind(node, csi=local())
    folder = await node.folder(CLAIM)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").touch()
    (folder / "link").symlink_to(precious)
    (folder / "deep" / "er").mkdir(parents=True)
    claims = node.volumes.claims
    assert claims.is_used("pvc-1")
    await node.volumes.remove("u-1")
    assert not claims.is_used("pvc-1")

    claims.remove(local())
    assert os.listdir(node.root.parent / "claims") == []
    assert os.listdir(precious) == ["thesis"]
    claims.remove(local())  # once more, as after a kill


def test_a_link_in_the_place_of_a_removed_folder_is_removed_itself(node: VolumeLab, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").touch()
    base = node.root.parent / "claims"
    base.mkdir(parents=True)
    (base / "pvc-1").symlink_to(precious)

    node.volumes.claims.remove(local())
    assert (os.listdir(base), os.listdir(precious)) == ([], ["thesis"])


def test_a_removal_that_was_interrupted_is_finished(node: VolumeLab) -> None:
    base = node.root.parent / "claims"
    (base / ".removing-pvc-1" / DATA / "half").mkdir(parents=True)

    node.volumes.claims.remove(local())
    assert os.listdir(base) == []


def test_data_stay_while_their_file_system_is_not_mounted(node: VolumeLab) -> None:
    with pytest.raises(ContainerConfigError, match="no file system is mounted"):
        node.volumes.claims.remove(shared(Path("/usr"), require_mount="true"))
    with pytest.raises(ContainerConfigError, match="does not exist"):
        node.volumes.claims.remove(shared(Path("/nowhere")))
