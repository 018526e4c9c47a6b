"""Runtime `simulated`, for tests and benchmarks: no processes, all in memory, thousands of starts a second.

One instance may serve many nodes. The pod's annotation `jobplane.dev/simulate` says what a container does.
The value is a JSON object, or `key=value` pairs with commas or blanks between them. Without it a container succeeds at
once.

    seconds     how long it runs; 0 if not given
    exitCode    how it ends, 0 to 255; 0 if not given
    log         text that it writes to stdout when it starts
    message     its termination message
    failFirst   how many starts fail, with exitCode or else 1, before all others succeed. Counted over restarts and over
                pods of the same owner: those whose names differ only behind the last `-`
    ignoreTerm  true: SIGTERM does nothing, so that only SIGKILL ends it
    startError  it does not start, and this is why

Example: `{"seconds": 2.5, "exitCode": 3}`, or the same as `seconds=2.5 exitCode=3`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Protocol
from zlib import crc32

import msgspec
from msgspec import Meta

from app.runtimes.bare import Imageless, Streamless
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    ContainerUsage,
    LogChunk,
    RuntimeInfo,
    Sandbox,
    SandboxSpec,
    StartError,
)
from app.runtimes.logs.log_format import LINE_LIMIT, moment, stamp
from app.runtimes.wakeups import Hints

TERMINATED, KILLED = 143, 137
ANNOTATION = "jobplane.dev/simulate"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Simulation(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Value of the annotation; see above."""

    seconds: Annotated[float, Meta(ge=0, le=10**8)] = 0.0
    exit_code: Annotated[int, Meta(ge=0, le=255)] = 0
    log: str = ""
    message: str = ""
    fail_first: Annotated[int, Meta(ge=0)] = 0
    ignore_term: bool = False
    start_error: str = ""

    def code(self, starts: int) -> int:
        """The exit code of the start that `starts` others came before."""
        if not self.fail_first:
            return self.exit_code
        return self.exit_code or 1 if starts < self.fail_first else 0


@lru_cache(maxsize=1024)
def parse(text: str) -> Simulation:
    """Raises ValueError."""
    if not text.strip():
        return Simulation()
    if text.lstrip().startswith("{"):
        return msgspec.json.decode(text, type=Simulation)
    pairs = [pair.partition("=") for pair in text.replace(",", " ").split()]
    if unreadable := [name for name, equals, _ in pairs if not equals]:
        raise ValueError(f"neither a JSON object nor key=value pairs: {unreadable[0]}")
    return msgspec.convert({name: value for name, _, value in pairs}, type=Simulation, strict=False)


class Timer(Protocol):
    """What `later` returns; asyncio's TimerHandle is one."""

    def cancel(self) -> None: ...


Later = Callable[[float, Callable[[], None]], Timer]


@dataclass(eq=False, slots=True)
class _Run:
    simulation: Simulation
    status: ContainerStatus
    exit_code: int = 0
    log: bytes = b""
    timer: Timer | None = None
    ended: asyncio.Event | None = None  # made by the first who waits


@dataclass(eq=False, slots=True)
class _Pod:
    text: str
    owner: tuple[str, str]
    runs: dict[ContainerKey, _Run] = field(default_factory=dict)


