"""Agent process: `jobplane agent` reads the settings and executes this program in its place; the pid stays.

Reading settings takes pydantic, typer and rich, which would cost a node 12 MiB for as long as its agent runs. This imports
none of them.
"""

import asyncio
import ctypes
import fcntl
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from app.agent.config import AgentConfig, decode
from app.main import log_output
from app.main.cli_errors import CommandError, ConfigError, ended, keep_last_words, keep_tracebacks_in, text_of
from app.main.cli_process import (
    follow_parent,
    has_parent,
    now,
    run_fast,
    run_until_signal,
    serving_metrics,
    wait_for_file,
)
from app.open_files import raise_limit
from app.runtimes import ProcessOptions, RuntimeChoice, RuntimeName, make_runtime
from app.runtimes.base import UnfitMachineError
from app.runtimes.choice import choose
from app.runtimes.engine.errors import EndpointError
from app.structured_logging import Fields, Logger
from jobplane.program import command

if TYPE_CHECKING:
    from app.agent.agent import Agent
    from app.agent.metrics import AgentMetrics
    from app.agent.node.device_sources import Inventory
    from app.runtimes.base import Runtime

_M_ARENA_MAX = -8  # of mallopt: most heaps that there may be; else each thread gets one

NOT_JOINED = (
    "this machine has not joined: run `jobplane token create` on the machine with the API, then run here the command that it "
    "prints (or pass the --data-dir with which this machine joined, or a --token-file)"
)
TRIMMED_EVERY = 10.0  # seconds
LOCK, LOCK_SECONDS, LOCK_PAUSE = "agent.lock", 2.0, 0.1  # the agent before may have been killed a moment ago
API_SECONDS, API_PAUSE = 30.0, 0.05  # for the API of the same `up` to listen
LOOPBACK = ("localhost", "127.0.0.1", "::1")

logger = Logger(__name__)


def node_names(runtime: RuntimeChoice, name: str, count: int) -> tuple[str, ...]:
    """The node's name; of a simulated fleet, `name` and a number for each of `count` nodes."""
    if runtime == "simulated":
        return tuple(f"{name or 'simulated'}-{number}" for number in range(count))
    return (name or os.uname().nodename.lower(),)


def exec_agent(config: AgentConfig) -> NoReturn:
    """Execute the agent's process in place of this one.

    The settings go through a file without a name, as some are secret. The old command line stays visible behind the new one.
    """
    os.execv(sys.executable, agent_command(hold(config), sys.argv[1:]))  # noqa: S606 - no shell is needed


def agent_command(config: int, shown: Sequence[str]) -> list[str]:
    """Return the command of the agent's process. `config`: what `hold` returned; `shown`: arguments to be seen behind it."""
    return [*command(__name__), str(config), "app.main.cli", *shown]


def hold(config: AgentConfig) -> int:
    """Return a descriptor from which the agent's process reads the settings. A pipe would take 64 KiB at most."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("agent-config")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, config.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    return descriptor


def main() -> None:
    """Entry point of the executed program: read the settings, and run the agent."""
    with open(int(sys.argv[1]), "rb") as file:
        config = decode(file.read())
    node: Fields = {} if config.is_simulated else {"node": config.node_names[0]}
    log_output.start(config.log_level, config.log_format, "agent", **node)
    keep_last_words()
    keep_tracebacks_in(config.state_dir.parent)
    sys.exit(ended(partial(_run_process, config)))


def _run_process(config: AgentConfig) -> None:
    follow_parent()
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    runtime = _choose_runtime(config)
    _spare_modules(runtime)
    if not config.is_simulated:  # uvloop starts processes three times slower, and needs 4 MiB
        raise_limit()
        asyncio.run(_run(config, runtime))
    else:
        run_fast(_run(config, runtime))


def _choose_runtime(config: AgentConfig) -> RuntimeName:
    if config.runtime != "auto":
        return config.runtime
    from app.runtimes.oci.machine import find_obstacle

    found = choose(config.state_dir, find_obstacle)
    logger.info("container runtime is chosen", runtime=found.runtime, reason=found.reason)
    return found.runtime


def _spare_modules(runtime: RuntimeName) -> None:
    """Keep modules out of memory that libraries load and never use."""
    # httpx: its own command line, and with that all of rich.
    cast("dict[str, Any]", sys.modules)["httpx._main"] = None
    if runtime == "cri":
        with suppress(ImportError):  # `_runtime` reports it
            from google.protobuf.internal import api_implementation

            # protobuf: its version in Python, for machines without the one in C.
            if api_implementation.Type() == "upb":
                name = "google.protobuf.internal.python_message"
                sys.modules[name] = ModuleType(name)


async def _run(config: AgentConfig, runtime: RuntimeName) -> None:
    running: list[Agent] = []

    async def shut_down() -> None:
        for each in running:
            await each.shut_down()

    trimming = asyncio.create_task(_trim())
    try:
        await run_until_signal(_run_agent(config, runtime, running), shut_down)
    finally:
        trimming.cancel()


async def _trim() -> None:
    """Return to the system, every few seconds, memory that ended pods have freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    while trim is not None:
        await asyncio.sleep(TRIMMED_EVERY)
        trim(0)


