"""GPUs and other devices: found, listed, pinned to containers, and let go."""

import json
from pathlib import Path

import pytest

from app.agent.node.device_sources import EMPTY, Device, DevicesError, Inventory, inventory, nvidia
from app.kinds.pod.container import Container, EnvVar, ResourceRequirements
from tests.agent.scene import Scene

GPU = "nvidia.com/gpu"
TWO = inventory(f"{GPU}=/dev/nvidia0,/dev/nvidia1")


def asking(count: int, name: str = "main", **more: object) -> Container:
    resources = ResourceRequirements(limits={GPU: str(count)} if count else {})
    return Container(name=name, image="i", command=("run",), resources=resources, **more)


def a_machine(folder: Path, *models: str) -> tuple[Path, Path]:
    """/proc/driver/nvidia and /dev with that many GPUs."""
    proc, dev = folder / "proc", folder / "dev"
    dev.mkdir()
    for number, model in enumerate(models):
        gpu = proc / "gpus" / f"0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        text = f"Model: \t\t {model}\nIRQ:   \t\t 21\nGPU UUID: \t GPU-{number}\nDevice Minor: \t {number}\n"
        (gpu / "information").write_text(text)
        (dev / f"nvidia{number}").touch()
    (dev / "nvidiactl").touch()
    return proc, dev


def test_gpus_are_what_the_driver_says(tmp_path: Path) -> None:
    proc, dev = a_machine(tmp_path, "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB")
    found = nvidia(proc, dev)

    assert found.devices == {
        GPU: (Device("GPU-0", (f"{dev}/nvidia0",)), Device("GPU-1", (f"{dev}/nvidia1",))),
    }
    assert found.shared == {GPU: (f"{dev}/nvidiactl",)}
    assert found.capacity == {GPU: "2"}
    assert found.labels.items() >= {f"{GPU}.product": "NVIDIA-A100-SXM4-40GB", f"{GPU}.count": "2"}.items()


def test_gpus_that_differ_have_no_product_in_common(tmp_path: Path) -> None:
    assert f"{GPU}.product" not in nvidia(*a_machine(tmp_path, "Tesla T4", "NVIDIA L4")).labels


def test_a_machine_without_the_driver_has_none(tmp_path: Path) -> None:
    assert nvidia(tmp_path, tmp_path) == EMPTY


def test_a_list_is_read_from_a_file(tmp_path: Path) -> None:
    told = {"devices": {"amd.com/gpu": [{"id": "0", "files": ["/dev/kfd"]}]}, "labels": {"a": "b"}}
    (tmp_path / "devices").write_text(json.dumps(told))

    assert inventory(str(tmp_path / "devices")) == Inventory(
        {"amd.com/gpu": (Device("0", ("/dev/kfd",)),)}, labels={"a": "b"}
    )


@pytest.mark.parametrize(
    ("told", "why"),
    [
        pytest.param("gpu=/dev/x", "'gpu' cannot name devices", id="a name without a domain"),
        pytest.param("kubernetes.io/gpu=/dev/x", "cannot name devices", id="a name of Kubernetes' own"),
        pytest.param("a.b/c=x", "'x' is not the absolute path of a device file", id="a path that is none"),
        pytest.param("a.b/c=/dev/x,/dev/x", "two devices of a.b/c have the same id", id="one device twice"),
        pytest.param("/nowhere", "/nowhere: No such file or directory", id="no such file"),
    ],
)
def test_a_bad_list_is_refused(told: str, why: str) -> None:
    with pytest.raises(DevicesError) as refused:
        inventory(told)

    assert why in str(refused.value)


async def test_a_node_tells_its_devices(scene: Scene) -> None:
    labelled = Inventory(TWO.devices, labels={f"{GPU}.product": "T4"})
    scene.start_agent(inventory=labelled)
    await scene.api.until(lambda: (node := scene.api.objects.get("/api/v1/nodes/n1")) and "status" in node)
    node = scene.api.objects["/api/v1/nodes/n1"]

    assert node["metadata"]["labels"][f"{GPU}.product"] == "T4"
    assert node["status"]["capacity"][GPU] == node["status"]["allocatable"][GPU] == "2"


