"""The process that an agent is. `jobplane agent` reads the settings and becomes it: the program is replaced, the pid stays.

What reading them takes (pydantic, typer, rich) would cost a node 12 MiB for as long as its agent runs; this imports none of it.
"""

import asyncio
import ctypes
import logging
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

from app.main.cli_errors import CommandError, ConfigError, ended, keep_last_words, keep_tracebacks_in, text_of
from app.main.cli_process import (
    appears,
    follow_parent,
    has_parent,
    log_from,
    look_for_cycles_seldom,
    now,
    run_fast,
    until_told,
)
from app.open_files import raise_limit
from app.runtimes import RuntimeName, make_runtime
from app.runtimes.engine.errors import EndpointError

if TYPE_CHECKING:
    from app.agent.agent import Agent
    from app.agent.node.device_sources import Inventory
    from app.agent.node.pressure import Thresholds
    from app.runtimes.base import Runtime

_M_ARENA_MAX = -8  # of mallopt: how many heaps there may be, else one for every thread that comes by


NOT_JOINED = (
    "this machine has not joined: run `jobplane token create` on the machine with the API, and here the command that it "
    "prints (or pass the --data-dir with which this one joined, or a --token-file)"
)
TRIMMED_EVERY = 10.0  # seconds
LOOPBACK = ("localhost", "127.0.0.1", "::1")

log = logging.getLogger("app.main.agent_process")  # as a program its name is __main__


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that are an agent's."""

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

    @property
    def simulated(self) -> bool:
        return self.runtime == "simulated"

    @property
    def names(self) -> tuple[str, ...]:
        return node_names(self.runtime, self.node_name, self.nodes)


def node_names(runtime: RuntimeName, name: str, count: int) -> tuple[str, ...]:
    """The node's name; of a simulated fleet, `name` with a number behind it for each of `count` nodes."""
    if runtime == "simulated":
        return tuple(f"{name or 'simulated'}-{number}" for number in range(count))
    return (name or os.uname().nodename.lower(),)


def become(orders: Orders) -> NoReturn:
    """What is secret goes by a pipe. The old command line stays to be seen behind the new one."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.write(writing, msgspec.json.encode(orders))
    os.close(writing)
    python = [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", __name__]
    os.execv(sys.executable, [*python, str(reading), "app.main.cli", *sys.argv[1:]])  # noqa: S606 - no shell is needed


def main() -> None:
    """What is executed in the end: reads its orders, and obeys them."""
    with open(int(sys.argv[1]), "rb") as pipe:
        orders = msgspec.json.decode(pipe.read(), type=Orders)
    log_from(orders.log_level)
    keep_last_words()
    keep_tracebacks_in(Path(orders.data_dir))
    sys.exit(ended(partial(_work, orders)))


def _work(orders: Orders) -> None:
    follow_parent()
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    _spare_modules(orders.runtime)
    if not orders.simulated:  # uvloop starts processes three times slower, and needs 4 MiB
        raise_limit()
        look_for_cycles_seldom()
        asyncio.run(_run(orders))
    else:
        run_fast(_run(orders))


def _spare_modules(runtime: RuntimeName) -> None:
    """Keeps out what others would load and never use."""
    # httpx: its own command line, and with that all of rich.
    cast("dict[str, Any]", sys.modules)["httpx._main"] = None
    if runtime == "cri":
        with suppress(ImportError):  # is told later, in plain words
            from google.protobuf.internal import api_implementation

            # protobuf: its second self in Python, for machines without the first.
            if api_implementation.Type() == "upb":
                name = "google.protobuf.internal.python_message"
                sys.modules[name] = ModuleType(name)


async def _run(orders: Orders) -> None:
    running: list[Agent] = []

    async def shut_down() -> None:
        for each in running:
            await each.shut_down()

    trimming = asyncio.create_task(_trim())
    try:
        await until_told(_agent(orders, running), shut_down)
    finally:
        trimming.cancel()


async def _trim() -> None:
    """Now and then, gives back to the machine what pods that came and went have left free."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    while trim is not None:
        await asyncio.sleep(TRIMMED_EVERY)
        trim(0)


def _runtime(orders: Orders, state: Path) -> "Runtime":
    try:
        return make_runtime(
            orders.runtime,
            state,
            now,
            orders.runtime_endpoint,
            orders.names[0],
            cgroup=orders.cgroup,
            pids=orders.pids_limit,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--runtime {orders.runtime} needs more: pip install 'jobplane[{orders.runtime}]' ({error})"
        ) from error
    except EndpointError as error:
        raise ConfigError(f"--runtime-endpoint: {error}") from error