def _runtime(config: AgentConfig, name: RuntimeName) -> "Runtime":
    try:
        return make_runtime(
            name,
            config.state_dir,
            now,
            config.runtime_endpoint,
            config.node_names[0],
            ProcessOptions(config.cgroup, config.pids_limit, config.pod_uid_range),
        )
    except ModuleNotFoundError as error:
        raise ConfigError(f"--runtime {name} needs more packages: pip install 'jobplane[{name}]' ({error})") from error
    except UnfitMachineError as error:
        raise ConfigError(f"--runtime {name}: {error}") from error
    except EndpointError as error:
        raise ConfigError(f"--runtime-endpoint: {error}") from error


def _warn_without_tls(server: str) -> None:
    """Warn of plain HTTP, except to a loopback address, which no other machine can read."""
    url = urlsplit(server)
    if url.scheme == "http" and url.hostname not in LOOPBACK:
        logger.warning(
            "--server is plain HTTP: anyone on the network can read the agent's token and its pods' Secrets, and make it "
            "run anything; use https://",
            address=server,
        )


async def _run_agent(config: AgentConfig, name: RuntimeName, running: "list[Agent]") -> None:
    """Run the agent; `running` gets it once it is made."""
    _warn_without_tls(config.server)
    from app.agent.agent import Agent, RevokedError

    state = config.state_dir
    state.mkdir(parents=True, exist_ok=True)
    try:
        await lock_folder(state)
    except LockedError as error:  # the other agent may be about to end
        raise CommandError(str(error)) from error
    for needed in (config.token_file, config.ca_file):
        await wait_for_file(needed)
    fresh = {each.name for each in state.iterdir()} <= {LOCK}
    inventory = _inventory(config)
    _check_thresholds(config)
    runtime = _runtime(config, name)
    if has_parent():  # a part of `up`, which stops the API at the same time: there is no API to report a shutdown to
        config = replace(config, shutdown_grace_period=timedelta(), shutdown_grace_period_critical_pods=timedelta())
        await _wait_for_api(config.server)
    config = await _with_credential(config, fresh=fresh)
    metrics = _metrics(config)
    running.append(Agent(config, runtime, inventory=inventory, metrics=metrics))
    try:
        if metrics is None:
            await running[0].run()
        else:
            async with serving_metrics(config.metrics_address, metrics.registry):
                await running[0].run()
    except RevokedError as error:
        raise CommandError(str(error)) from error
    finally:
        await runtime.close()


async def _wait_for_api(server: str) -> None:
    """Wait for the API, beside which `up` starts the agent: what fails before is logged, and tried again seconds later.

    Returns in any case after a while. Until the API has listed the node's pods, an agent can do nothing with them.
    """
    at = urlsplit(server)
    with suppress(TimeoutError):
        async with asyncio.timeout(API_SECONDS):
            while not await _listens(at.hostname or "", at.port or 80):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(API_PAUSE)


async def _listens(host: str, port: int) -> bool:
    with suppress(OSError):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False


def _metrics(config: AgentConfig) -> "AgentMetrics | None":
    if not config.metrics_address:
        return None
    from app.agent.metrics import AgentMetrics

    return AgentMetrics(config.node_names)


class LockedError(Exception):
    """Another agent has the folder."""


async def lock_folder(folder: Path) -> None:
    """Keep the folder to this process for as long as it lives: two agents on one would run its pods twice."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(int(LOCK_SECONDS / LOCK_PAUSE)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(LOCK_PAUSE)
        else:
            return
    os.close(lock)
    raise LockedError(f"another agent runs on {folder}: a machine that is to be two nodes needs two --data-dir")


def _check_thresholds(config: AgentConfig) -> None:
    from app.agent.node.pressure import ThresholdsError, eviction_thresholds

    try:
        eviction_thresholds(config.eviction_hard)
    except ThresholdsError as error:
        raise ConfigError(f"--eviction-hard: {error}") from error


def _inventory(config: AgentConfig) -> "Inventory":
    from app.agent.node.device_sources import AUTO, NONE, DevicesError, inventory

    try:
        return inventory(NONE if config.is_simulated and config.devices == AUTO else config.devices)
    except DevicesError as error:
        raise ConfigError(f"--devices: {error}") from error


async def _with_credential(config: AgentConfig, *, fresh: bool) -> AgentConfig:
    """With the agent's token, and the authority to trust: those given, or those from joining.

    `fresh`: no agent has used the folder before.
    """
    from app.agent.node.join import JoinError, find_malformed, has_joined, join

    if config.join_token_file:
        config = replace(config, join_token=text_of(config.join_token_file))
    if not config.join_token and config.token_file:
        config = replace(config, token=text_of(config.token_file))
        if fresh:
            await _check_api(config)
        return config
    if not config.join_token and not has_joined(config.state_dir):
        raise ConfigError(NOT_JOINED)
    if len(config.node_names) > 1:
        raise ConfigError("a join token serves one node, not a simulated fleet: pass a --token-file")
    if fault := find_malformed(config):
        raise ConfigError(fault)
    try:
        joined = await join(config)
    except JoinError as error:
        raise ConfigError(str(error)) from error
    return replace(config, token=joined.token, ca_file=joined.ca_file)


async def _check_api(config: AgentConfig) -> None:
    """Raise ConfigError if the API can never be reached. An agent that has run before goes on trying: it must stop its pods."""
    from app.client.api import Api
    from app.client.connection_errors import remedy_now
    from app.machinery.errors import ApiError

    api = Api(config.server, config.token, config.ca_file, tls_name=config.tls_name)
    try:
        await api.request("GET", "/livez")
    except ApiError:
        pass
    except OSError as error:
        if advice := await remedy_now(config.server, error):
            raise ConfigError(advice) from error
    finally:
        await api.close()
