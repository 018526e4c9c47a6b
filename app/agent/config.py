"""Configuration of an agent: one record from the command line's options to the agent and its parts.

`app.main.cli_agent` makes it, `app.main.agent_process` completes it with the credential, and `Agent` runs with it.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec

from app.runtimes import RuntimeChoice
from app.runtimes.process.pod_users import DEFAULT_RANGE
from app.structured_logging import LogFormat


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `jobplane agent`, and what follows from them.

    node_names: one, or those of a simulated fleet.
    state_dir:  folder of the agent: DATA_DIR/agent.
    token:      its credential: that in `token_file`, or got by joining.
    ca_file:    authority to trust; found by `ca_hash` if it is not at hand.
    tls_name:   name in the API's certificate, if it is not the host in `server`.
    capacity:   overrides what the machine has, such as {"cpu": "8", "pods": "500"}.
    address:    the nodes' InternalIP; found by itself if empty.
    starts:     pods that may be starting at once; 0: two a core.
    client_certificate: ask for a client certificate, and show it to the API.
    metrics_address: where numbers are served, host:port; empty: nowhere.
    lease:      how long a node's lease lasts; after it, pods are stopped when their tolerations end.
    shutdown_grace_period: time for pods to end when the agent is told to end; none: they run on. Of this,
                shutdown_grace_period_critical_pods is for critical ones.
    """

    server: str
    node_names: tuple[str, ...]
    state_dir: Path
    token: str = ""
    token_file: Path | None = None
    join_token: str = ""
    join_token_file: Path | None = None
    ca_file: Path | None = None
    ca_hash: str = ""
    tls_name: str = ""
    runtime: RuntimeChoice = "process"
    runtime_endpoint: str = ""
    cgroup: str = "auto"
    pids_limit: int = 0
    pod_uid_range: str = DEFAULT_RANGE
    devices: str = "none"
    eviction_hard: str = ""
    shutdown_grace_period: timedelta = timedelta()
    shutdown_grace_period_critical_pods: timedelta = timedelta()
    lease: timedelta = timedelta(seconds=40)
    log_level: str = "info"
    log_format: LogFormat = "text"
    capacity: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    address: str = ""
    starts: int = 0
    client_certificate: bool = False
    metrics_address: str = ""

    @property
    def is_simulated(self) -> bool:
        return self.runtime == "simulated"

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=str)


def decode(data: bytes) -> AgentConfig:
    return msgspec.json.decode(data, type=AgentConfig, dec_hook=lambda type_, text: type_(text))  # of paths
