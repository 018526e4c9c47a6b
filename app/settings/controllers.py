"""Settings of the controllers: node loss, scoring, the pod network, retention, certificates, webhooks, traces."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr, field_validator

from app.machinery.cidr import parse_cidr
from app.settings.common import CommonSettings
from app.settings.fields import about

ScoringStrategy = Literal["LeastAllocated", "MostAllocated"]


class ControllerSettings(CommonSettings):
    """Settings of `jobplane controllers`."""

    scoring_strategy: Annotated[
        ScoringStrategy,
        about(
            "Scoring strategy of the scheduler: the emptiest node first (LeastAllocated) or the fullest (MostAllocated)."
        ),
    ] = "LeastAllocated"
    node_grace_seconds: Annotated[
        float,
        about(
            "Seconds without a lease renewal after which a node is lost; at least 10 s more than its lease.",
            "",
            "controllers",
            gt=0,
        ),
    ] = 50
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
    history_hours: Annotated[
        float, about("Retention of old versions of objects, to list and watch from, in hours.", "", "controllers", ge=0)
    ] = 1
    secret_history_minutes: Annotated[
        float,
        about(
            "Retention of deleted and replaced versions of Secrets, in minutes.",
            "",
            "controllers",
            ge=1,
        ),
    ] = 5
    event_ttl_seconds: Annotated[
        float, about("Retention of events after they last happened, in seconds.", "", "controllers", gt=0)
    ] = 3600
    log_ttl_hours: Annotated[
        float, about("Retention of logs after their container has ended, in hours.", "", "controllers", gt=0)
    ] = 168
    record_ttl_hours: Annotated[
        float, about("Retention of the records of Jobs after they were deleted, in hours.", "", "controllers", gt=0)
    ] = 720
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
    webhooks_to_this_host: Annotated[
        bool, about("Allow webhooks to send to loopback addresses of the controllers' machine.", "", "controllers")
    ] = False
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

    @field_validator("pod_cidr")
    @classmethod
    def _network(cls, text: str) -> str:
        if text:
            parse_cidr(text)
        return text

    @field_validator("otlp_endpoint")
    @classmethod
    def _collector(cls, url: str) -> str:
        if url and not (url.startswith(("http://", "https://")) and urlsplit(url).hostname):
            raise ValueError("not a URL such as http://127.0.0.1:4318")
        return url
