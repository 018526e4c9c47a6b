"""Every setting, read once by the command line: flags over JOBPLANE_* variables over these defaults. Passed on as values."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.kinds.features import Features, parse
from app.runtimes import RuntimeName

ScoringStrategy = Literal["LeastAllocated", "MostAllocated"]
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Settings(BaseSettings):
    """Frozen; one instance a process."""

    model_config = SettingsConfigDict(env_prefix="JOBPLANE_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.jobplane").expanduser()
    database_url: SecretStr = SecretStr("")  # empty: `up` starts its own Postgres in data_dir
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 6443
    tls: bool = True  # False: for a proxy on this machine that ends TLS, so on a loopback address only
    advertise_url: str = ""  # where other API replicas reach this one; empty: at `host`, or this machine's own address
    server: str = ""  # where agents and the CLI find the API
    token_file: Path | None = None
    ca_file: Path | None = None
    join_token: SecretStr = SecretStr("")  # of an agent that has no credential of its own yet
    join_token_file: Path | None = None
    ca_hash: str = ""  # sha256:..., of the authority that an agent that joins is to trust
    runtime: RuntimeName = "process"
    runtime_endpoint: str = ""  # the container engine's socket; empty: the usual one of its kind
    cgroup: str = "auto"  # of the process runtime: auto, none, or a folder of cgroups v2 that the agent may write to
    pids_limit: Annotated[int, Field(ge=0)] = 0  # most processes of one container of the process runtime; 0: any number
    node_name: str = ""  # empty: the host's name
    nodes: Annotated[int, Field(ge=1, le=10_000)] = 1  # of the simulated runtime
    eviction_hard: str = ""  # what of the node must stay free: like memory.available<100Mi; none; empty: as a kubelet's
    shutdown_grace_period: str = "0s"  # in which an agent ends its pods on SIGTERM; 0s: they go on
    shutdown_grace_period_critical_pods: str = "0s"  # how much of it is for those with a priority of 2 billion and more
    tls_name: str = ""  # whom the API's certificate is for; empty: the host of `server`
    devices: str = "auto"  # of the node: auto (NVIDIA's GPUs), none, a file, or nvidia.com/gpu=/dev/nvidia0,...
    lease_seconds: Annotated[int, Field(ge=5, le=86400)] = (
        40  # of an agent's lease, which it renews four times as often
    )
    # Without a lease renewal for so long, a node counts as lost; never before its agent's lease is over and ten seconds more.
    node_grace_seconds: Annotated[float, Field(gt=0)] = 50
    history_hours: Annotated[float, Field(ge=0)] = 24  # how long old versions can be read and watched from
    event_ttl_seconds: Annotated[float, Field(gt=0)] = 3600  # how long an event is kept after it last happened
    log_ttl_hours: Annotated[float, Field(gt=0)] = 168  # how long a log is kept after its container has ended
    log_cap_mib: Annotated[float, Field(ge=1)] = 10  # of each run of a container the newest so many MiB are kept
    scoring_strategy: ScoringStrategy = "LeastAllocated"  # which nodes get pods first: the emptiest, or the fullest
    feature_gates: str = ""  # WorkloadWithJob=true
    log_level: str = "info"

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
    def log_cap(self) -> int:
        """In bytes."""
        return int(self.log_cap_mib * (1 << 20))

    @model_validator(mode="after")
    def _plain_only_here(self) -> Self:
        if not self.tls and self.host not in LOOPBACK:
            raise ValueError(f"without TLS the API listens on {' or '.join(sorted(LOOPBACK))} only, not on {self.host}")
        return self

    def url(self) -> str:
        """Where this process's API is reached from this machine."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::", ""} else self.host  # noqa: S104 - compared, not bound
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"
