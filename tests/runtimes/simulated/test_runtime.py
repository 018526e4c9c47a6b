"""What the annotation `jobplane.dev/simulate` does, with a clock and timers that the test moves."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from app.runtimes.base import ContainerKey, ContainerSpec, ContainerStatus, SandboxSpec, StartError
from app.runtimes.simulated.runtime import SimulatedRuntime, Simulation, parse
from tests.runtimes.conftest import a_key


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.timers: list[tuple[datetime, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> "Timer":
        timer = (self.now + timedelta(seconds=seconds), call)
        self.timers.append(timer)
        return Timer(self, timer)

    def pass_(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, call in due:
            call()


class Timer:
    def __init__(self, clock: Clock, timer: tuple[datetime, Callable[[], None]]) -> None:
        self._clock, self._timer = clock, timer

    def cancel(self) -> None:
        self._clock.timers = [timer for timer in self._clock.timers if timer is not self._timer]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def runtime(clock: Clock) -> SimulatedRuntime:
    return SimulatedRuntime(lambda: clock.now, clock.later)


async def started(
    runtime: SimulatedRuntime, text: str, key: ContainerKey | None = None, name: str = "job-a"
) -> ContainerStatus:
    key = key or a_key()
    annotations = {"jobplane.dev/simulate": text} if text else {}
    await runtime.run_sandbox(SandboxSpec(pod_uid=key.pod_uid, namespace="default", name=name, annotations=annotations))
    await runtime.start_container(ContainerSpec(key=key, image="", command=[], env={}))
    status = await runtime.status(key)
    assert status
    return status


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", Simulation(), id="nothing"),
        pytest.param('{"seconds": 2.5, "exitCode": 1}', Simulation(seconds=2.5, exit_code=1), id="JSON"),
        pytest.param("seconds=2.5,exitCode=1", Simulation(seconds=2.5, exit_code=1), id="pairs with commas"),
        pytest.param(" ignoreTerm=true  log=x=y ", Simulation(ignore_term=True, log="x=y"), id="pairs with blanks"),
        pytest.param('{"failFirst": 2, "message": "m"}', Simulation(fail_first=2, message="m"), id="a message"),
    ],
)
def test_the_annotation_is_read_from(text: str, expected: Simulation) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        "seconds",
        "seconds=soon",
        "seconds=-1",
        "seconds=nan",
        "exitCode=256",
        "sleep=1",
        '{"exitCode": "1"}',
    ],
)
async def test_an_annotation_that_makes_no_sense_is_a_start_error(runtime: SimulatedRuntime, text: str) -> None:
    with pytest.raises(StartError, match=r"annotation jobplane\.dev/simulate: "):
        await started(runtime, text)


async def test_by_default_it_succeeds_at_once_and_one_event_tells(runtime: SimulatedRuntime, clock: Clock) -> None:
    events = runtime.events()
    status = await started(runtime, "")
    await runtime.close()

    assert (status.state, status.exit_code, status.reason) == ("exited", 0, "Completed")
    assert status.started_at == status.finished_at == clock.now
    assert [key async for key in events] == [status.key]


async def test_it_runs_as_long_as_told(runtime: SimulatedRuntime, clock: Clock) -> None:
    status = await started(runtime, "seconds=60,exitCode=3,message=bye")
    clock.pass_(59)
    assert await runtime.status(status.key) == status
    clock.pass_(1)
    ended = await runtime.status(status.key)

    assert ended
    assert (ended.exit_code, ended.reason, ended.termination_message) == (3, "Error", "bye")
    assert ended.finished_at == clock.now


async def test_the_first_starts_of_one_owner_fail(runtime: SimulatedRuntime) -> None:
    keys = [a_key("u-1"), a_key("u-1", attempt=1), a_key("u-2"), a_key("u-3")]
    codes = [
        (await started(runtime, "failFirst=3,exitCode=9", key, name=f"job-{key.pod_uid}")).exit_code for key in keys
    ]

    assert codes == [9, 9, 9, 0]


async def test_another_owner_s_starts_are_counted_apart(runtime: SimulatedRuntime) -> None:
    codes = [
        (await started(runtime, "failFirst=1", a_key(name), name=name)).exit_code
        for name in ("one-x", "two-x", "one-y", "two-y")
    ]

    assert codes == [1, 1, 0, 0]


async def test_a_stopped_container_leaves_no_timer(runtime: SimulatedRuntime, clock: Clock) -> None:
    status = await started(runtime, "seconds=60")
    await runtime.stop_container(status.key, timedelta(seconds=30))

    assert clock.timers == []


async def test_a_removed_pod_leaves_no_timer(runtime: SimulatedRuntime, clock: Clock) -> None:
    await started(runtime, "seconds=60,ignoreTerm=true")
    await runtime.remove_sandbox("pod-1")

    assert clock.timers == []
    assert await runtime.list() == []


async def test_log_lines_have_the_clock_s_time(runtime: SimulatedRuntime) -> None:
    status = await started(runtime, '{"log": "one\\ntwo"}')
    stamp = b"2026-01-02T03:04:05.000000000Z stdout F "

    assert (await runtime.read_log(status.key, 0, 1000)).data == stamp + b"one\n" + stamp + b"two\n"
