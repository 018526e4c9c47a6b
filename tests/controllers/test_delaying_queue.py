"""`app.controllers.delaying_queue`, on clocks that the tests set."""

from datetime import UTC, datetime, timedelta

import pytest

from app.controllers.delaying_queue import DelayingQueue
from app.store import Key

A, B = Key("jobs.batch", "default", "a"), Key("jobs.batch", "default", "b")
START = datetime(2026, 1, 1, tzinfo=UTC)


class Clocks:
    """The time of day, and monotonic seconds."""

    def __init__(self) -> None:
        self.day, self.seconds = START, 100.0
        self.queue = DelayingQueue(lambda: self.day, lambda: self.seconds)

    def pass_time(self, seconds: float) -> None:
        self.day += timedelta(seconds=seconds)
        self.seconds += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def test_a_key_is_due_once_at_the_earliest_of_its_moments(clocks: Clocks) -> None:
    assert clocks.queue.add_after(A, timedelta(seconds=30))
    assert clocks.queue.add_after(A, timedelta(seconds=10))
    assert not clocks.queue.add_after(A, timedelta(seconds=20))
    assert [*clocks.queue.due] == [A]

    clocks.pass_time(9.9)
    assert [*clocks.queue.take_due()] == []
    clocks.pass_time(0.1)
    assert [*clocks.queue.take_due()] == [A]
    clocks.pass_time(60)
    assert [*clocks.queue.take_due()] == []


def test_keys_come_in_the_order_of_their_moments(clocks: Clocks) -> None:
    clocks.queue.add_after(A, timedelta(seconds=2))
    clocks.queue.add_after(B, timedelta(seconds=1))
    clocks.pass_time(2)

    assert [*clocks.queue.take_due()] == [B, A]


def test_the_wait_is_until_the_next_moment_and_a_minute_at_most(clocks: Clocks) -> None:
    assert clocks.queue.seconds_to_next() == 60.0
    clocks.queue.add_after(A, timedelta(minutes=5))
    assert clocks.queue.seconds_to_next() == 60.0
    clocks.queue.add_after(B, timedelta(seconds=5))
    assert clocks.queue.seconds_to_next() == 5.0
    clocks.pass_time(7)
    assert 0.0 < clocks.queue.seconds_to_next() < 0.1


def test_a_clock_set_back_delays_nothing(clocks: Clocks) -> None:
    clocks.queue.add_after(A, timedelta(seconds=10))
    clocks.day -= timedelta(hours=1)
    clocks.pass_time(10)

    assert [*clocks.queue.take_due()] == [A]


def test_a_clock_set_forward_makes_keys_due_that_much_earlier(clocks: Clocks) -> None:
    clocks.queue.add_after(A, timedelta(minutes=10))
    clocks.queue.add_after(B, timedelta(hours=2))
    clocks.day += timedelta(hours=1)

    assert [*clocks.queue.take_due()] == [A]
    assert clocks.queue.due[B] == pytest.approx(clocks.seconds + 3600)


def test_a_clock_that_drifts_a_little_changes_nothing(clocks: Clocks) -> None:
    clocks.queue.add_after(A, timedelta(seconds=1))
    clocks.day += timedelta(seconds=0.9)

    assert [*clocks.queue.take_due()] == []
