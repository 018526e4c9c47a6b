"""Every setting, read once by the command line: flags over JOBPLANE_* variables over these defaults. Passed on as values."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.kinds.features import Features, parse

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
RuntimeName = Literal["process", "simulated"]


class Settings(BaseSettings):
    """Frozen; one instance a process."""

    model_config = SettingsConfigDict(env_prefix="JOBPLANE_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.jobplane").expanduser()
    database_url: SecretStr = SecretStr("")  # empty: `up` starts its own Postgres in data_dir
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 6443
    tls: bool = True  # False: for a proxy on this machine that ends TLS, so on a loopback address only
    server: str = ""  # where agents and the CLI find the API
    token_file: Path | None = None
    ca_file: Path | None = None
    runtime: RuntimeName = "process"
    node_name: str = ""  # empty: the host's name
    nodes: Annotated[int, Field(ge=1, le=10_000)] = 1  # of the simulated runtime
    node_grace_seconds: Annotated[float, Field(gt=0)] = 50  # without a lease renewal for so long, a node counts as lost
    history_hours: Annotated[float, Field(ge=0)] = 24  # how long old versions can be read and watched from
    event_ttl_seconds: Annotated[float, Field(gt=0)] = 3600  # how long an event is kept after it last happened
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

    @model_validator(mode="after")
    def _plain_only_here(self) -> Self:
        if not self.tls and self.host not in LOOPBACK:
            raise ValueError(f"without TLS the API listens on {' or '.join(sorted(LOOPBACK))} only, not on {self.host}")
        return self

    def url(self) -> str:
        """Where this process's API is reached from this machine."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::", ""} else self.host  # noqa: S104 - compared, not bound
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"
