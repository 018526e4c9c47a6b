"""Pulls by skopeo: the manifest of an image, and its parts into a folder. Called by the image store of the oci runtime.

skopeo checks each part's digest, and knows mirrors, insecure registries and signatures from the machine's /etc/containers.
A login is handed over in a file that only the agent reads. Registries on loopback may speak plain HTTP, as with every engine.
"""

import asyncio
import base64
import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from app.runtimes.base import Login, PullError

POLICY = Path("/etc/containers/policy.json")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
LONGEST = 4 << 20  # bytes of a manifest
_MESSAGE = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')
_LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")


class Source(NamedTuple):
    """An image where skopeo finds it: `address` with transport, such as docker://host/name:tag; `registry`: its host, if any."""

    address: str
    registry: str = ""


class Manifest(NamedTuple):
    """`digest` of what a tag stands for, be it a list; `image_id`: the digest of the image's document; `source`: of this one."""

    digest: str
    image_id: str
    source: Source


def at_registry(full_name: str) -> Source:
    return Source(f"docker://{full_name}", full_name.partition("/")[0])


async def manifest(source: Source, login: Login | None) -> Manifest:
    """The manifest for this machine. Raises PullError."""
    raw = await _inspect(source, login)
    digest, found = _digest(raw), _decode(raw)
    if "manifests" in found:
        chosen = _choose(found["manifests"])
        source = source._replace(address=f"{without_tag(source.address)}@{chosen}")
        found = _decode(await _inspect(source, login))
    try:
        return Manifest(digest, str(found["config"]["digest"]), source)
    except (KeyError, TypeError) as error:
        raise PullError("the registry's answer is no manifest of an image that this runtime knows") from error


async def copy(source: Source, login: Login | None, blobs: Path, folder: Path) -> None:
    """Its parts to `blobs`, by digest, unless they are there; its index, as of an OCI layout, to `folder`. Raises PullError."""
    plain = ["--src-tls-verify=false"] if _is_loopback(source) else []
    with _login_file(source, login) as file:
        await _run(
            "copy",
            "--quiet",
            f"--src-authfile={file}",
            *plain,
            "--dest-oci-accept-uncompressed-layers",
            f"--dest-shared-blob-dir={blobs}",
            source.address,
            f"oci:{folder}:image",
        )


async def _inspect(source: Source, login: Login | None) -> bytes:
    plain = ["--tls-verify=false"] if _is_loopback(source) else []
    with _login_file(source, login) as file:
        return await _run("inspect", "--raw", f"--authfile={file}", *plain, source.address)


async def _run(*words: str) -> bytes:
    policy = [] if POLICY.exists() else ["--insecure-policy"]
    try:
        process = await asyncio.create_subprocess_exec(
            "skopeo",
            *policy,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise PullError(f"skopeo cannot be run: {error}") from error
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise PullError(_message(err.decode(errors="replace")))
    return out


def _message(text: str) -> str:
    found = _MESSAGE.search(text)
    return found[1].replace('\\"', '"') if found else text.strip()[-500:] or "skopeo failed"


def _decode(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw) if len(raw) <= LONGEST else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PullError("the registry's answer is no manifest")
    return found


def _choose(manifests: Sequence[Any]) -> str:
    """The digest of the one for this machine. Raises PullError."""
    wanted = ARCHITECTURES.get(platform.machine(), platform.machine())
    for each in manifests:
        about = each.get("platform") or {}
        if (about.get("os"), about.get("architecture")) == ("linux", wanted):
            return str(each["digest"])
    raise PullError(f"no match for platform in manifest: linux/{wanted} not found")


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def without_tag(address: str) -> str:
    name = address.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    return head if colon and "/" not in tag else name


def _is_loopback(source: Source) -> bool:
    return bool(_LOOPBACK.fullmatch(source.registry))


@contextmanager
def _login_file(source: Source, login: Login | None) -> Iterator[str]:
    """Without a login it is empty: what the agent's own user may pull is not for pods."""
    auths = {}
    if login is not None:
        auths[source.registry] = {"auth": base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}
    fd, path = tempfile.mkstemp(prefix="jobplane-login-")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump({"auths": auths}, file)
        yield path
    finally:
        os.unlink(path)
