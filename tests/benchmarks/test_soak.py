"""What the soak makes of its samples."""

import pytest

from benchmarks.cases.soak import KEPT_KIB, grown_disk, grown_memory, slower
from benchmarks.steady import Held, Progress
from benchmarks.wire import Client

KIB = 1 << 10
HOUR = 3_600.0


def held(at: float, memory: float = 0.0, heads: float = 0.0, versions: float = 0.0, wal: float = 0.0) -> Held:
    tables = {"heads": round(heads * KIB), "versions": round(versions * KIB)}
    return Held({"api": memory}, {}, tables, round(wal * KIB), at)


def progress(latencies: dict[str, tuple[float, float]]) -> Progress:
    """Of Jobs by name: when each was posted, and the seconds to its end."""
    seen = Progress(Client(0, "", None))
    seen.posted = {name: at for name, (at, _) in latencies.items()}
    seen.completed = {name: at + took for name, (at, took) in latencies.items()}
    return seen


def test_memory_counts_from_half_on() -> None:
    samples = [held(at, memory) for at, memory in ((0, 10), (900, 200), (1800, 300), (2700, 301), (3600, 302))]

    (figure,) = grown_memory(samples)

    assert figure.value == pytest.approx(4)  # of 2 MiB in half an hour
    assert figure.unit == "MiB/h"


def test_disk_leaves_out_what_is_meant_to_stay() -> None:
    samples = [held(0), held(1, heads=100, versions=100, wal=10), held(2, heads=102 + KEPT_KIB, versions=900, wal=50)]
    posted = progress({"soak-1": (10, 1), "kept-2": (80, 1), "soak-3": (90, 1)})

    disk, wal = grown_disk(samples, posted, 0, 100)

    assert disk.value == pytest.approx(1)  # KiB for each of two Jobs, one of which is kept
    assert wal.value == pytest.approx(20)


def test_latency_is_compared_by_halves() -> None:
    posted = progress({"a": (10, 0.2), "b": (40, 0.2), "c": (60, 0.3), "d": (90, 0.3)})

    assert slower(posted, 0, 100).value == pytest.approx(1.5)
