"""When a machine runs short: real readings, the kubelet's thresholds and words, and what is left for pods."""

from pathlib import Path

import pytest

from app.agent.node import node
from app.agent.node.pressure import (
    THRESHOLDS,
    Pressures,
    Reading,
    Threshold,
    ThresholdsError,
    conditions,
    eviction_thresholds,
    read,
    short,
)
from tests.agent.fake_clock import FakeClock

MEMORY, DISK, INODES, PIDS = "memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available"


def test_a_machine_with_plenty_is_under_no_pressure() -> None:
    assert [(each.type, each.status, each.reason, each.message) for each in conditions(())] == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(
            {MEMORY: Reading((100 << 20) - 1, 1 << 30)}, [(MEMORY, "100Mi", "102399Ki")], id="too little memory"
        ),
        pytest.param({MEMORY: Reading(100 << 20, 1 << 30)}, [], id="100 MiB are enough"),
        pytest.param(
            {DISK: Reading(99 << 20, 1000 << 20)}, [(DISK, "100Mi", "99Mi")], id="less than a tenth of the disk"
        ),
        pytest.param({INODES: Reading(49, 1000)}, [(INODES, "50", "49")], id="hardly an inode"),
        pytest.param(
            {DISK: Reading(100, 1000), INODES: Reading(50, 1000), PIDS: Reading(50, 1000)}, [], id="exactly enough"
        ),
        pytest.param({PIDS: Reading(4, 100)}, [(PIDS, "5", "4")], id="hardly a process id"),
        pytest.param({}, [], id="what is not told is plenty"),
    ],
)
def test_what_is_short(now: dict[str, Reading], expected: list[tuple[str, str, str]]) -> None:
    assert short(now, THRESHOLDS) == expected


def test_thresholds_are_read_as_a_kubelet_reads_them() -> None:
    assert eviction_thresholds("memory.available<1Gi, nodefs.available<15%") == {
        MEMORY: Threshold(amount=1 << 30),
        DISK: Threshold(share=0.15),
    }
    assert eviction_thresholds("none") == {}


@pytest.mark.parametrize("text", ["memory.available<x", "cpu<1", "nodefs.available", "memory.available<1zi"])
def test_a_threshold_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ThresholdsError):
        eviction_thresholds(text)


def a_machine(folder: Path, *, available: int) -> None:
    (folder / "sys" / "kernel").mkdir(parents=True, exist_ok=True)
    (folder / "meminfo").write_text(f"MemTotal:  2048 kB\nMemAvailable:     {available} kB\n")
    (folder / "sys" / "kernel" / "pid_max").write_text("1000\n")
    (folder / "sys" / "kernel" / "threads-max").write_text("4000\n")
    (folder / "loadavg").write_text("0.01 0.02 0.03 2/900 6789\n")


def test_readings_are_what_the_kernel_says(tmp_path: Path) -> None:
    a_machine(tmp_path, available=1024)
    found = read(tmp_path, tmp_path)

    assert (found[MEMORY], found[PIDS]) == (Reading(1 << 20, 2 << 20), Reading(100, 1000))
    assert 0 <= found[DISK].available <= found[DISK].total


def test_what_a_platform_does_not_tell_is_not_read(tmp_path: Path) -> None:
    assert not {MEMORY, PIDS} & read(tmp_path, tmp_path / "none").keys()


def test_a_condition_stays_for_five_minutes(tmp_path: Path) -> None:
    clock = FakeClock()
    pressures = Pressures(tmp_path, clock, {MEMORY: Threshold(amount=1 << 20)}, tmp_path)
    a_machine(tmp_path, available=1000)
    assert pressures.conditions()[0].status == "True"
    a_machine(tmp_path, available=2000)
    clock.advance(299)
    assert pressures.conditions()[0].status == "True"
    assert pressures.shortages() == []
    clock.advance(1)

    assert pressures.conditions()[0].status == "False"


def test_pods_may_have_all_but_what_must_stay_free(tmp_path: Path) -> None:
    has, gives = node.capacity(tmp_path), node.allocatable(tmp_path, {"cpu": "7"})

    assert int(has["memory"][:-2]) - int(gives["memory"][:-2]) == 100 * 1024
    assert int(gives["ephemeral-storage"][:-2]) <= int(has["ephemeral-storage"][:-2]) * 0.9 + 1
    assert (gives["cpu"], gives["pods"]) == ("7", "110")
    assert node.allocatable(tmp_path, {"memory": "1Gi"})["memory"] == "1Gi"
    assert node.allocatable(tmp_path, {}, {})["memory"] == has["memory"]
