"""`jobplane agent`: makes the machine that it runs on a node. Settings become what the agent is told."""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_options import CaFile, DataDir, Devices, NodeName, Nodes, Runtime, RuntimeEndpoint, settings
from app.cli_process import appears, follow_parent, look_for_cycles_seldom, now, run_fast, until_told
from app.settings import Settings

if TYPE_CHECKING:
    from app.agent.device_sources import Inventory


def agent(
    server: Annotated[str | None, typer.Option(help="Where the API is: https://host:6443.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="File with this agent's token.")] = None,
    join_token: Annotated[
        str | None,
        typer.Option(help="From `jobplane token create`; needed once. Others on this machine may see it here."),
    ] = None,
    join_token_file: Annotated[Path | None, typer.Option(help="File with the same.")] = None,
    ca_file: CaFile = None,
    ca_hash: Annotated[
        str | None,
        typer.Option(help="sha256:… of the authority that signed the API's certificate, instead of its file."),
    ] = None,
    data_dir: DataDir = None,
    runtime: Runtime = None,
    runtime_endpoint: RuntimeEndpoint = None,
    nodes: Nodes = None,
    node_name: NodeName = None,
    devices: Devices = None,
) -> None:
    """Make this machine a node. It only dials out; ending the agent leaves its pods running.

    The first time with a join token, for which it gets a credential of its own; it keeps that in DATA_DIR/agent.
    """
    made = settings(
        server=server,
        token_file=token_file,
        join_token=join_token,
        join_token_file=join_token_file,
        ca_file=ca_file,
        ca_hash=ca_hash,
        data_dir=data_dir,
        runtime=runtime,
        runtime_endpoint=runtime_endpoint,
        nodes=nodes,
        node_name=node_name,
        devices=devices,
    )
    follow_parent()
    if made.runtime == "process":  # which uvloop would start three times slower
        look_for_cycles_seldom()
        asyncio.run(until_told(_agent(made)))
    else:
        run_fast(until_told(_agent(made)))


async def _agent(made: Settings) -> None:
    from app.agent.agent import Agent, AgentSettings
    from app.runtimes import make_runtime

    state = made.data_dir / "agent"
    state.mkdir(parents=True, exist_ok=True)
    for needed in (made.token_file, made.ca_file):
        await appears(needed)
    simulated = made.runtime == "simulated"
    names = _node_names(made, simulated)
    try:
        runtime = make_runtime(
            made.runtime, state, now, made.runtime_endpoint, names[0], cgroup=made.cgroup, pids=made.pids_limit
        )
    except ModuleNotFoundError as error:
        sys.exit(f"--runtime {made.runtime} needs more: pip install 'jobplane[{made.runtime}]' ({error})")
    inventory = _inventory(made, simulated)
    token, ca_file = await _credential(made, state, names)
    told = AgentSettings(
        server=made.server or made.url(),
        token=token,
        ca_file=ca_file,
        node_names=names,
        state_dir=state,
        capacity={"cpu": "64", "memory": "256Gi", "pods": "1000"} if simulated else {},
        devices=inventory,
        lease=timedelta(seconds=made.lease_seconds),
    )
    try:
        await Agent(told, runtime).run()
    finally:
        await runtime.close()


def _inventory(made: Settings, simulated: bool) -> "Inventory":
    from app.agent.device_sources import AUTO, NONE, DevicesError, inventory

    try:
        return inventory(NONE if simulated and made.devices == AUTO else made.devices)
    except DevicesError as error:
        sys.exit(f"--devices: {error}")


async def _credential(made: Settings, state: Path, names: tuple[str, ...]) -> tuple[str, Path | None]:
    """The agent's token, and the authority to trust: given, or got by joining."""
    from app.agent.join import JoinError, Terms, has_joined, join

    join_token = made.join_token.get_secret_value()
    if made.join_token_file:
        join_token = made.join_token_file.read_text().strip()
    if not join_token and (made.token_file or not has_joined(state)):
        return made.token_file.read_text().strip() if made.token_file else "", made.ca_file
    if len(names) > 1:
        sys.exit("a join token is good for one node, not for a fleet")
    terms = Terms(
        server=made.server or made.url(),
        node=names[0],
        state=state,
        join_token=join_token,
        ca_file=made.ca_file,
        ca_hash=made.ca_hash,
    )
    try:
        joined = await join(terms)
    except JoinError as error:
        sys.exit(str(error))
    return joined.token, joined.ca_file


def _node_names(made: Settings, simulated: bool) -> tuple[str, ...]:
    if simulated:
        return tuple(f"simulated-{number}" for number in range(made.nodes))
    return (made.node_name or os.uname().nodename.lower(),)
