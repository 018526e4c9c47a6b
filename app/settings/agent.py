"""Settings of agents, and of commands that call the API: the server and its trust, joining, the runtime, the node."""

import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator

from app.runtimes import RuntimeChoice
from app.runtimes.process.pod_users import DEFAULT_RANGE, parse_range
from app.settings.common import CommonSettings, absolute
from app.settings.fields import about

NOT_A_SERVER_URL = "{} is not a URL such as https://192.0.2.10:6443"


def is_server_url(url: str) -> bool:
    """Return whether a URL names an API: HTTP or HTTPS, with a host and a valid port, if any."""
    try:
        is_whole = urlsplit(url).port != 0 and bool(urlsplit(url).hostname) and not re.search(r"\s", url)
    except ValueError:  # of a port, or of an address in brackets
        return False
    return is_whole and url.startswith(("https://", "http://"))


class AgentSettings(CommonSettings):
    """Settings of `jobplane agent`."""

    server: Annotated[
        str, about("URL of the API: https://host:6443.", "https://127.0.0.1:6443, or as DATA_DIR/kubeconfig says")
    ] = ""
    token_file: Annotated[Path | None, about("File with the token for the API.", "none")] = None
    ca_file: Annotated[
        Path | None,
        about("File with the CA certificate of the API.", "the CA certificates of this machine"),
    ] = None
    tls_name: Annotated[str, about("Host name to check the API's certificate for.", "the host in --server")] = ""
    join_token: Annotated[
        SecretStr,
        about(
            "Join token from `jobplane token create`, needed once. Visible in the process list; --join-token-file is not.",
            "none",
        ),
    ] = SecretStr("")
    join_token_file: Annotated[Path | None, about("File with the join token.", "none")] = None
    ca_hash: Annotated[str, about("Hash of the API's CA certificate, sha256:..., instead of --ca-file.", "none")] = ""
    client_certificate: Annotated[
        bool,
        about(
            "Ask for a client certificate for the node, show it to the API besides the token, and renew it.",
            "",
            "agent",
        ),
    ] = False
    node_name: Annotated[
        str,
        about(
            "Name of the node; of simulated nodes, the prefix of their names: x-0, x-1, ...",
            "this host's name; simulated",
        ),
    ] = ""
    nodes: Annotated[int, about("Number of simulated nodes (simulated runtime).", ge=1, le=10_000)] = 1
    runtime: Annotated[
        RuntimeChoice,
        about("Container runtime. auto: oci where its programs are, else process; as before with its data folder."),
    ] = "process"
    runtime_endpoint: Annotated[
        str,
        about(
            "Socket of the container engine; for oci, the folder of images.",
            "for cri unix:///run/containerd/containerd.sock; for docker DOCKER_HOST or unix:///var/run/docker.sock; "
            "for oci DATA_DIR/agent/images",
        ),
    ] = ""
    cgroup: Annotated[
        str,
        about(
            "Cgroup v2 folder for containers of the process runtime: auto, none, or a folder that the agent can write to.",
            "",
            "agent",
        ),
    ] = "auto"
    pids_limit: Annotated[
        int, about("Limit of the number of processes (pids) of each container; 0: no limit.", "", "agent", ge=0)
    ] = 0
    pod_uid_range: Annotated[
        str,
        about(
            "Range of user ids for pods of namespaces that are not privileged, on the process runtime of an agent that is root.",
            "",
            "agent",
        ),
    ] = DEFAULT_RANGE
    devices: Annotated[
        str,
        about("Devices that the node offers: auto (NVIDIA's GPUs), none, a file, or nvidia.com/gpu=/dev/nvidia0,..."),
    ] = "auto"
    lease_seconds: Annotated[
        int,
        about(
            "Lease duration of the node, in seconds; the agent renews the lease four times as often.",
            "",
            "agent",
            ge=5,
            le=86400,
        ),
    ] = 40
    eviction_hard: Annotated[
        str,
        about(
            "Evict pods when less than this is free, such as memory.available<100Mi; or none.",
            "the kubelet's thresholds",
        ),
    ] = ""
    shutdown_grace_period: Annotated[
        str, about("Time in which SIGTERM stops the node's pods, such as 60s; 0s: pods keep running.")
    ] = "0s"
    shutdown_grace_period_critical_pods: Annotated[
        str, about("Last part of the shutdown grace period, for critical pods only (priority >= 2000000000).")
    ] = "0s"

    @field_validator("token_file", "ca_file", "join_token_file")
    @classmethod
    def _absolute_credential(cls, path: Path | None) -> Path | None:
        return absolute(path)

    @field_validator("pod_uid_range")
    @classmethod
    def _user_range(cls, text: str) -> str:
        parse_range(text)
        return text

    @field_validator("server")
    @classmethod
    def _whole_url(cls, url: str) -> str:
        if url and not is_server_url(url):
            raise ValueError(NOT_A_SERVER_URL.format(url))
        return url
