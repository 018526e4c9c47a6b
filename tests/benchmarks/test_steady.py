"""Steady load: watchers go on where they were, a Job is completed once, and what is under way bounds the pace."""

import asyncio
from typing import Any

import msgspec
import pytest

from benchmarks.figures import slope
from benchmarks.jobs import job
from benchmarks.steady import Progress, post_evenly
from benchmarks.wire import Client, Connection


class Api(Connection):
    """Remembers what is posted. `on_post` is what happens then."""

    def __init__(self, on_post: Any = None) -> None:
        super().__init__(0, "")
        self.names: list[str] = []
        self._on_post = on_post or (lambda name: None)

    async def post(self, path: str, body: Any) -> bytes:
        self.names.append(body["metadata"]["name"])
        self._on_post(self.names[-1])
        return b""


def line(name: str, condition: str = "", change: str = "MODIFIED", revision: str = "7") -> bytes:
    conditions = [{"type": condition, "status": "True"}] if condition else []
    document = {"metadata": {"name": name, "resourceVersion": revision}, "status": {"conditions": conditions}}
    return msgspec.json.encode({"type": change, "object": document}) + b"\n"


def progress() -> Progress:
    return Progress(Client(0, "", None))


def test_a_job_completes_once_however_often_it_is_seen() -> None:
    seen = progress()
    seen.posted = {"a": 1.0, "b": 2.0}

    seen.hear(line("a", "Complete") + line("a", "Complete", "DELETED") + line("stranger", "Complete"))

    assert seen.waiting == 1
    assert len(seen.latencies()) == 1
    assert seen.events == 3


def test_a_line_that_comes_in_pieces_is_one_event() -> None:
    seen = progress()
    whole = line("a", revision="12")

    seen.hear(whole[:10])
    seen.hear(whole[10:])

    assert (seen.events, seen.received, seen.revision) == (1, len(whole), "12")


async def test_the_pace_waits_for_completions() -> None:
    seen = progress()
    full = asyncio.Event()
    api = Api(on_post=lambda _: full.set() if len(api.names) == 3 else None)
    bodies = (job(f"j{number}") for number in range(6))
    posting = asyncio.create_task(post_evenly(api, seen, 1_000.0, bodies, most=3))

    await full.wait()
    await asyncio.sleep(0.05)
    assert seen.waiting == 3
    seen.hear(b"".join(line(name, "Complete") for name in api.names))
    await posting

    assert len(api.names) == 6


async def test_a_job_that_fails_ends_the_run() -> None:
    seen = progress()
    api = Api(on_post=lambda name: seen.hear(line(name, "Failed")))

    with pytest.raises(RuntimeError, match="Jobs failed: \\['j0'\\]"):
        await post_evenly(api, seen, 1_000.0, (job(f"j{number}") for number in range(5_000)))


def test_the_slope_is_that_of_the_straight_line() -> None:
    assert slope([0.0, 1.0, 2.0], [5.0, 7.0, 9.0]) == pytest.approx(2)
    assert slope([0.0, 1.0, 2.0, 3.0], [1.0, 3.0, 1.0, 3.0]) == pytest.approx(0.4)
    assert slope([1.0], [9.0]) == 0
