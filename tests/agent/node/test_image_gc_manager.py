"""What nobody needs goes: images from a full disk, and whatever pods leave behind."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app.agent.node.image_gc_manager import ImageGcManager, read_disk
from app.agent.pods.images import ImageManager
from app.agent.pods.pulled_images import PulledImages
from app.plans.kubelet.image_gc import Disk
from app.runtimes.base import Image, RuntimeInfo, SandboxSpec
from tests.agent.fake_clock import FakeClock
from tests.agent.fake_runtime import FakeRuntime
from tests.agent.scene import Scene
from tests.log_lines import lines

NODE = "/api/v1/nodes/n1"


@dataclass
class Lab:
    """A node with images `a` to `d` of 100 bytes each, on a disk of 1000, on which nothing else is."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    other: int = 600
    in_use: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.runtime = FakeRuntime(self.clock.now)
        self.runtime.have = [Image(name, (f"{name}:1",), 100) for name in "abcd"]
        pulled = PulledImages(self.folder / "pulled-images.json")
        self.images = ImageManager(self.runtime, None, self.clock, lambda *_: None, lambda *_: None, pulled)
        self.garbage = ImageGcManager(
            self.runtime, self.images, lambda: self.in_use, self.remove_old_runs, self.disk, self.clock
        )

    async def remove_old_runs(self) -> None: ...

    def disk(self) -> Disk:
        return Disk(1000, 1000 - self.other - 100 * len(self.runtime.have))

    def left(self) -> str:
        return "".join(each.id for each in self.runtime.have)


async def test_a_full_disk_loses_the_images_that_were_used_longest_ago(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    await lab.garbage.collect()
    assert lab.left() == "abcd"
    lab.clock.advance(120)
    lab.images.used_at["a"] = lab.clock.now()
    lab.in_use = {"b"}

    assert await lab.garbage.collect() == 200
    assert lab.left() == "ab"


async def test_a_disk_with_room_keeps_everything(tmp_path: Path) -> None:
    lab = Lab(tmp_path, other=400)
    await lab.garbage.collect()
    lab.clock.advance(120)

    assert await lab.garbage.collect() == 0


async def test_an_image_that_the_runtime_keeps_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lab = Lab(tmp_path)
    await lab.garbage.collect()
    lab.clock.advance(120)
    lab.runtime.kept = {"a", "b", "c", "d"}

    assert await lab.garbage.collect() == 0
    assert any('reason="0 of 200 bytes are freed"' in line for line in lines(caplog))


def test_a_disk_is_what_the_kernel_says(tmp_path: Path) -> None:
    found = read_disk(tmp_path)

    assert 0 <= found.free <= found.size


async def test_a_node_tells_its_largest_images(scene: Scene) -> None:
    scene.runtime.capabilities = RuntimeInfo(name="fake", version="1", survives_agent=True, images=True)
    scene.runtime.have = [Image(f"sha256:{number}", (f"i:{number}",), number) for number in range(60)]
    scene.start_agent()
    await scene.api.until(lambda: scene.api.objects.get(NODE, {}).get("status", {}).get("images"))
    images = scene.api.objects[NODE]["status"]["images"]

    assert [each["sizeBytes"] for each in images] == list(range(59, 9, -1))
    assert images[0]["names"] == ["i:59"]


async def test_a_sandbox_of_a_pod_that_nobody_knows_goes(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    await scene.runtime.run_sandbox(SandboxSpec(pod_uid="u-9", namespace="default", name="lost"))
    await scene.api.until(lambda: scene.runtime.removed, scene.tick)

    assert scene.runtime.removed == ["u-9"]
    assert scene.runtime.standing == {"u-1"}


async def test_of_a_container_that_starts_again_and_again_one_ended_run_stays(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    for attempt in range(4):
        await scene.api.until(lambda number=attempt: scene.runtime.was_started(attempt=number), scene.tick)
        scene.runtime.write(b"no\n", attempt=attempt)
        scene.runtime.exit(1, attempt=attempt)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=4), scene.tick)
    await scene.api.until(lambda: len(scene.runtime.containers) == 2, scene.tick)
    scene.runtime.exit(0, attempt=4)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded", scene.tick)

    assert scene.container().restart_count == 4
    assert [scene.api.logs["u-1", "main", attempt] for attempt in range(4)] == [b"no\n"] * 4
