"""Settings of the API: where it listens, its certificate, sign-in at an identity provider (OIDC), the audit log."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from app.machinery.durations import parse_span
from app.settings.common import CommonSettings, absolute
from app.settings.fields import about, items

AuditMode = Literal["batch", "blocking"]
SIGNING_ALGS = tuple(f"{family}{bits}" for family in ("RS", "ES", "PS") for bits in (256, 384, 512))
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
UNSPECIFIED = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


class ApiSettings(CommonSettings):
    """Settings of `jobplane api`."""

    host: Annotated[str, about("Address that the API listens on.")] = "127.0.0.1"
    port: Annotated[int, about("Port that the API listens on.", ge=0, le=65535)] = 6443
    tls: Annotated[
        bool, about("Serve HTTPS. With --no-tls the API serves plain HTTP, for a TLS proxy on this machine.")
    ] = True
    advertise_url: Annotated[
        str, about("URL at which other API replicas reach this one.", "from --host, or this machine's address")
    ] = ""
    tls_san: Annotated[
        str,
        about(
            "Names and addresses to add to the API's certificate, comma-separated. --host and this machine's are always in it.",
            "none",
        ),
    ] = ""
    agent_nodes: Annotated[
        str,
        about(
            "Nodes that DATA_DIR/agent.token may act as, comma-separated; * ends a prefix. `jobplane up` sets it.",
            "this host, or --node-name",
            "api",
        ),
    ] = ""
    require_node_certificates: Annotated[
        bool,
        about(
            "Refuse agents whose connection shows no client certificate of their node (JOBPLANE_CLIENT_CERTIFICATE).",
            "",
            "api",
        ),
    ] = False
    shutdown_delay_duration: Annotated[
        str,
        about(
            "Time that the API serves on after SIGTERM, not ready, so that balancers take it out first, such as 5s.",
            "",
            "api",
        ),
    ] = "0s"
    goaway_chance: Annotated[
        float,
        about(
            "Chance of an answer to be the last of its connection, so that clients come to other replicas, too, such as 0.001. "
            "Unless it is 0, each watch is the last.",
            "",
            "api",
            ge=0,
            le=0.02,
        ),
    ] = 0
    authentication_config: Annotated[
        Path | None,
        about(
            "File with the identity providers whose ID tokens the API accepts, kind AuthenticationConfiguration of "
            "apiserver.config.k8s.io/v1, instead of the options --oidc-*. It is read again when it changes.",
            "none",
        ),
    ] = None
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

    @field_validator("authentication_config", "oidc_ca_file", "audit_policy_file")
    @classmethod
    def _absolute_file(cls, path: Path | None) -> Path | None:
        return absolute(path)

    @field_validator("audit_log_path")
    @classmethod
    def _absolute_unless_word(cls, path: str) -> str:
        return path if path in ("", "-", "none") else str(absolute(Path(path)))

    @field_validator("shutdown_delay_duration")
    @classmethod
    def _duration(cls, text: str) -> str:
        if parse_span(text) is None:
            raise ValueError(f"{text} is not a duration such as 5s")
        return text

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

    @model_validator(mode="after")
    def _issuer_with_client(self) -> Self:
        if bool(self.oidc_issuer_url) != bool(self.oidc_client_id):
            raise ValueError("--oidc-issuer-url and --oidc-client-id need each other")
        if self.oidc_issuer_url and self.authentication_config:
            raise ValueError("--authentication-config and --oidc-issuer-url exclude each other")
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
    def shutdown_delay(self) -> timedelta:
        return parse_span(self.shutdown_delay_duration) or timedelta()

    @property
    def certified_hosts(self) -> tuple[str, ...]:
        """Names and addresses that the API's certificate is for, besides this machine's."""
        return (self.host, *(each.strip() for each in self.tls_san.split(",") if each.strip()))

    def url(self) -> str:
        """Return where this process's API is reached from this machine."""
        host = "127.0.0.1" if self.host in UNSPECIFIED else self.host
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"