def _warn_without_tls(server: str) -> None:
    """Warn of plain HTTP, but not to a loopback address: no other machine can read that."""
    url = urlsplit(server)
    if url.scheme == "http" and url.hostname not in LOOPBACK:
        log.warning(
            "--server %s is without TLS: anyone between this agent and the API can read its token and its pods' Secrets, "
            "and tell it what to run. Use https://",
            server,
        )


async def _agent(orders: Orders, running: "list[Agent]") -> None:
    """Puts the agent into `running` once it is."""
    _warn_without_tls(orders.server)
    from app.agent.agent import Agent, AgentSettings, RevokedError
    from app.agent.node.shutdown import Graces

    state = Path(orders.data_dir) / "agent"
    state.mkdir(parents=True, exist_ok=True)
    await _claimed(state)
    for needed in (orders.token_file, orders.ca_file):
        await appears(_path(needed))
    fresh = {each.name for each in state.iterdir()} <= {"agent.lock"}
    inventory, thresholds = _inventory(orders), _thresholds(orders)
    runtime = _runtime(orders, state)
    # As a part of `up`, which ends the API at the same time, there is nobody to tell of a shutdown.
    graces = Graces() if has_parent() else Graces(orders.shutdown, orders.shutdown_critical)
    token, ca_file = await _credential(orders, state, fresh=fresh)
    told = AgentSettings(
        server=orders.server,
        token=token,
        ca_file=ca_file,
        node_names=orders.names,
        state_dir=state,
        capacity={"cpu": "64", "memory": "256Gi", "pods": "1000"} if orders.simulated else {},
        tls_name=orders.tls_name,
        devices=inventory,
        thresholds=thresholds,
        shutdown=graces,
        lease=orders.lease,
    )
    running.append(Agent(told, runtime))
    try:
        await running[0].run()
    except RevokedError as error:
        raise CommandError(str(error)) from error
    finally:
        await runtime.close()


async def _claimed(state: Path) -> None:
    from app.agent.node.folder_lock import ClaimedError, claim

    try:
        await claim(state)
    except ClaimedError as error:  # that one may be about to end
        raise CommandError(str(error)) from error


def _thresholds(orders: Orders) -> "Thresholds":
    from app.agent.node.pressure import THRESHOLDS, ThresholdsError, thresholds

    try:
        return thresholds(orders.eviction_hard) if orders.eviction_hard else THRESHOLDS
    except ThresholdsError as error:
        raise ConfigError(f"--eviction-hard: {error}") from error


def _inventory(orders: Orders) -> "Inventory":
    from app.agent.node.device_sources import AUTO, NONE, DevicesError, inventory

    try:
        return inventory(NONE if orders.simulated and orders.devices == AUTO else orders.devices)
    except DevicesError as error:
        raise ConfigError(f"--devices: {error}") from error


async def _credential(orders: Orders, state: Path, *, fresh: bool) -> tuple[str, Path | None]:
    """The agent's token, and the authority to trust: given, or got by joining. `fresh`: no agent ran on the folder before."""
    from app.agent.node.join import JoinConfig, JoinError, has_joined, join, malformed

    join_token, ca_file = orders.join_token, _path(orders.ca_file)
    if orders.join_token_file:
        join_token = text_of(Path(orders.join_token_file))
    if not join_token and orders.token_file:
        token = text_of(Path(orders.token_file))
        if fresh:
            await _contacted(orders.server, token, ca_file, orders.tls_name)
        return token, ca_file
    if not join_token and not has_joined(state):
        raise ConfigError(NOT_JOINED)
    if len(orders.names) > 1:
        raise ConfigError("a join token is good for one node, not for a fleet")
    terms = JoinConfig(
        server=orders.server,
        node=orders.names[0],
        state=state,
        join_token=join_token,
        ca_file=ca_file,
        ca_hash=orders.ca_hash,
        tls_name=orders.tls_name,
    )
    if fault := malformed(terms):
        raise ConfigError(fault)
    try:
        joined = await join(terms)
    except JoinError as error:
        raise ConfigError(str(error)) from error
    return joined.token, joined.ca_file


async def _contacted(server: str, token: str, ca_file: Path | None, tls_name: str) -> None:
    """Ends an agent that can never be heard. One that has run before goes on trying: its pods are fenced by it."""
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
