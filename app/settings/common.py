"""Settings that several programs read: the folder, the database, logs, feature gates, Pod Security, keys of Secrets."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.machinery.feature_gates import Features, parse
from app.metrics.address import parse_address
from app.plans.admission.pod_security.namespace_policy import (
    PRIVILEGED,
    Level,
    PodSecurityConfiguration,
    default_policy,
)
from app.settings.fields import PREFIX, about
from app.structured_logging import LogFormat

LEVELS = ("debug", "info", "warning", "error", "critical")


class CommonSettings(BaseSettings):
    """What each record of settings begins with. Frozen; every path in it is absolute."""

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
    log_level: Annotated[
        str,
        about("Lowest level of log lines: debug, info, warning, error or critical.", "", "api", "controllers", "agent"),
    ] = "info"
    log_format: Annotated[LogFormat, about("Format of log lines: text, or json, one object a line.")] = "text"
    metrics_address: Annotated[
        str,
        about(
            "Address, host:port, at which controllers or an agent serve /metrics and /readyz as plain HTTP to everybody; "
            "with `jobplane up` the agent takes the next port. The API serves its own with its other paths.",
            "none",
        ),
    ] = ""
    feature_gates: Annotated[
        str,
        about(
            "Feature gates that are off by default in Kubernetes, comma-separated, such as GenericWorkload=true.",
            "none",
        ),
    ] = ""
    pod_security: Annotated[
        Level | Literal[""],
        about(
            "Pod Security level of namespaces without labels of their own: privileged, baseline or restricted. Pods of "
            "namespaces that are not privileged are isolated on the process runtime. Without it, they are privileged on "
            "the process runtime, and get no more than baseline on nodes with cri, docker and oci. "
            "The API and the controllers need the same.",
            "none",
            "api",
            "controllers",
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
    secrets_key_lead_seconds: Annotated[
        float,
        about(
            "Seconds after `jobplane secrets rotate` until the new data key is used; every process reads new keys four times "
            "as often. The API and the controllers need the same.",
            "",
            "api",
            "controllers",
            ge=1,
        ),
    ] = 20
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

    @field_validator("data_dir", "secrets_key_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return absolute(path)

    @field_validator("database_url")
    @classmethod
    def _of_postgres(cls, url: SecretStr) -> SecretStr:
        """Says nothing of what was given: it may hold a password."""
        if url.get_secret_value() and not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("not a Postgres URL such as postgresql://user:password@host/database")
        return url

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, level: str) -> str:
        if level.lower() not in LEVELS:
            raise ValueError(f"{level} is not a level: pass one of {', '.join(LEVELS)}")
        return level.lower()

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


def absolute(path: Path | None) -> Path | None:
    """Children, shims and mounts have other working directories than the one that a path was given in."""
    try:
        return path and path.expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{path}: cannot expand ~ to a home folder: pass an absolute path") from None
