"""The buffer between requests and the log: bounded, and nothing is lost that need not be."""

import asyncio
import errno
import json
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from app.api.audit import event_buffer
from app.api.audit.event import Record
from app.api.audit.event_buffer import EventBuffer, Mode
from app.api.audit.policy import Level
from app.metrics.registry import MetricsRegistry
from tests.api.audit.following import Lines

FULL = OSError(errno.ENOSPC, "No space left on device")


def record(number: int, request: bytes = b"") -> Record:
    return Record(
        id=b"%d" % number,
        level=Level.METADATA,
        stage="ResponseComplete",
        verb="get",
        path=b"/x",
        query=b"",
        client="127.0.0.1",
        headers=(),
        user=None,
        acting_user=None,
        action=None,
        version="",
        grant=None,
        code=200,
        received=1.0,
        at=2.0,
        annotations={},
        request=request,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_buffer, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(event_buffer, "RETRY_SECONDS", 0.001)


@asynccontextmanager
async def running(
    lines: Lines, mode: Mode = "batch", **limits: int
) -> AsyncIterator[tuple[EventBuffer, MetricsRegistry]]:
    metrics = MetricsRegistry()
    buffer = EventBuffer(lines, metrics, mode, **limits)
    task = asyncio.create_task(buffer.run())
    await asyncio.sleep(0)  # a task that has not begun ends without a word
    try:
        yield buffer, metrics
    finally:
        task.cancel()
        await asyncio.wait((task,))


def ids(lines: Lines) -> list[int]:
    return [int(json.loads(line)["auditID"]) for line in lines.text.splitlines()]


async def until_tried(lines: Lines, times: int) -> None:
    async with asyncio.timeout(60):
        while lines.tried < times:  # noqa: ASYNC110 - the thread tells nobody
            await asyncio.sleep(0.001)


def lost(metrics: MetricsRegistry) -> float:
    return metrics.counter("apiserver_audit_error_total", "", ("plugin",)).value("log")


async def test_events_are_written_in_order() -> None:
    lines = Lines()
    async with running(lines) as (buffer, metrics):
        for number in range(1200):
            buffer.put(record(number))
    assert ids(lines) == list(range(1200))
    assert metrics.counter("apiserver_audit_event_total", "").value() == 1200
    assert lost(metrics) == 0


async def test_while_the_log_cannot_be_written_events_wait_and_then_are_dropped_and_counted() -> None:
    lines = Lines()
    lines.error = FULL
    async with running(lines, most=10) as (buffer, metrics):
        for number in range(30):
            buffer.put(record(number))
        await until_tried(lines, 3)
        assert buffer.is_full
        assert lost(metrics) == 20
        assert metrics.counter("jobplane_audit_write_failures_total", "").value() >= 1
        lines.error = None
        async with asyncio.timeout(60):
            assert await buffer.wait_for_room(60)
        buffer.put(record(99))
    assert ids(lines) == [*range(10), 99]


async def test_the_buffer_is_bounded_by_bytes_too() -> None:
    lines = Lines()
    lines.error = FULL
    async with running(lines, most_bytes=1 << 20) as (buffer, metrics):
        for number in range(10):
            buffer.put(record(number, b"x" * (1 << 18)))
        assert lost(metrics) == 6
        lines.error = None


async def test_in_mode_blocking_requests_wait_for_room() -> None:
    lines = Lines()
    lines.error = FULL
    async with running(lines, "blocking", most=10) as (buffer, metrics):
        for number in range(10):
            buffer.put(record(number))
        assert not await buffer.wait_for_room(0.01)
        waiting = asyncio.create_task(buffer.wait_for_room(60))
        buffer.put(record(10))  # of a request that was under way
        lines.error = None
        assert await waiting
    assert ids(lines) == list(range(11))
    assert lost(metrics) == 0


async def test_in_mode_blocking_there_is_a_bound_yet() -> None:
    lines = Lines()
    lines.error = FULL
    async with running(lines, "blocking", most=10) as (buffer, metrics):
        for number in range(50):
            buffer.put(record(number))
        assert lost(metrics) == 30
        lines.error = None
    assert ids(lines) == list(range(20))


async def test_a_disk_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_buffer, "_END_SECONDS", 0.01)
    go_on, began = threading.Event(), threading.Event()

    class Hanging(Lines):
        def write(self, lines: deque[bytes]) -> None:
            began.set()
            go_on.wait(60)
            super().write(lines)

    lines = Hanging()
    async with running(lines, most=10) as (buffer, metrics):
        buffer.put(record(0))
        await asyncio.to_thread(began.wait, 60)
        for number in range(1, 50):
            buffer.put(record(number))
        assert lost(metrics) == 40
    assert lines.text == b""  # the process ends, though the thread has not
    go_on.set()


async def test_the_rest_is_written_at_the_end() -> None:
    lines = Lines()
    async with running(lines) as (buffer, _):
        await asyncio.sleep(0)
        buffer.put(record(1))
    assert ids(lines) == [1]


async def test_an_event_that_cannot_be_encoded_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    lines = Lines()
    async with running(lines) as (buffer, _):
        buffer.put(record(1))
        buffer.put(replace(record(2), verb="\ud800"))
        buffer.put(record(3))
    assert ids(lines) == [1, 3]
    assert "cannot encode an audit event" in caplog.text


async def test_what_requests_were_made_of_is_not_kept_until_the_next_write() -> None:
    lines = Lines()
    async with running(lines) as (buffer, _):
        for number in range(event_buffer._TOGETHER + 1):
            buffer.put(record(number))
        assert len(buffer._records) == 1  # the others are lines by now, and the loop has not turned
        await until_tried(lines, 1)
    assert ids(lines) == list(range(event_buffer._TOGETHER + 1))
