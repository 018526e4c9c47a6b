"""A node that runs short, and pods that use too much: who goes, and how that is told."""

from dataclasses import dataclass, field
from pathlib import Path

from app.agent.node.eviction_manager import EvictionManager, folder_size
from app.agent.node.pressure import Pressures, Threshold
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.volume import EmptyDirVolumeSource, Volume, VolumeMount
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import Evicted
from app.runtimes.base import ContainerKey, ContainerUsage
from tests.agent.scene import Scene
from tests.agent.volumes.volume_lab import VolumeLab

ALL = 1 << 60  # more than any machine has


@dataclass
class Lab:
    """A node of two pods, u-1 and u-2, of which the second uses more memory."""

    node: VolumeLab
    thresholds: dict[str, Threshold]
    evicted: dict[str, str] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.pods = [self.node.pod(uid="u-1"), self.node.pod(uid="u-2")]
        self.pressures = Pressures(Path("/"), self.node.clock, self.thresholds)
        self.eviction = EvictionManager(
            self, self.usage, self.node.volumes, self.pressures, self.free_images, self.node.clock
        )

    def all(self) -> list:
        return [pod for pod in self.pods if pod.metadata.uid not in self.gone]

    def evict(self, uid: str, why: Evicted, note: Note) -> None:
        self.evicted[uid] = why.message
        self.marks.append(why.mark)

    async def usage(self) -> list[ContainerUsage]:
        return [ContainerUsage(ContainerKey(f"u-{number}", "main", 0), 0, number << 20, 0) for number in (1, 2)]

    async def free_images(self) -> int:
        self.freed.append(1)
        return 0


async def test_the_pod_that_uses_most_memory_goes_and_the_next_one_only_after_it(node: VolumeLab) -> None:
    lab = Lab(node, {"memory.available": Threshold(amount=ALL)})
    await lab.eviction.check()
    await lab.eviction.check()
    assert list(lab.evicted) == ["u-2"]
    assert lab.evicted["u-2"].startswith("The node was low on resource: memory. Threshold quantity: ")
    assert lab.marks == [lab.evicted["u-2"]]

    lab.gone.add("u-2")
    await lab.eviction.check()
    assert list(lab.evicted) == ["u-2", "u-1"]


async def test_one_that_does_not_go_holds_the_next_one_up_for_half_a_minute(node: VolumeLab) -> None:
    lab = Lab(node, {"memory.available": Threshold(amount=ALL)})
    await lab.eviction.check()
    lab.evicted.clear()
    node.clock.advance(29)
    await lab.eviction.check()
    assert lab.evicted == {}
    node.clock.advance(1)
    await lab.eviction.check()

    assert lab.evicted


async def test_images_go_before_pods_when_the_disk_is_short(node: VolumeLab) -> None:
    lab = Lab(node, {"nodefs.available": Threshold(amount=ALL)})
    await lab.eviction.check()

    assert lab.freed
    assert lab.evicted["u-1"].startswith("The node was low on resource: ephemeral-storage. ")


async def test_a_node_with_plenty_leaves_its_pods_alone(node: VolumeLab) -> None:
    lab = Lab(node, {})
    await lab.eviction.check()

    assert lab.evicted == {}


async def test_an_empty_dir_that_is_too_large_ends_its_pod(node: VolumeLab) -> None:
    volume = Volume(name="scratch", empty_dir=EmptyDirVolumeSource(size_limit="1Mi"))
    folder = await node.folder(volume)
    lab = Lab(node, {})
    lab.pods = [node.pod(volume)]
    await lab.eviction.check()
    assert lab.evicted == {}
    (folder / "file").write_bytes(b"x" * ((1 << 20) + 1))
    (folder / "same").hardlink_to(folder / "file")
    await lab.eviction.check()

    assert lab.evicted == {"u-1": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '}
    assert lab.marks == [""]


def test_a_file_with_two_names_counts_once_and_what_links_lead_to_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    empty = folder_size(folder)
    (folder / "file").write_bytes(b"x" * 8192)
    (folder / "inner/same").hardlink_to(folder / "file")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (folder / "link").symlink_to(tmp_path / "large")

    assert empty < folder_size(folder) < empty + 8192 + 50_000


# The whole agent


async def test_a_pod_is_evicted_from_a_node_without_memory(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    await scene.stop_agent()
    scene.start_agent(eviction_hard=f"memory.available<{ALL}")
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)
    status = scene.api.status()
    (mark,) = [each for each in status.conditions if each.type == "DisruptionTarget"]

    assert status.reason == "Evicted"
    assert status.message.startswith("The node was low on resource: memory. ")
    assert (mark.status, mark.reason, mark.message) == ("True", "TerminationByKubelet", status.message)
    assert ("Evicted", status.message) in scene.told()


async def test_a_node_without_memory_takes_only_pods_that_ask_for_some(scene: Scene) -> None:
    scene.start_agent(eviction_hard=f"memory.available<{ALL}")
    await scene.api.until(lambda: "/api/v1/nodes/n1" in scene.api.objects)
    scene.api.bind()
    await scene.api.until(lambda: scene.api.phase() == "Failed")
    asking = Container(name="main", command=("run",), resources=ResourceRequirements(requests={"memory": "1Gi"}))
    scene.api.bind("other", "u-2", containers=(asking,))
    await scene.api.until(lambda: scene.runtime.was_started(uid="u-2"))
    status = scene.api.status()

    assert (status.reason, status.message) == (
        "Evicted",
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
    )
    assert not scene.runtime.was_started()


async def test_a_pod_that_fills_its_volume_is_evicted(scene: Scene, tmp_path: Path) -> None:
    scene.start_agent()
    mount = VolumeMount(name="scratch", mount_path="/scratch")
    await scene.running(
        volumes=(Volume(name="scratch", empty_dir=EmptyDirVolumeSource(size_limit="1Ki")),),
        containers=(Container(name="main", command=("run",), volume_mounts=(mount,)),),
    )
    (tmp_path / "volumes/u-1/scratch/large").write_bytes(b"x" * 100_000)
    await scene.api.until(lambda: scene.api.phase() == "Failed", scene.tick)

    assert scene.api.status().reason == "Evicted"
    assert not [each for each in scene.api.status().conditions if each.type == "DisruptionTarget"]
