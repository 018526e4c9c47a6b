"""Settings, read once by the command line: a flag, else a JOBPLANE_* variable, else the default. Passed on as values.

The descriptions here are the help of the flags (`app.main.cli_options`) and docs/settings.md (scripts/settings_page.py).
"""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.machinery.cidr import parse_cidr
from app.machinery.feature_gates import Features, parse
from app.metrics.address import parse_address
from app.plans.admission.pod_security.namespace_policy import (
    PRIVILEGED,
    Level,
    PodSecurityConfiguration,
    default_policy,
)
from app.runtimes import RuntimeChoice
from app.runtimes.process.pod_users import DEFAULT_RANGE, parse_range
from app.structured_logging import LogFormat

PREFIX = "JOBPLANE_"
ScoringStrategy = Literal["LeastAllocated", "MostAllocated"]
AuditMode = Literal["batch", "blocking"]
Program = Literal["api", "controllers", "agent"]
LEVELS = ("debug", "info", "warning", "error", "critical")
SIGNING_ALGS = tuple(f"{family}{bits}" for family in ("RS", "ES", "PS") for bits in (256, 384, 512))
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
UNSPECIFIED = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def about(text: str, unset: str = "", *read_by: Program, **limits: Any) -> Any:
    """A setting's description.

    unset:   what holds if the setting is left empty; other defaults speak for themselves.
    read_by: the programs that read a setting for which they have no flag.
    limits:  as for pydantic's Field: ge=0.
    """
    return Field(description=text, json_schema_extra={"unset": unset, "read_by": list(read_by)}, **limits)


