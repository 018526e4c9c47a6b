"""How a webhook is reached: validation of a client configuration. Texts are Kubernetes'.

Used by the kinds of webhook configurations. `app.registry.webhook_calls.webhook_client` makes the calls. Certificates are not
looked at here, as in Kubernetes: tools that fill them in later begin with a placeholder.
"""

from collections.abc import Iterator
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from app.machinery.errors import Cause, invalid, required
from app.machinery.name_validation import dns_subdomain, port_number

DEFAULT_PORT = 443
_FORM = "; desired format: https://host[/path]"


class Service(Protocol):
    """A Service that a webhook is reached at."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...


class ClientConfig(Protocol):
    """Where a webhook is, and whom to trust there."""

    @property
    def url(self) -> str | None: ...
    @property
    def service(self) -> Service | None: ...
    @property
    def ca_bundle(self) -> bytes: ...
    def __hash__(self) -> int: ...


def validate_client_config(config: ClientConfig, path: str) -> Iterator[Cause]:
    if (config.url is None) == (config.service is None):
        yield required(path, "exactly one of url or service is required")
    elif config.url is not None:
        yield from _validate_url(config.url, f"{path}.url")
    elif config.service is not None:
        yield from _validate_service(config.service, f"{path}.service")


def _validate_url(url: str, path: str) -> Iterator[Cause]:
    try:
        parts: SplitResult = urlsplit(url)
        port_is_valid = parts.port is None or parts.port >= 0
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not parts.hostname or not port_is_valid:
        yield invalid(path, parts.netloc, f"host must be specified{_FORM}")
    if "@" in parts.netloc:
        yield invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _validate_service(service: Service, path: str) -> Iterator[Cause]:
    if not service.name:
        yield required(f"{path}.name")
    if not service.namespace:
        yield required(f"{path}.namespace")
    port = DEFAULT_PORT if service.port is None else service.port
    if faults := port_number(port):
        yield invalid(f"{path}.port", port, f"port is not valid: {', '.join(faults)}")
    yield from _validate_path(service.path or "/", f"{path}.path")


def _validate_path(given: str, path: str) -> Iterator[Cause]:
    if given == "/":
        return
    if given == "//":
        yield invalid(path, given, "segment[0] may not be empty")
        return
    if not given.startswith("/"):
        yield invalid(path, given, "must start with a '/'")
    for index, step in enumerate(given[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(path, given, f"segment[{index}] may not be empty")
        else:
            yield from (invalid(path, given, f"segment[{index}]: {fault}") for fault in dns_subdomain(step))
