"""The agent's process. `jobplane agent` reads the settings and executes this program in its place; the pid stays.

Reading settings takes pydantic, typer and rich, which would cost a node 12 MiB for as long as its agent runs. This imports
none of them.
"""

import asyncio
import ctypes
import os
import sys
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import urlsplit

import msgspec

from app.main import log_output
from app.main.cli_errors import CommandError, ConfigError, ended, keep_last_words, keep_tracebacks_in, text_of
from app.main.cli_process import (
    follow_parent,
    has_parent,
    look_for_cycles_seldom,
    now,
    run_fast,
    run_until_signal,
    wait_for_file,
)
from app.open_files import raise_limit
from app.runtimes import RuntimeName, make_runtime
from app.runtimes.engine.errors import EndpointError
from app.structured_logging import Fields, LogFormat, Logger

if TYPE_CHECKING:
    from app.agent.agent import Agent
    from app.agent.node.device_sources import Inventory
    from app.agent.node.pressure import Thresholds
    from app.runtimes.base import Runtime

_M_ARENA_MAX = -8  # of mallopt: most heaps that there may be; else each thread gets one

NOT_JOINED = (
    "this machine has not joined: run `jobplane token create` on the machine with the API, then run here the command that it "
    "prints (or pass the --data-dir with which this machine joined, or a --token-file)"
)
TRIMMED_EVERY = 10.0  # seconds
LOOPBACK = ("localhost", "127.0.0.1", "::1")

logger = Logger("app.main.agent_process")  # as a program its name is __main__


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an agent, as `jobplane agent` hands them over."""

    server: str
    token_file: str | None
    join_token: str
    join_token_file: str | None
    ca_file: str | None
    ca_hash: str
    tls_name: str
    data_dir: str
    runtime: RuntimeName
    runtime_endpoint: str
    cgroup: str
    pids_limit: int
    nodes: int
    node_name: str
    devices: str
    eviction_hard: str
    shutdown: timedelta
    shutdown_critical: timedelta
    lease: timedelta
    log_level: str
    log_format: LogFormat

    @property
    def simulated(self) -> bool:
        return self.runtime == "simulated"

    @property
    def names(self) -> tuple[str, ...]:
        return node_names(self.runtime, self.node_name, self.nodes)


def node_names(runtime: RuntimeName, name: str, count: int) -> tuple[str, ...]:
    """The node's name; of a simulated fleet, `name` and a number for each of `count` nodes."""
    if runtime == "simulated":
        return tuple(f"{name or 'simulated'}-{number}" for number in range(count))
    return (name or os.uname().nodename.lower(),)


