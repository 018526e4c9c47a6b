"""Join: exchanges a join token for the agent's own credential, once, and keeps it in the agent's folder.

The agent makes its secret up itself and tells the API no more than its digest, so it crosses no network on the way, and
to ask again after a lost answer is harmless. Called by the command line before the agent starts.
"""

import asyncio
import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from app.client.api import Api
from app.client.ca_pin import MismatchError, authority
from app.client.connection_errors import remedy_now
from app.machinery.errors import ApiError
from app.structured_logging import Logger

JOIN = "/apis/agents.jobplane.dev/v1/join"
PAUSE, LONGEST_PAUSE = 0.5, 15.0
_TOKEN = re.compile(r"[a-z0-9]{6}\.[\w-]{20,}")
_HASH = re.compile(r"(sha256)?[0-9a-f]{64}")

logger = Logger(__name__)


class JoinError(Exception):
    """Joining needs somebody to do something; the text says what."""


@dataclass(frozen=True, kw_only=True)
class JoinConfig:
    """What an agent is told. `ca_hash`: of the authority to trust, if its file is not at hand.
    `tls_name`: whom the API's certificate is for, if not for the host in `server`.
    """

    server: str
    node: str
    state: Path
    join_token: str = ""
    ca_file: Path | None = None
    ca_hash: str = ""
    tls_name: str = ""


@dataclass(frozen=True)
class Joined:
    token: str
    ca_file: Path | None


def has_joined(state: Path) -> bool:
    return _credential(state).exists()


def _credential(state: Path) -> Path:
    return state / "node.token"


def malformed(terms: JoinConfig) -> str:
    """The option that cannot be what `jobplane token create` printed, and what to do; empty if all may be."""
    if terms.join_token and not _TOKEN.fullmatch(terms.join_token):
        return "--join-token is malformed: copy all of the command that `jobplane token create` printed"
    if terms.ca_hash and not _HASH.fullmatch(terms.ca_hash.replace(":", "").lower()):
        return "--ca-hash is malformed: sha256: and 64 hexadecimal digits, as `jobplane token create` printed them"
    return ""


async def join(terms: JoinConfig) -> Joined:
    """The node's own credential: the kept one if it is still good, or a new one. Waits for an API that is away."""
    ca_file = await _authority(terms)
    kept = _credential(terms.state)
    if kept.exists():
        token = kept.read_text().strip()
        if await _is_good(terms, ca_file, token):
            return Joined(token, ca_file)
        if not terms.join_token:
            raise JoinError(
                f"the API no longer takes the credential of node {terms.node} ({kept}): it was revoked, or is another "
                "node's. To join again, give a --join-token"
            )
    fresh = kept.with_name(f"{kept.name}.new")
    token = _made_up(fresh)
    await _exchange(terms, ca_file, token)
    fresh.replace(kept)
    logger.info("joined the cluster", node=terms.node)
    return Joined(token, ca_file)


async def _authority(terms: JoinConfig) -> Path | None:
    if terms.ca_file or not terms.ca_hash:
        return terms.ca_file
    path, pause = terms.state / "ca.crt", PAUSE
    while True:
        try:
            text = await authority(terms.server, terms.ca_hash)
        except MismatchError as error:
            if path.exists() and has_joined(terms.state):  # the authority was rotated, and the agent has followed
                return path
            raise JoinError(str(error)) from error
        except OSError as error:
            if path.exists():  # what was fetched before was compared before
                return path
            pause = await _waited(terms.server, pause, error)
        else:
            path.write_text(text)
            return path


async def _is_good(terms: JoinConfig, ca_file: Path | None, token: str) -> bool:
    """Whether the API knows it, and as this node's. If it cannot be asked, nothing speaks against it."""
    api = Api(terms.server, token, ca_file, tls_name=terms.tls_name)
    try:
        await api.request("GET", f"/api/v1/nodes/{terms.node}")
    except ApiError as error:
        return error.code not in {401, 403}
    except OSError:
        return True
    finally:
        await api.close()
    return True


def _made_up(path: Path) -> str:
    """A secret that only its owner can read; one that was made up before, if the answer never came."""
    if path.exists() and (text := path.read_text().strip()):
        return text
    token = secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
        file.flush()
        os.fsync(file.fileno())
    return token


async def _exchange(terms: JoinConfig, ca_file: Path | None, token: str) -> None:
    body = {"node": terms.node, "digest": hashlib.sha256(token.encode()).hexdigest()}
    api, pause = Api(terms.server, terms.join_token, ca_file, tls_name=terms.tls_name), PAUSE
    try:
        while True:
            try:
                await api.request("POST", JOIN, body)
            except ApiError as error:
                if error.code == 401:
                    raise JoinError("the API refuses the join token: it expired or was revoked") from error
                if error.code < 500 and error.code != 429:
                    raise JoinError(error.message) from error
                pause = await _waited(terms.server, pause, error)
            except OSError as error:
                pause = await _waited(terms.server, pause, error)
            else:
                return
    finally:
        await api.close()


async def _waited(server: str, pause: float, error: Exception) -> float:
    if advice := await remedy_now(server, error):
        raise JoinError(advice) from error
    logger.warning("cannot join yet; retrying", error=error)
    await asyncio.sleep(pause)
    return min(pause * 2, LONGEST_PAUSE)