class SimulatedRuntime(Imageless, Streamless):
    """See `base.Runtime`. `later(seconds, call)` sets timers; without it the running loop does."""

    def __init__(self, now: Callable[[], datetime], later: Later | None = None) -> None:
        self._now = now
        self._later = later
        self._pods: dict[str, _Pod] = {}
        self._starts: Counter[tuple[str, str, str]] = Counter()
        self._events, self._logged = Hints(), Hints()

    async def info(self) -> RuntimeInfo:
        return RuntimeInfo(name="simulated", version="1.0", survives_agent=False, runs_commands=False)

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        if spec.pod_uid not in self._pods:
            owner = spec.namespace, spec.name.rpartition("-")[0] or spec.name
            self._pods[spec.pod_uid] = _Pod(spec.annotations.get(ANNOTATION, ""), owner)
        return Sandbox(spec.pod_uid)

    async def sandboxes(self) -> Sequence[Sandbox]:
        return [Sandbox(uid) for uid in self._pods]

    async def start_container(self, spec: ContainerSpec) -> None:
        pod = self._pods.get(spec.key.pod_uid)
        if pod is None:
            raise StartError(f'pod "{spec.key.pod_uid}" has no sandbox')
        if spec.key in pod.runs:
            return
        run = _Run(Simulation(), _running_status(spec.key, self._now()))
        pod.runs[spec.key] = run
        try:
            run.simulation = _simulation(pod.text)
        except StartError as error:
            self._end(run, error.exit_code, "StartError", str(error))
            raise
        self._begin(run, pod)

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        run = self._run(key)
        if run is None or run.status.state == "exited":
            return
        if grace <= timedelta() or not run.simulation.ignore_term:
            self._end(run, TERMINATED if grace > timedelta() else KILLED)
            return
        killer = self._timer(grace.total_seconds(), lambda: self._end(run, KILLED))
        try:
            run.ended = run.ended or asyncio.Event()
            await run.ended.wait()
        finally:
            killer.cancel()

    async def remove_container(self, key: ContainerKey) -> None:
        run = self._run(key)
        if run is not None and run.status.state == "exited":
            del self._pods[key.pod_uid].runs[key]

    async def remove_sandbox(self, pod_uid: str) -> None:
        pod = self._pods.pop(pod_uid, None)
        for run in pod.runs.values() if pod else ():
            self._end(run, KILLED)

    async def list(self) -> list[ContainerStatus]:
        return [run.status for pod in self._pods.values() for run in pod.runs.values()]

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        run = self._run(key)
        return run.status if run else None

    async def usage(self) -> Sequence[ContainerUsage]:
        now = self._now()
        return [
            _usage(run.status, now)
            for pod in self._pods.values()
            for run in pod.runs.values()
            if run.status.state == "running"
        ]

    def events(self) -> AsyncIterator[ContainerKey]:
        return self._events.read()

    def log_events(self) -> AsyncIterator[ContainerKey]:
        return self._logged.read()

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        run = self._run(key)
        return LogChunk(offset, run.log[offset : offset + max(0, limit)] if run else b"")

    def release_log(self, key: ContainerKey, offset: int) -> None:
        """It takes no room."""

    async def close(self) -> None:
        for pod in self._pods.values():
            for run in pod.runs.values():
                _cancel(run)
        self._events.close()
        self._logged.close()

    def _begin(self, run: _Run, pod: _Pod) -> None:
        simulation, key = run.simulation, run.status.key
        run.exit_code = simulation.exit_code
        if simulation.fail_first:
            start = (*pod.owner, key.name)
            run.exit_code = simulation.code(self._starts[start])
            self._starts[start] += 1
        if simulation.log:
            run.log = _log(simulation.log, self._now())
            self._logged.add(key)
        if simulation.seconds:
            run.timer = self._timer(simulation.seconds, lambda: self._end(run, run.exit_code))
            self._events.add(key)
        else:
            self._end(run, run.exit_code)

    def _end(self, run: _Run, code: int, reason: str = "", message: str = "") -> None:
        started = run.status
        if started.state == "exited":
            return
        _cancel(run)
        run.status = ContainerStatus(
            key=started.key,
            state="exited",
            id=started.id,
            started_at=started.started_at,
            finished_at=_second(self._now()),
            exit_code=code,
            reason=reason or ("Error" if code else "Completed"),
            message=message,
            termination_message=run.simulation.message,
        )
        if run.ended:
            run.ended.set()
        self._events.add(started.key)

    def _run(self, key: ContainerKey) -> _Run | None:
        pod = self._pods.get(key.pod_uid)
        return pod.runs.get(key) if pod else None

    def _timer(self, seconds: float, call: Callable[[], None]) -> Timer:
        return (self._later or asyncio.get_running_loop().call_later)(seconds, call)


def _simulation(text: str) -> Simulation:
    try:
        simulation = parse(text)
    except ValueError as error:
        raise StartError(f"annotation {ANNOTATION}: {error}") from error
    if simulation.start_error:
        raise StartError(simulation.start_error)
    return simulation


def _running_status(key: ContainerKey, now: datetime) -> ContainerStatus:
    id_ = f"{key.pod_uid}-{key.name}-{key.attempt}"
    return ContainerStatus(key=key, state="running", id=id_, started_at=_second(now))


def _usage(status: ContainerStatus, now: datetime) -> ContainerUsage:
    """Between 10 and 200 thousandths of a core and 8 and 71 MiB, the same for one container all the time."""
    number = crc32(status.id.encode())
    seconds = (now - status.started_at).total_seconds() if status.started_at else 0.0
    return ContainerUsage(status.key, int(seconds * 1_000_000 * (10 + number % 191)), (8 + number % 64) << 20)


def _log(text: str, now: datetime) -> bytes:
    when = moment((now - _EPOCH) // timedelta(microseconds=1) * 1000)
    raw, records = (text.removesuffix("\n") + "\n").encode(errors="replace"), b""
    while raw:
        piece = stamp(raw[:LINE_LIMIT], "stdout", when, last=True)
        records += piece.records
        raw = raw[piece.used :]
    return records


def _cancel(run: _Run) -> None:
    if run.timer is not None:
        run.timer.cancel()
        run.timer = None


def _second(moment_: datetime) -> datetime:
    return moment_.replace(microsecond=0)
