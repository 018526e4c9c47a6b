"""When a machine runs short: real readings, the kubelet's thresholds and words, and what is left for pods."""

from pathlib import Path

import pytest

from app.agent import node, pressure
from app.agent.pressure import Readings, conditions, read

PLENTY = Readings(memory=1 << 30, disk=0.5, inodes=0.5, pids=0.9)


def test_a_machine_with_plenty_is_under_no_pressure() -> None:
    assert [(each.type, each.status, each.reason, each.message) for each in conditions(PLENTY)] == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(Readings((100 << 20) - 1, 0.5, 0.5, 0.9), ["MemoryPressure"], id="less than 100 MiB available"),
        pytest.param(Readings(100 << 20, 0.5, 0.5, 0.9), [], id="100 MiB are enough"),
        pytest.param(Readings(1 << 30, 0.099, 0.5, 0.9), ["DiskPressure"], id="less than a tenth of the disk free"),
        pytest.param(Readings(1 << 30, 0.5, 0.049, 0.9), ["DiskPressure"], id="hardly an inode"),
        pytest.param(Readings(1 << 30, 0.1, 0.05, 0.05), [], id="exactly enough"),
        pytest.param(Readings(1 << 30, 0.5, 0.5, 0.04), ["PIDPressure"], id="hardly a process id"),
        pytest.param(Readings(0, 0, 0, 0), ["MemoryPressure", "DiskPressure", "PIDPressure"], id="nothing left"),
    ],
)
def test_pressure(now: Readings, expected: list[str]) -> None:
    assert [each.type for each in conditions(now) if each.status == "True"] == expected


def test_readings_are_what_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "sys" / "kernel").mkdir(parents=True)
    (tmp_path / "meminfo").write_text("MemTotal:  2048 kB\nMemAvailable:     1024 kB\n")
    (tmp_path / "sys" / "kernel" / "pid_max").write_text("1000\n")
    (tmp_path / "sys" / "kernel" / "threads-max").write_text("4000\n")
    (tmp_path / "loadavg").write_text("0.01 0.02 0.03 2/900 6789\n")

    found = read(tmp_path, tmp_path)

    assert (found.memory, round(found.pids, 3)) == (1 << 20, 0.1)
    assert 0 <= found.disk <= 1


def test_what_is_not_told_is_plenty(tmp_path: Path) -> None:
    found = read(tmp_path, tmp_path / "none")

    assert (found.memory, found.pids) == (pressure.MEMORY, 1.0)


def test_pods_may_have_all_but_what_must_stay_free(tmp_path: Path) -> None:
    has, gives = node.capacity(tmp_path), node.allocatable(tmp_path, {"cpu": "7"})

    assert int(has["memory"][:-2]) - int(gives["memory"][:-2]) == 100 * 1024
    assert int(gives["ephemeral-storage"][:-2]) <= int(has["ephemeral-storage"][:-2]) * 0.9
    assert (gives["cpu"], gives["pods"]) == ("7", "110")
    assert node.allocatable(tmp_path, {"memory": "1Gi"})["memory"] == "1Gi"
