"""`jobplane agent`: makes this machine a node. Reads the settings and executes the agent's process."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from app.main.agent_process import AgentConfig, exec_agent
from app.main.cli_nodes import span
from app.main.cli_options import (
    CaFile,
    DataDir,
    Devices,
    Logs,
    NodeName,
    Nodes,
    Runtime,
    RuntimeEndpoint,
    Server,
    TokenFile,
    option,
    read_settings,
)


def agent(
    server: Server = None,
    token_file: TokenFile = None,
    join_token: Annotated[str | None, option("join_token")] = None,
    join_token_file: Annotated[Path | None, option("join_token_file")] = None,
    ca_file: CaFile = None,
    ca_hash: Annotated[str | None, option("ca_hash")] = None,
    data_dir: DataDir = None,
    runtime: Runtime = None,
    runtime_endpoint: RuntimeEndpoint = None,
    nodes: Nodes = None,
    node_name: NodeName = None,
    devices: Devices = None,
    eviction_hard: Annotated[str | None, option("eviction_hard")] = None,
    shutdown_grace_period: Annotated[str | None, option("shutdown_grace_period")] = None,
    shutdown_grace_period_critical_pods: Annotated[str | None, option("shutdown_grace_period_critical_pods")] = None,
    tls_name: Annotated[str | None, option("tls_name")] = None,
    log_format: Logs = None,
) -> None:
    """Run the agent, which makes this machine a node. It only dials out; its pods keep running when it stops.

    Pass a join token the first time: the agent exchanges it for a credential of its own, which it keeps in DATA_DIR/agent.
    """
    made = read_settings(
        "agent",
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
        log_format=log_format,
    )
    exec_agent(
        AgentConfig(
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
            log_format=made.log_format,
        )
    )


def _text(path: Path | None) -> str | None:
    return str(path) if path else None
