"""All metrics of a process: each is declared once, collectors may fail, and the process itself is measured."""

import asyncio
import os
import time
from collections.abc import Iterable

import pytest

from app.metrics import registry as registries
from app.metrics.instruments import Family, family
from app.metrics.registry import MetricsRegistry
from tests.metrics.promtool import check_metrics


def samples(text: bytes) -> dict[str, float]:
    """Each line of a scrape but for comments."""
    lines = [line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


async def one() -> Iterable[Family]:
    return [family("one", "One.", "gauge", [({}, 1)])]


def test_an_instrument_is_made_once() -> None:
    metrics = MetricsRegistry()

    assert metrics.counter("a_total", "A.") is metrics.counter("a_total", "A.")
    with pytest.raises(ValueError, match="declared twice"):
        metrics.gauge("a_total", "A.")
    with pytest.raises(ValueError, match="declared twice"):
        metrics.counter("a_total", "A.", ("x",))


async def test_a_collector_that_fails_costs_its_own_numbers_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> Iterable[Family]:
        raise OSError("no database")

    async def hangs() -> Iterable[Family]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(registries, "COLLECTOR_SECONDS", 0.01)
    metrics = MetricsRegistry()
    for name, collect in (("fails", fails), ("hangs", hangs), ("one", one)):
        metrics.add_collector(name, collect)
    found = samples(await metrics.render())

    told = {
        name: found[f'jobplane_scrape_collector_success{{collector="{name}"}}'] for name in ("fails", "hangs", "one")
    }
    assert told == {"fails": 0, "hangs": 0, "one": 1}
    assert found["one"] == 1


async def test_a_collector_can_be_removed() -> None:
    metrics = MetricsRegistry()
    metrics.add_collector("one", one)
    metrics.remove_collector("one")

    assert "one" not in samples(await metrics.render())


async def test_the_process_is_measured() -> None:
    text = await MetricsRegistry().render()
    found = samples(text)
    reader, writer = os.pipe()
    more = samples(await MetricsRegistry().render())
    os.close(reader)
    os.close(writer)

    assert more["process_open_fds"] == found["process_open_fds"] + 2
    assert abs(found["process_start_time_seconds"] + time.process_time() - time.time()) < 86_400
    assert 5e6 < found["process_resident_memory_bytes"] < found["process_virtual_memory_bytes"]
    assert 0 < found["process_cpu_seconds_total"] < 1e6
    check_metrics(text.decode())
