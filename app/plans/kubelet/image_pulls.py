"""Image pulls: full image names, registry credentials, and the back-off of failed pulls. Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

FIRST_WAIT, LONGEST_WAIT = timedelta(seconds=10), timedelta(minutes=5)
NO_IMAGE = "none"  # of Jobs that `jobplane run` made without --image: a pod must name one
HUB = "docker.io"
LONGEST_NAME = 255  # characters, without tag and digest
TOO_LONG = "repository name must not be more than 255 characters"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:\[[0-9a-fA-F:]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]+)?"
_IMAGE = re.compile(
    rf"(?:(?P<host>{_HOST})/)??(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")


class InvalidImageName(ValueError):
    """Not the name of an image."""


class Credential(NamedTuple):
    """Login at a registry."""

    username: str
    password: str


def full_name(image: str) -> str:
    """The full name, with registry, folder and tag: `busybox` is `docker.io/library/busybox:latest`. Ids stay as they are."""
    if _ID.fullmatch(image):
        return image
    found = _IMAGE.fullmatch(image)
    if found is None:
        raise InvalidImageName(f'couldn\'t parse image name "{image}": invalid reference format')
    if found.end("path") > LONGEST_NAME:
        raise InvalidImageName(f'couldn\'t parse image name "{image}": {TOO_LONG}')
    host, path = found["host"] or "", found["path"]
    if host and not ("." in host or ":" in host or host == "localhost"):
        host, path = "", f"{host}/{path}"
    elif not host:
        first, slash, rest = path.partition("/")
        if slash and ("." in first or first == "localhost"):
            host, path = first, rest
    if host in ("", *_HUB_NAMES):
        host, path = HUB, path if "/" in path else f"library/{path}"
    digest = f"@{found['digest']}" if found["digest"] else ""
    tag = f":{found['tag'] or 'latest'}" if found["tag"] or not digest else ""
    return f"{host}/{path}{'' if digest else tag}{digest}"


def backoff(failures: int) -> timedelta:
    """Back-off after so many failed pulls."""
    return min(FIRST_WAIT * (1 << min(max(failures - 1, 0), 10)), LONGEST_WAIT)


def credentials(secrets: Iterable[Mapping[str, Any]], image: str) -> list[Credential]:
    """Credentials for the image's registry from Docker configurations (`auths`, or the older form without), best first."""
    found: list[tuple[int, Credential]] = []
    for secret in secrets:
        entries = secret.get("auths") if isinstance(secret.get("auths"), Mapping) else secret
        for where, entry in (entries or {}).items():
            length = _match_length(str(where), full_name(image))
            credential = _parse_credential(entry) if length and isinstance(entry, Mapping) else None
            if credential is not None:
                found.append((length, credential))
    return list(dict.fromkeys(each for _, each in sorted(found, key=lambda each: -each[0])))


def _match_length(where: str, image: str) -> int:
    """Return how much of the image's name an entry matches; 0 if it is another registry."""
    address = where.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, _, path = address.partition("/")
    path = "" if path in ("v1", "v2") else path
    if host in _HUB_NAMES:
        host = HUB
    its_host, _, its_path = image.partition("/")
    if not _matches_host(host, its_host) or not f"{its_path}".startswith(path):
        return 0
    return 1 + len(path)


def _matches_host(pattern: str, host: str) -> bool:
    """`*` stands for one part of a name."""
    parts, others = pattern.split("."), host.split(".")
    return len(parts) == len(others) and all(
        re.fullmatch(re.escape(part).replace(r"\*", "[^.]*"), other) for part, other in zip(parts, others, strict=True)
    )


def _parse_credential(entry: Mapping[str, Any]) -> Credential | None:
    username, password = entry.get("username"), entry.get("password")
    if not username and isinstance(entry.get("auth"), str):
        try:
            username, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
    return Credential(str(username), str(password or "")) if username else None


def format_duration(span: timedelta) -> str:
    """`850ms`, `1.2s`: about as Go writes it."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    minutes, seconds = divmod(seconds, 60)
    return f"{int(minutes)}m{seconds:.3g}s" if minutes else f"{seconds:.4g}s"
