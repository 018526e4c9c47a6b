"""`jobplane agent`: makes this machine a node. Reads the settings and executes the agent's process.

`jobplane up` starts that process itself, as it has read the settings already.
"""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from app.agent.config import AgentConfig
from app.main.agent_process import exec_agent, node_names
from app.main.cli_nodes import span
from app.main.cli_options import (
    CaFile,
    DataDir,
    Devices,
    Logs,
    MetricsAddress,
    NodeName,
    Nodes,
    Runtime,
    RuntimeEndpoint,
    Server,
    TokenFile,
    option,
    read_settings,
)
from app.settings import Settings

SIMULATED_CAPACITY = {"cpu": "64", "memory": "256Gi", "pods": "1000"}


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
    metrics_address: MetricsAddress = None,
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
        metrics_address=metrics_address,
        log_format=log_format,
    )
    exec_agent(agent_config(made))


def agent_config(made: Settings) -> AgentConfig:
    """Return what the agent's process is told of the settings. Raises BadParameter for what is no duration."""
    return AgentConfig(
        server=made.server or made.url(),
        node_names=node_names(made.runtime, made.node_name, made.nodes),
        state_dir=made.data_dir / "agent",
        token_file=made.token_file,
        join_token=made.join_token.get_secret_value(),
        join_token_file=made.join_token_file,
        ca_file=made.ca_file,
        ca_hash=made.ca_hash,
        tls_name=made.tls_name,
        runtime=made.runtime,
        runtime_endpoint=made.runtime_endpoint,
        cgroup=made.cgroup,
        pids_limit=made.pids_limit,
        pod_uid_range=made.pod_uid_range,
        devices=made.devices,
        eviction_hard=made.eviction_hard,
        shutdown_grace_period=span(made.shutdown_grace_period, "--shutdown-grace-period"),
        shutdown_grace_period_critical_pods=span(
            made.shutdown_grace_period_critical_pods, "--shutdown-grace-period-critical-pods"
        ),
        lease=timedelta(seconds=made.lease_seconds),
        log_level=made.log_level,
        log_format=made.log_format,
        client_certificate=made.client_certificate,
        metrics_address=made.metrics_address,
        capacity=SIMULATED_CAPACITY if made.runtime == "simulated" else {},
    )


def agent_config_of_up(made: Settings) -> AgentConfig:
    """Return the same for the agent of `jobplane up`, whose API is on this machine."""
    api = {
        "server": made.url(),
        "token_file": made.data_dir / "agent.token",
        "ca_file": made.data_dir / "tls" / "ca.crt",
        "tls_name": "",
        "metrics_address": made.next_metrics_address,
    }
    return agent_config(made.model_copy(update=api))