def exec_agent(config: AgentConfig) -> NoReturn:
    """Execute the agent's process in place of this one.

    The settings go through a pipe, as some are secret. The old command line stays visible behind the new one.
    """
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.write(writing, msgspec.json.encode(config))
    os.close(writing)
    python = [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", __name__]
    os.execv(sys.executable, [*python, str(reading), "app.main.cli", *sys.argv[1:]])  # noqa: S606 - no shell is needed


def main() -> None:
    """Entry point of the executed program: read the settings from the pipe, and run the agent."""
    with open(int(sys.argv[1]), "rb") as pipe:
        config = msgspec.json.decode(pipe.read(), type=AgentConfig)
    node: Fields = {} if config.simulated else {"node": config.names[0]}
    log_output.start(config.log_level, config.log_format, "agent", **node)
    keep_last_words()
    keep_tracebacks_in(Path(config.data_dir))
    sys.exit(ended(partial(_run_process, config)))


def _run_process(config: AgentConfig) -> None:
    follow_parent()
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    _spare_modules(config.runtime)
    if not config.simulated:  # uvloop starts processes three times slower, and needs 4 MiB
        raise_limit()
        look_for_cycles_seldom()
        asyncio.run(_run(config))
    else:
        run_fast(_run(config))


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


async def _run(config: AgentConfig) -> None:
    running: list[Agent] = []

    async def shut_down() -> None:
        for each in running:
            await each.shut_down()

    trimming = asyncio.create_task(_trim())
    try:
        await run_until_signal(_run_agent(config, running), shut_down)
    finally:
        trimming.cancel()


async def _trim() -> None:
    """Return to the system, every few seconds, memory that ended pods have freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    while trim is not None:
        await asyncio.sleep(TRIMMED_EVERY)
        trim(0)


def _runtime(config: AgentConfig, state: Path) -> "Runtime":
    try:
        return make_runtime(
            config.runtime,
            state,
            now,
            config.runtime_endpoint,
            config.names[0],
            cgroup=config.cgroup,
            pids=config.pids_limit,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--runtime {config.runtime} needs more packages: pip install 'jobplane[{config.runtime}]' ({error})"
        ) from error
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


async def _run_agent(config: AgentConfig, running: "list[Agent]") -> None:
    """Run the agent; `running` gets it once it is made."""
    _warn_without_tls(config.server)
    from app.agent.agent import Agent, AgentSettings, RevokedError
    from app.agent.node.shutdown import Graces

    state = Path(config.data_dir) / "agent"
    state.mkdir(parents=True, exist_ok=True)
    await _claim(state)
    for needed in (config.token_file, config.ca_file):
        await wait_for_file(_path(needed))
    fresh = {each.name for each in state.iterdir()} <= {"agent.lock"}
    inventory, thresholds = _inventory(config), _thresholds(config)
    runtime = _runtime(config, state)
    # As a part of `up`, which stops the API at the same time, an agent has no API to report a shutdown to.
    graces = Graces() if has_parent() else Graces(config.shutdown, config.shutdown_critical)
    token, ca_file = await _credential(config, state, fresh=fresh)
    settings = AgentSettings(
        server=config.server,
        token=token,
        ca_file=ca_file,
        node_names=config.names,
        state_dir=state,
        capacity={"cpu": "64", "memory": "256Gi", "pods": "1000"} if config.simulated else {},
        tls_name=config.tls_name,
        devices=inventory,
        thresholds=thresholds,
        shutdown=graces,
        lease=config.lease,
    )
    running.append(Agent(settings, runtime))
    try:
        await running[0].run()
    except RevokedError as error:
        raise CommandError(str(error)) from error
    finally:
        await runtime.close()


async def _claim(state: Path) -> None:
    from app.agent.node.folder_lock import ClaimedError, claim

    try:
        await claim(state)
    except ClaimedError as error:  # the other agent may be about to end
        raise CommandError(str(error)) from error


def _thresholds(config: AgentConfig) -> "Thresholds":
    from app.agent.node.pressure import THRESHOLDS, ThresholdsError, thresholds

    try:
        return thresholds(config.eviction_hard) if config.eviction_hard else THRESHOLDS
    except ThresholdsError as error:
        raise ConfigError(f"--eviction-hard: {error}") from error


def _inventory(config: AgentConfig) -> "Inventory":
    from app.agent.node.device_sources import AUTO, NONE, DevicesError, inventory

    try:
        return inventory(NONE if config.simulated and config.devices == AUTO else config.devices)
    except DevicesError as error:
        raise ConfigError(f"--devices: {error}") from error


async def _credential(config: AgentConfig, state: Path, *, fresh: bool) -> tuple[str, Path | None]:
    """The agent's token, and the authority to trust: those given, or those from joining.

    `fresh`: no agent has used the folder before.
    """
    from app.agent.node.join import JoinConfig, JoinError, has_joined, join, malformed

    join_token, ca_file = config.join_token, _path(config.ca_file)
    if config.join_token_file:
        join_token = text_of(Path(config.join_token_file))
    if not join_token and config.token_file:
        token = text_of(Path(config.token_file))
        if fresh:
            await _check_api(config.server, token, ca_file, config.tls_name)
        return token, ca_file
    if not join_token and not has_joined(state):
        raise ConfigError(NOT_JOINED)
    if len(config.names) > 1:
        raise ConfigError("a join token serves one node, not a simulated fleet: pass a --token-file")
    join_config = JoinConfig(
        server=config.server,
        node=config.names[0],
        state=state,
        join_token=join_token,
        ca_file=ca_file,
        ca_hash=config.ca_hash,
        tls_name=config.tls_name,
    )
    if fault := malformed(join_config):
        raise ConfigError(fault)
    try:
        joined = await join(join_config)
    except JoinError as error:
        raise ConfigError(str(error)) from error
    return joined.token, joined.ca_file


async def _check_api(server: str, token: str, ca_file: Path | None, tls_name: str) -> None:
    """Raise ConfigError if the API can never be reached. An agent that has run before goes on trying: it must stop its pods."""
    from app.client.api import Api
    from app.client.connection_errors import remedy_now
    from app.machinery.errors import ApiError

    api = Api(server, token, ca_file, tls_name=tls_name)
    try:
        await api.request("GET", "/livez")
    except ApiError:
        pass
    except OSError as error:
        if advice := await remedy_now(server, error):
            raise ConfigError(advice) from error
    finally:
        await api.close()


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


if __name__ == "__main__":
    main()