class Settings(BaseSettings):
    """Frozen; one instance a process. Every path in it is absolute."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", validate_default=True)

    data_dir: Annotated[
        Path, about("Data folder: tokens, certificates, the database of `jobplane up`, and the agent's state.")
    ] = Path("~/.jobplane")
    database_url: Annotated[
        SecretStr,
        about(
            "URL of a Postgres >= 14: postgresql://user:password@host/database.",
            "`jobplane up` starts its own in DATA_DIR",
        ),
    ] = SecretStr("")
    host: Annotated[str, about("Address that the API listens on.")] = "127.0.0.1"
    port: Annotated[int, about("Port that the API listens on.", ge=0, le=65535)] = 6443
    tls: Annotated[
        bool, about("Serve HTTPS. With --no-tls the API serves plain HTTP, for a TLS proxy on this machine.")
    ] = True
    advertise_url: Annotated[
        str, about("URL at which other API replicas reach this one.", "from --host, or this machine's address")
    ] = ""
    server: Annotated[
        str, about("URL of the API: https://host:6443.", "https://127.0.0.1:6443, or as DATA_DIR/kubeconfig says")
    ] = ""
    token_file: Annotated[Path | None, about("File with the token for the API.", "none")] = None
    ca_file: Annotated[
        Path | None,
        about("File with the CA certificate of the API.", "the CA certificates of this machine"),
    ] = None
    join_token: Annotated[
        SecretStr,
        about(
            "Join token from `jobplane token create`, needed once. Visible in the process list; --join-token-file is not.",
            "none",
        ),
    ] = SecretStr("")
    join_token_file: Annotated[Path | None, about("File with the join token.", "none")] = None
    ca_hash: Annotated[str, about("Hash of the API's CA certificate, sha256:..., instead of --ca-file.", "none")] = ""
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
        int, about("Process limit of each container of the process runtime; 0: no limit.", "", "agent", ge=0)
    ] = 0
    pod_uid_range: Annotated[
        str,
        about(
            "Range of user ids for pods of namespaces that are not privileged, on the process runtime of an agent that is root.",
            "",
            "agent",
        ),
    ] = DEFAULT_RANGE
    pod_security: Annotated[
        Level | Literal[""],
        about(
            "Pod Security level of namespaces without labels of their own: privileged, baseline or restricted. Pods of "
            "namespaces that are not privileged are isolated on the process runtime. Without it, they are privileged on "
            "the process runtime, and get no more than baseline on nodes with cri and docker. "
            "The API and the controllers need the same.",
            "none",
            "api",
            "controllers",
        ),
    ] = ""
    node_name: Annotated[
        str,
        about(
            "Name of the node; of simulated nodes, the prefix of their names: x-0, x-1, ...",
            "this host's name; simulated",
        ),
    ] = ""
    nodes: Annotated[int, about("Number of simulated nodes (simulated runtime).", ge=1, le=10_000)] = 1
    agent_nodes: Annotated[
        str,
        about(
            "Nodes that DATA_DIR/agent.token may act as, comma-separated; * ends a prefix. `jobplane up` sets it.",
            "this host, or --node-name",
            "api",
        ),
    ] = ""
    tls_san: Annotated[
        str,
        about(
            "Names and addresses to add to the API's certificate, comma-separated. --host and this machine's are always in it.",
            "none",
        ),
    ] = ""
    oidc_issuer_url: Annotated[
        str, about("OIDC: URL of the identity provider, https://..., whose ID tokens the API accepts.", "none")
    ] = ""
    oidc_client_id: Annotated[str, about("OIDC: client ID that must be an audience of the tokens.", "none")] = ""
    oidc_username_claim: Annotated[str, about("OIDC: claim that is the user name.")] = "sub"
    oidc_username_prefix: Annotated[
        str,
        about(
            "OIDC: prefix of user names; - for none.",
            "the issuer's URL and #; none if the claim is email",
        ),
    ] = ""
    oidc_groups_claim: Annotated[str, about("OIDC: claim with the user's groups.", "none")] = ""
    oidc_groups_prefix: Annotated[str, about("OIDC: prefix of groups.", "none")] = ""
    oidc_required_claim: Annotated[
        str, about("OIDC: claims that tokens must have, name=value, comma-separated.", "none")
    ] = ""
    oidc_ca_file: Annotated[
        Path | None,
        about("OIDC: file with the CA certificate of the identity provider.", "the CA certificates of this machine"),
    ] = None
    oidc_signing_algs: Annotated[
        str, about("OIDC: accepted signature algorithms, comma-separated: RS256, ES256, PS256, ..384 and ..512.")
    ] = "RS256"
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
    tls_name: Annotated[str, about("Host name to check the API's certificate for.", "the host in --server")] = ""
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
    pod_cidr: Annotated[
        str,
        about(
            "IPv4 network for pods, such as 10.244.0.0/16: each node gets a /24 of it, and agents of the runtimes cri and "
            "oci set up the network and routes between nodes.",
            "none",
            "api",
            "controllers",
        ),
    ] = ""
    node_grace_seconds: Annotated[
        float,
        about(
            "Seconds without a lease renewal after which a node is lost; at least 10 s more than its lease.",
            "",
            "controllers",
            gt=0,
        ),
    ] = 50
    history_hours: Annotated[
        float, about("Retention of old versions of objects, to list and watch from, in hours.", "", "controllers", ge=0)
    ] = 24
    secret_history_minutes: Annotated[
        float,
        about(
            "Retention of deleted and replaced versions of Secrets, in minutes.",
            "",
            "controllers",
            ge=1,
        ),
    ] = 5
    secrets_key_file: Annotated[
        Path | None,
        about(
            "File of master keys that encrypt Secrets in the database: base64 of 32 bytes a line, the newest first.",
            "Secrets are plain text",
            "api",
            "controllers",
        ),
    ] = None
    secrets_key_command: Annotated[
        str,
        about(
            "Command in place of the file: `COMMAND wrap` and `COMMAND unwrap` call a key service (stdin to stdout).",
            "none",
            "api",
            "controllers",
        ),
    ] = ""
    event_ttl_seconds: Annotated[
        float, about("Retention of events after they last happened, in seconds.", "", "controllers", gt=0)
    ] = 3600
    log_ttl_hours: Annotated[
        float, about("Retention of logs after their container has ended, in hours.", "", "controllers", gt=0)
    ] = 168
    record_ttl_hours: Annotated[
        float, about("Retention of the records of Jobs after they were deleted, in hours.", "", "controllers", gt=0)
    ] = 720
    log_cap_mib: Annotated[
        float,
        about(
            "Log size limit of each run of a container, in MiB; the newest lines are kept.",
            "",
            "api",
            "controllers",
            ge=1,
        ),
    ] = 10
    cluster_signing_hours: Annotated[
        float,
        about(
            "Longest life of client certificates that the controllers sign, in hours.",
            "",
            "controllers",
            gt=0,
            le=87600,
        ),
    ] = 720
    client_certificate: Annotated[
        bool,
        about(
            "Ask for a client certificate for the node, show it to the API besides the token, and renew it.",
            "",
            "agent",
        ),
    ] = False
    require_node_certificates: Annotated[
        bool,
        about(
            "Refuse agents whose connection shows no client certificate of their node (JOBPLANE_CLIENT_CERTIFICATE).",
            "",
            "api",
        ),
    ] = False
    webhooks_to_this_host: Annotated[
        bool, about("Allow webhooks to send to loopback addresses of the controllers' machine.", "", "controllers")
    ] = False
    scoring_strategy: Annotated[
        ScoringStrategy,
        about(
            "Scoring strategy of the scheduler: the emptiest node first (LeastAllocated) or the fullest (MostAllocated)."
        ),
    ] = "LeastAllocated"
    feature_gates: Annotated[
        str,
        about(
            "Feature gates that are off by default in Kubernetes, comma-separated, such as WorkloadWithJob=true.",
            "none",
        ),
    ] = ""
    pod_security_exempt: Annotated[
        str,
        about(
            "Namespaces that no Pod Security level applies to, comma-separated. The API and the controllers need the same.",
            "none",
            "api",
            "controllers",
        ),
    ] = "kube-system"
    metrics_address: Annotated[
        str,
        about(
            "Address, host:port, at which controllers or an agent serve /metrics and /readyz as plain HTTP to everybody; "
            "with `jobplane up` the agent takes the next port. The API serves its own with its other paths.",
            "none",
        ),
    ] = ""
    otlp_endpoint: Annotated[
        str,
        about(
            "URL of an OpenTelemetry collector, such as http://127.0.0.1:4318, which gets a trace of each Job that ends.",
            "none",
            "controllers",
        ),
    ] = ""
    otlp_headers: Annotated[
        SecretStr,
        about("Headers for the collector, name=value, comma-separated and percent-encoded.", "none", "controllers"),
    ] = SecretStr("")
    audit_log_path: Annotated[
        str,
        about("File of the audit log; - for standard output, none for no audit.", "DATA_DIR/audit/audit.log", "api"),
    ] = ""
    audit_policy_file: Annotated[
        Path | None,
        about(
            "File with the audit policy, kind Policy of audit.k8s.io/v1.",
            "metadata of writes, denials and secrets",
            "api",
        ),
    ] = None
    audit_log_mode: Annotated[
        AuditMode,
        about(
            "While the audit log cannot be written and its buffer is full: batch loses events, blocking refuses requests.",
            "",
            "api",
        ),
    ] = "batch"
    audit_log_maxsize: Annotated[
        int, about("Size at which the audit log is rotated, in MiB.", "", "api", ge=1, le=1 << 20)
    ] = 100
    audit_log_maxbackup: Annotated[
        int, about("Number of rotated audit logs that are kept; 0: no limit.", "", "api", ge=0)
    ] = 4
    audit_log_maxage: Annotated[
        int, about("Days after which rotated audit logs are deleted; 0: no limit.", "", "api", ge=0, le=36_500)
    ] = 90
    log_level: Annotated[
        str,
        about("Lowest level of log lines: debug, info, warning, error or critical.", "", "api", "controllers", "agent"),
    ] = "info"
    log_format: Annotated[LogFormat, about("Format of log lines: text, or json, one object a line.")] = "text"

    @field_validator(
        "data_dir",
        "token_file",
        "ca_file",
        "join_token_file",
        "secrets_key_file",
        "oidc_ca_file",
        "audit_policy_file",
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        """Children, shims and mounts have other working directories than the one that a path was given in."""
        try:
            return path and path.expanduser().absolute()
        except RuntimeError:
            raise ValueError(f"{path}: cannot expand ~ to a home folder: pass an absolute path") from None

    @field_validator("pod_uid_range")
    @classmethod
    def _user_range(cls, text: str) -> str:
        parse_range(text)
        return text

    @field_validator("pod_cidr")
    @classmethod
    def _network(cls, text: str) -> str:
        if text:
            parse_cidr(text)
        return text

    @field_validator("server")
    @classmethod
    def _whole_url(cls, url: str) -> str:
        try:
            whole = urlsplit(url).port != 0 and bool(urlsplit(url).hostname) and not re.search(r"\s", url)
        except ValueError:  # of a port, or of an address in brackets
            whole = False
        if url and not (whole and url.startswith(("https://", "http://"))):
            raise ValueError(f"{url} is not a URL such as https://192.0.2.10:6443")
        return url

    @field_validator("audit_log_path")
    @classmethod
    def _absolute_unless_word(cls, path: str) -> str:
        return path if path in ("", "-", "none") else str(cls._absolute(Path(path)))

    @field_validator("otlp_endpoint")
    @classmethod
    def _collector(cls, url: str) -> str:
        if url and not (url.startswith(("http://", "https://")) and urlsplit(url).hostname):
            raise ValueError("not a URL such as http://127.0.0.1:4318")
        return url

    @field_validator("oidc_issuer_url")
    @classmethod
    def _issuer(cls, url: str) -> str:
        if url and not (url.startswith("https://") and urlsplit(url).hostname):
            raise ValueError("not a URL such as https://id.example.com: an identity provider must use https")
        return url

    @field_validator("oidc_signing_algs")
    @classmethod
    def _asymmetric_only(cls, text: str) -> str:
        if unknown := [each for each in items(text) if each not in SIGNING_ALGS]:
            raise ValueError(f"{unknown[0]} is not accepted: pass some of {', '.join(SIGNING_ALGS)}")
        if not items(text):
            raise ValueError("no algorithm: pass RS256, or what the identity provider signs with")
        return text

    @field_validator("oidc_required_claim")
    @classmethod
    def _named_values(cls, text: str) -> str:
        if unnamed := [each for each in items(text) if not each.partition("=")[0] or "=" not in each]:
            raise ValueError(f"{unnamed[0]} is not a claim such as hd=example.com")
        return text

    @field_validator("database_url")
    @classmethod
    def _of_postgres(cls, url: SecretStr) -> SecretStr:
        """Says nothing of what was given: it may hold a password."""
        if url.get_secret_value() and not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("not a Postgres URL such as postgresql://user:password@host/database")
        return url

    @field_validator("metrics_address")
    @classmethod
    def _host_and_port(cls, address: str) -> str:
        if address:
            parse_address(address)
        return address

    @property
    def next_metrics_address(self) -> str:
        """The same host with the next port, for the agent of `up`; empty if numbers are not served."""
        if not self.metrics_address:
            return ""
        port = parse_address(self.metrics_address)[1]
        return f"{self.metrics_address.rpartition(':')[0]}:{port + 1 if port else 0}"

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, level: str) -> str:
        if level.lower() not in LEVELS:
            raise ValueError(f"{level} is not a level: pass one of {', '.join(LEVELS)}")
        return level.lower()

    @field_validator("feature_gates")
    @classmethod
    def _known_gates_only(cls, text: str) -> str:
        parse(text)
        return text

    @property
    def features(self) -> Features:
        """The feature gates that are on."""
        return parse(self.feature_gates)

    @property
    def pod_security_configuration(self) -> PodSecurityConfiguration:
        """What is asked of the pods of namespaces without labels, and which namespaces are exempt."""
        exempt = (each.strip() for each in self.pod_security_exempt.split(","))
        default = default_policy(self.pod_security or PRIVILEGED)
        return PodSecurityConfiguration(default, frozenset(filter(None, exempt)), bool(self.pod_security))

    @property
    def log_cap(self) -> int:
        """In bytes."""
        return int(self.log_cap_mib * (1 << 20))

    @model_validator(mode="after")
    def _issuer_with_client(self) -> Self:
        if bool(self.oidc_issuer_url) != bool(self.oidc_client_id):
            raise ValueError("--oidc-issuer-url and --oidc-client-id need each other")
        return self

    @model_validator(mode="after")
    def _certificates_need_tls(self) -> Self:
        if self.require_node_certificates and not self.tls:
            raise ValueError("--no-tls and JOBPLANE_REQUIRE_NODE_CERTIFICATES exclude each other")
        return self

    @model_validator(mode="after")
    def _plain_only_here(self) -> Self:
        if not self.tls and self.host not in LOOPBACK:
            raise ValueError(f"--no-tls needs a --host of {', '.join(sorted(LOOPBACK))}, not {self.host}")
        return self

    @property
    def own_nodes(self) -> tuple[str, ...]:
        """The nodes, or a prefix of them with *, that the agent of `up` speaks for."""
        if self.agent_nodes.strip(" ,"):
            return tuple(each for name in self.agent_nodes.split(",") if (each := name.strip()))
        if self.runtime == "simulated":
            return (f"{self.node_name or 'simulated'}-*",)
        return (self.node_name or os.uname().nodename.lower(),)

    @property
    def certified_hosts(self) -> tuple[str, ...]:
        """Names and addresses that the API's certificate is for, besides this machine's."""
        return (self.host, *(each.strip() for each in self.tls_san.split(",") if each.strip()))

    def url(self) -> str:
        """Return where this process's API is reached from this machine."""
        host = "127.0.0.1" if self.host in UNSPECIFIED else self.host
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"


def items(text: str) -> tuple[str, ...]:
    """Split a comma-separated setting."""
    return tuple(each for part in text.split(",") if (each := part.strip()))


def variable(name: str) -> str:
    """The environment variable that sets it."""
    return f"{PREFIX}{name.upper()}"


def shown_default(name: str) -> str:
    """A setting's default as help and docs show it."""
    field = Settings.model_fields[name]
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, bool):
        default = str(default).lower()
    return _extra(field)["unset"] if default in ("", None) else str(default)


def read_by(name: str) -> list[Program]:
    """The programs that read it though they have no flag for it."""
    programs: list[Program] = _extra(Settings.model_fields[name])["read_by"]
    return programs


def _extra(field: FieldInfo) -> dict[str, Any]:
    found = field.json_schema_extra
    return found if isinstance(found, dict) else {}
