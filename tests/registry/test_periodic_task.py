"""Periodic tasks: when they run, what they log, and that a failure ends none."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from app.registry.periodic_task import Committed, run_periodically
from app.store import Change, Feed, Unavailable
from tests.build import NOW


class Task:
    name = "spring clean"
    interval = timedelta(seconds=20)

    def __init__(self, answer: Callable[[int], dict[str, int]]) -> None:
        self._answer = answer
        self.runs: list[datetime] = []

    async def run_once(self, now: datetime) -> dict[str, int]:
        self.runs.append(now)
        return self._answer(len(self.runs))


async def runs(task: Task, times: int) -> list[float]:
    """How long it slept before each of so many runs."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        if len(slept) == times:
            raise asyncio.CancelledError
        slept.append(seconds)

    with pytest.raises(asyncio.CancelledError):
        await run_periodically(task, lambda: NOW, sleep)
    return slept


async def test_it_runs_at_its_interval_the_first_time_within_one() -> None:
    task = Task(lambda _: {})

    first, *others = await runs(task, 4)

    assert 0 <= first <= 20
    assert others == [20, 20, 20]
    assert task.runs == [NOW] * 4


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    fields = [each.fields for each in caplog.records]
    return [
        (line, f"{each['count']} {each['names']}" if "names" in each else "", str(each.get("error", "")))
        for line, each in zip(caplog.messages, fields, strict=True)
    ]


async def test_what_was_done_is_logged_with_its_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    await runs(
        Task(lambda run: {"cleaned rooms": 3, "cleaned halls": 0, "aired attics": 1} if run == 2 else {"rooms": 0}), 3
    )

    done = "periodic task finished"
    assert logged(caplog) == [(done, "3 cleaned rooms", ""), (done, "1 aired attics", "")]


async def test_one_that_fails_is_run_again(caplog: pytest.LogCaptureFixture) -> None:
    def answer(run: int) -> dict[str, int]:
        if run == 3:
            return {"cleaned rooms": 1}
        raise Unavailable("no water") if run == 1 else ValueError("no broom")

    caplog.set_level(logging.INFO)

    await runs(Task(answer), 3)

    failed = "periodic task failed; retrying"
    done = ("periodic task finished", "1 cleaned rooms", "")
    assert logged(caplog) == [(failed, "", "no water"), (failed, "", "no broom"), done]
    assert [bool(each.exc_info) for each in caplog.records] == [False, True, False]  # of a fault, where it is


async def test_what_works_through_history_rests_while_nothing_is_committed() -> None:
    async def read(after: int, up_to: int | None) -> tuple[Sequence[Change], int, bool]:
        return (), up_to or after, False

    async def sleep(_: float) -> None:
        slept.release()
        await asyncio.sleep(0)

    feed, slept = Feed(read, 0), asyncio.Semaphore(0)
    feed.start_at(7)
    task = Task(_fail_the_first)
    running = asyncio.create_task(run_periodically(task, lambda: NOW, sleep, Committed(feed)))

    for _ in range(3):  # before the first run, after one that failed and after one that did not
        await slept.acquire()
    await _settle()
    assert len(task.runs) == 2
    await feed.on_commit(7, (), 8)
    await slept.acquire()
    await _settle()
    assert len(task.runs) == 3
    feed.start_anew(8, 8)
    await slept.acquire()
    await _settle()
    assert len(task.runs) == 4
    running.cancel()


async def _settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def _fail_the_first(run: int) -> dict[str, int]:
    if run == 1:
        raise Unavailable("not now")
    return {"rooms": run}
