"""`jobplane agent`: makes the machine that it runs on a node. Settings become what the agent is told."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from app.agent_process import Orders, become
from app.cli_nodes import span
from app.cli_options import CaFile, DataDir, Devices, NodeName, Nodes, Runtime, RuntimeEndpoint, settings


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
    eviction_hard: Annotated[
        str | None,
        typer.Option(
            help="What must stay free, or pods have to go: none, or like memory.available<100Mi. "
            "[default: as a kubelet's]"
        ),
    ] = None,
    shutdown_grace_period: Annotated[
        str | None, typer.Option(help="On SIGTERM, end the pods within this time, such as 60s. [default: they go on]")
    ] = None,
    shutdown_grace_period_critical_pods: Annotated[
        str | None, typer.Option(help="How much of that is for critical pods, which go last. [default: 0s]")
    ] = None,
    tls_name: Annotated[
        str | None, typer.Option(help="Whom the API's certificate is for. [default: the host in --server]")
    ] = None,
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
        eviction_hard=eviction_hard,
        shutdown_grace_period=shutdown_grace_period,
        shutdown_grace_period_critical_pods=shutdown_grace_period_critical_pods,
        tls_name=tls_name,
    )
    become(
        Orders(
            server=made.server or made.url(),
            token_file=_text(made.token_file),
            join_token=made.join_token.get_secret_value(),
            join_token_file=_text(made.join_token_file),
            ca_file=_text(made.ca_file),
            ca_hash=made.ca_hash,
            tls_name=made.tls_name,
            data_dir=str(made.data_dir),
            runtime=made.runtime,
            runtime_endpoint=made.runtime_endpoint,
            cgroup=made.cgroup,
            pids_limit=made.pids_limit,
            nodes=made.nodes,
            node_name=made.node_name,
            devices=made.devices,
            eviction_hard=made.eviction_hard,
            shutdown=span(made.shutdown_grace_period, "--shutdown-grace-period"),
            shutdown_critical=span(made.shutdown_grace_period_critical_pods, "--shutdown-grace-period-critical-pods"),
            lease=timedelta(seconds=made.lease_seconds),
            log_level=made.log_level,
        )
    )


def _text(path: Path | None) -> str | None:
    return str(path) if path else None
