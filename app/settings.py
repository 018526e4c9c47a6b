"""Every setting, read once by the command line: flags over JOBPLANE_* variables over these defaults. Passed on as values."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

RuntimeName = Literal["process", "simulated"]


class Settings(BaseSettings):
    """Frozen; one instance a process."""

    model_config = SettingsConfigDict(env_prefix="JOBPLANE_", frozen=True, extra="ignore")

    data_dir: Path = Path("~/.jobplane").expanduser()
    database_url: SecretStr = SecretStr("")  # empty: `up` starts its own Postgres in data_dir
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 6443
    server: str = ""  # where agents and the CLI find the API
    token_file: Path | None = None
    ca_file: Path | None = None
    runtime: RuntimeName = "process"
    node_name: str = ""  # empty: the host's name
    nodes: Annotated[int, Field(ge=1, le=10_000)] = 1  # of the simulated runtime
    node_grace_seconds: Annotated[float, Field(gt=0)] = 50  # without a lease renewal for so long, a node counts as lost
    history_hours: Annotated[float, Field(ge=0)] = 24  # how long old versions can be read and watched from
    event_ttl_seconds: Annotated[float, Field(gt=0)] = 3600  # how long an event is kept after it last happened
    log_level: str = "info"

    def url(self) -> str:
        """Where this process's API is reached from this machine."""
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::", ""} else self.host  # noqa: S104 - compared, not bound
        return f"https://{f'[{host}]' if ':' in host else host}:{self.port}"