async def test_a_container_gets_what_it_asks_for_and_the_others_nothing(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(1), asking(0, "beside")))
    given, beside = (scene.runtime.specs[scene.runtime.key(name)] for name in ("main", "beside"))

    assert given.devices == ("/dev/nvidia0",)
    assert (given.env["NVIDIA_VISIBLE_DEVICES"], given.env["CUDA_VISIBLE_DEVICES"]) == ("0", "0")
    assert beside.devices == ()
    assert (beside.env["NVIDIA_VISIBLE_DEVICES"], beside.env["CUDA_VISIBLE_DEVICES"]) == ("void", "")


async def test_what_a_container_sets_itself_counts(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(0, env=(EnvVar(name="NVIDIA_VISIBLE_DEVICES", value="all"),)),))

    assert scene.runtime.specs[scene.runtime.key()].env["NVIDIA_VISIBLE_DEVICES"] == "all"


async def test_two_pods_never_share_one_nor_after_a_restart(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(1),))
    await scene.stop_agent()
    scene.start_agent(inventory=TWO)
    scene.api.bind("other", "u-2", containers=(asking(1),))
    await scene.api.until(lambda: scene.api.phase("u-2") == "Running")

    assert scene.runtime.specs[scene.runtime.key(uid="u-2")].devices == ("/dev/nvidia1",)


async def test_a_container_that_starts_again_has_the_same(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    scene.api.bind("first", "u-0", containers=(asking(1),))
    await scene.api.until(lambda: scene.api.phase("u-0") == "Running")
    await scene.running(containers=(asking(1),), restart_policy="OnFailure")
    scene.runtime.exit(0, uid="u-0")
    await scene.api.until(lambda: scene.api.phase("u-0") == "Succeeded")
    scene.runtime.exit(1)
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1))

    assert scene.runtime.specs[scene.runtime.key(attempt=1)].devices == ("/dev/nvidia1",)


async def test_a_pod_for_which_there_are_too_few_is_rejected(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(2),))
    scene.api.bind("other", "u-2", containers=(asking(1),))
    await scene.api.until(lambda: scene.api.phase("u-2") == "Failed")

    why = f"Allocate failed due to requested number of devices unavailable for {GPU}. Requested: 1, Available: 0"
    status = scene.api.status("u-2")
    assert (status.reason, status.message) == (
        "UnexpectedAdmissionError",
        f"Pod was rejected: {why}, which is unexpected",
    )
    assert ("UnexpectedAdmissionError", f"{why}, which is unexpected") in scene.told()
    assert not scene.runtime.was_started(uid="u-2")


async def test_a_pod_that_has_ended_lets_go(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(2),))
    scene.runtime.exit(0)
    await scene.api.until(lambda: scene.api.phase() == "Succeeded")
    scene.api.bind("other", "u-2", containers=(asking(2),))
    await scene.api.until(lambda: scene.api.phase("u-2") == "Running")


async def test_the_next_pod_waits_for_one_that_is_being_removed(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(2),))
    scene.runtime.stubborn.add("main")
    scene.api.delete(grace=0)
    await scene.api.until(lambda: scene.runtime.stops)
    scene.api.bind("other", "u-2", containers=(asking(2),))
    await scene.api.until(lambda: scene.api.phase("u-2") == "Pending")
    scene.runtime.exit(137)
    await scene.api.until(lambda: scene.runtime.was_started(uid="u-2"), scene.tick)


async def test_devices_of_a_pod_that_went_while_no_agent_was_there_are_free(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.running(containers=(asking(2),))
    await scene.stop_agent()
    scene.api.delete(grace=0)
    scene.runtime.containers.clear()
    scene.runtime.standing.clear()
    scene.start_agent(inventory=TWO)
    scene.api.bind("other", "u-2", containers=(asking(2),))
    await scene.api.until(lambda: scene.runtime.was_started(uid="u-2"), scene.tick)


async def test_devices_that_a_node_no_longer_has_go_from_its_status(scene: Scene) -> None:
    scene.start_agent(inventory=TWO)
    await scene.api.until(lambda: scene.api.objects.get("/api/v1/nodes/n1", {}).get("status"))
    await scene.stop_agent()
    scene.start_agent()
    # A merge patch takes away what is null in it.
    await scene.api.until(lambda: scene.api.objects["/api/v1/nodes/n1"]["status"]["capacity"][GPU] is None, scene.tick)

    assert scene.api.objects["/api/v1/nodes/n1"]["status"]["allocatable"][GPU] is None
