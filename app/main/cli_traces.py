"""The client of a collector of traces, made of the settings. `jobplane controllers` calls it."""

from typing import TYPE_CHECKING

from app.main.cli_errors import ConfigError
from app.settings import Settings

if TYPE_CHECKING:
    from app.controllers.tracing.otlp import OtlpClient


def trace_client(made: Settings) -> "OtlpClient | None":
    """The client of the collector of traces, if there is one. Raises ConfigError."""
    if not made.otlp_endpoint:
        return None
    from app.controllers.tracing.otlp import OtlpClient, encode, parse_headers

    try:
        encode([])
        return OtlpClient(made.otlp_endpoint, parse_headers(made.otlp_headers.get_secret_value()))
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"JOBPLANE_OTLP_ENDPOINT needs one more package: pip install 'jobplane[otel]' ({error})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"JOBPLANE_OTLP_HEADERS: {error}") from error
