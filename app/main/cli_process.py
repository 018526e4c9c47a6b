"""Process control of long-running commands: signals, ending with the parent, garbage collection."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.main.cli_errors import ConfigError
from app.open_files import raise_limit
from app.structured_logging import Logger

if TYPE_CHECKING:
    from app.metrics.health_checks import Check
    from app.metrics.registry import MetricsRegistry

logger = Logger(__name__)
LOOK_SECONDS = 5.0 if sys.platform == "linux" else 1.0  # between looks at the parent; Linux sends a signal
PARENT = "JOBPLANE_PARENT"


def now() -> datetime:
    return datetime.now(UTC)


def run_fast(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, for processes that serve."""
    import uvloop

    raise_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


async def run_until_signal(work: Coroutine[Any, Any, None], first: Callable[[], Awaitable[None]] | None = None) -> None:
    """Run `work` until it returns or a signal cancels it. The first SIGTERM runs `first` before it cancels."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []

    async def end() -> None:
        try:
            await first() if first else None
        finally:
            task.cancel()

    def terminate() -> None:
        if ending:
            ending[0].cancel()
            task.cancel()
        else:
            ending.append(loop.create_task(end()))

    loop.add_signal_handler(signal.SIGINT, task.cancel)
    loop.add_signal_handler(signal.SIGTERM, terminate)
    following = loop.create_task(_end_with_parent(task))
    try:
        await task
    except asyncio.CancelledError:
        logger.info("stopping")
    finally:
        following.cancel()


async def _end_with_parent(task: "asyncio.Future[None]") -> None:
    """Cancel the task when the parent has ended, where no signal tells, or one was lost."""
    if not has_parent():
        return
    while os.getppid() == _parent():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(LOOK_SECONDS)
    while not task.done():
        task.cancel()
        await asyncio.sleep(1.0)


def follow_parent() -> None:
    """End with the supervisor, even if it is killed: on Linux by a signal, elsewhere `run_until_signal` polls."""
    if not has_parent():
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != _parent():
        raise SystemExit(1)


def _parent() -> int:
    return int(os.environ[PARENT])


def has_parent() -> bool:
    """Return whether `jobplane up` started this process."""
    return bool(os.environ.get(PARENT))


async def wait_for_file(path: Path | None) -> None:
    """Wait for a file of the API, before which `up` starts the agent and the controllers. Without `up` it must exist."""
    if path is not None and not has_parent() and not path.exists():
        raise ConfigError(f"{path} does not exist: pass another path")
    while path is not None and not path.exists():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.05)


@asynccontextmanager
async def serving_metrics(
    address: str, metrics: "MetricsRegistry", ready: "Sequence[Check] | None" = None
) -> AsyncIterator[None]:
    """Serve numbers and probes at `address` while the context is open; nothing if it is empty. Raises ConfigError."""
    if not address:
        yield
        return
    from app.metrics.health_checks import PING
    from app.metrics.listener import ListenError, listening

    try:
        async with listening(address, metrics, ready or (PING,)):
            yield
    except ListenError as error:
        raise ConfigError(f"--metrics-address or JOBPLANE_METRICS_ADDRESS: {error}") from error
