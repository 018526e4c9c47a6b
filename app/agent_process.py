"""The process that an agent is. `jobplane agent` reads the settings and becomes it: the program is replaced, the pid stays.

What reading them takes (pydantic, typer, rich) would cost a node 12 MiB for as long as its agent runs; this imports none of it.
"""

import asyncio
import ctypes
import os
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from app.cli_process import (
    appears,
    follow_parent,
    has_parent,
    log_from,
    look_for_cycles_seldom,
    now,
    run_fast,
    until_told,
)
from app.runtimes import RuntimeName, make_runtime
from app.runtimes.engine_errors import EndpointError

if TYPE_CHECKING:
    from app.agent.agent import Agent
    from app.agent.device_sources import Inventory
    from app.agent.pressure import Thresholds
    from app.runtimes.base import Runtime

_M_ARENA_MAX = -8  # of mallopt: how many heaps there may be, else one for every thread that comes by


TRIMMED_EVERY = 10.0  # seconds


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
        """The node's, or those of a pretended fleet."""
        if self.simulated:
            return tuple(f"simulated-{number}" for number in range(self.nodes))
        return (self.node_name or os.uname().nodename.lower(),)


def become(orders: Orders) -> NoReturn:
    """What is secret goes by a pipe. The old command line stays to be seen behind the new one."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.write(writing, msgspec.json.encode(orders))
    os.close(writing)
    python = [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", __name__]
    os.execv(sys.executable, [*python, str(reading), "app.cli", *sys.argv[1:]])  # noqa: S606 - no shell is needed


def main() -> None:
    """What is executed in the end: reads its orders, and obeys them."""
    with open(int(sys.argv[1]), "rb") as pipe:
        orders = msgspec.json.decode(pipe.read(), type=Orders)
    log_from(orders.log_level)
    follow_parent()
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    _spare_modules(orders.runtime)
    if not orders.simulated:  # uvloop starts processes three times slower, and needs 4 MiB
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
        sys.exit(f"--runtime {orders.runtime} needs more: pip install 'jobplane[{orders.runtime}]' ({error})")
    except EndpointError as error:
        sys.exit(f"--runtime-endpoint: {error}")


async def _agent(orders: Orders, running: "list[Agent]") -> None:
    """Puts the agent into `running` once it is."""
    from app.agent.agent import Agent, AgentSettings, RevokedError
    from app.agent.shutdown import Graces

    state = Path(orders.data_dir) / "agent"
    state.mkdir(parents=True, exist_ok=True)
    await _claimed(state)
    for needed in (orders.token_file, orders.ca_file):
        await appears(_path(needed))
    inventory, thresholds = _inventory(orders), _thresholds(orders)
    runtime = _runtime(orders, state)
    # As a part of `up`, which ends the API at the same time, there is nobody to tell of a shutdown.
    graces = Graces() if has_parent() else Graces(orders.shutdown, orders.shutdown_critical)
    token, ca_file = await _credential(orders, state)
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
        sys.exit(str(error))
    finally:
        await runtime.close()


async def _claimed(state: Path) -> None:
    from app.agent.claim import ClaimedError, claim

    try:
        await claim(state)
    except ClaimedError as error:
        sys.exit(str(error))


def _thresholds(orders: Orders) -> "Thresholds":
    from app.agent.pressure import THRESHOLDS, ThresholdsError, thresholds

    try:
        return thresholds(orders.eviction_hard) if orders.eviction_hard else THRESHOLDS
    except ThresholdsError as error:
        sys.exit(f"--eviction-hard: {error}")


def _inventory(orders: Orders) -> "Inventory":
    from app.agent.device_sources import AUTO, NONE, DevicesError, inventory

    try:
        return inventory(NONE if orders.simulated and orders.devices == AUTO else orders.devices)
    except DevicesError as error:
        sys.exit(f"--devices: {error}")


async def _credential(orders: Orders, state: Path) -> tuple[str, Path | None]:
    """The agent's token, and the authority to trust: given, or got by joining."""
    from app.agent.join import JoinError, Terms, has_joined, join

    join_token, ca_file = orders.join_token, _path(orders.ca_file)
    if orders.join_token_file:
        join_token = Path(orders.join_token_file).read_text().strip()
    if not join_token and (orders.token_file or not has_joined(state)):
        return Path(orders.token_file).read_text().strip() if orders.token_file else "", ca_file
    if len(orders.names) > 1:
        sys.exit("a join token is good for one node, not for a fleet")
    terms = Terms(
        server=orders.server,
        node=orders.names[0],
        state=state,
        join_token=join_token,
        ca_file=ca_file,
        ca_hash=orders.ca_hash,
        tls_name=orders.tls_name,
    )
    try:
        joined = await join(terms)
    except JoinError as error:
        sys.exit(str(error))
    return joined.token, joined.ca_file


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


if __name__ == "__main__":
    main()
