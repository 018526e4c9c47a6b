"""Join: exchanges a join token for the agent's own credential, once, and follows rotations of the API's authority.

The agent makes its secret itself and sends the API no more than its digest: the secret crosses no network, and to ask again
after a lost answer is harmless. `app.main.agent_process` calls `join` before the agent starts; the agent runs `CaRotation`.
"""

import asyncio
import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

import msgspec

from app.agent.clock import Clock
from app.agent.config import AgentConfig
from app.client.api import Api
from app.client.ca_pin import MismatchError, authority, certificates_in
from app.client.connection_errors import remedy_now
from app.client.protocol import CA, CERTIFICATE_REQUIRED, JOIN, JoinAnswer, JoinRequest
from app.machinery.errors import ApiError
from app.structured_logging import Logger

PAUSE, LONGEST_PAUSE = 0.5, 15.0
APPROVAL_PAUSE = 3.0  # seconds between questions whether the node is approved
CA_PERIOD = 600.0  # seconds
_TOKEN = re.compile(r"[a-z0-9]{6}\.[\w-]{20,}")
_HASH = re.compile(r"(sha256)?[0-9a-f]{64}")

logger = Logger(__name__)


class JoinError(Exception):
    """Joining failed until a person does something; the text says what."""


@dataclass(frozen=True)
class Joined:
    token: str
    ca_file: Path | None


def has_joined(state: Path) -> bool:
    return credential_path(state).exists()


def credential_path(state: Path) -> Path:
    return state / "node.token"


def find_malformed(config: AgentConfig) -> str:
    """The option that cannot be what `jobplane token create` printed, and what to do; empty if all may be."""
    if config.join_token and not _TOKEN.fullmatch(config.join_token):
        return "--join-token is malformed: copy all of the command that `jobplane token create` printed"
    if config.ca_hash and not _HASH.fullmatch(config.ca_hash.replace(":", "").lower()):
        return "--ca-hash is malformed: sha256: and 64 hexadecimal digits, as `jobplane token create` printed them"
    return ""


async def join(config: AgentConfig) -> Joined:
    """The node's own credential: the kept one if it is still good, or a new one. Waits for an API that is away."""
    ca_file = await _authority(config)
    kept = credential_path(config.state_dir)
    if kept.exists():
        token = kept.read_text().strip()
        if await _is_accepted(config, ca_file, token):
            return Joined(token, ca_file)
        if (renewed := await _renewed(config, ca_file, kept)) is not None:
            return Joined(renewed, ca_file)
        if not config.join_token:
            raise JoinError(
                f"the API no longer takes the credential of node {config.node_names[0]} ({kept}): it was revoked, or is another "
                "node's. To join again, give a --join-token"
            )
    new = kept.with_name(f"{kept.name}.new")
    token = make_secret(new)
    await _exchange(config, ca_file, token)
    new.replace(kept)
    logger.info("joined the cluster", node=config.node_names[0])
    return Joined(token, ca_file)


async def _authority(config: AgentConfig) -> Path | None:
    if config.ca_file or not config.ca_hash:
        return config.ca_file
    path, pause = config.state_dir / "ca.crt", PAUSE
    while True:
        try:
            text = await authority(config.server, config.ca_hash)
        except MismatchError as error:
            if path.exists() and has_joined(config.state_dir):  # the authority was rotated, and the agent has followed
                return path
            raise JoinError(str(error)) from error
        except OSError as error:
            if path.exists():  # what was fetched before was compared before
                return path
            pause = await _wait(config.server, pause, error)
        else:
            path.write_text(text)
            return path


async def _renewed(config: AgentConfig, ca_file: Path | None, kept: Path) -> str | None:
    """The credential that the API has accepted in place of the kept one, where the agent was killed before it kept it."""
    new = kept.with_name(f"{kept.name}.new")
    token = new.read_text().strip() if new.exists() else ""
    if not token or not await _is_accepted(config, ca_file, token):
        return None
    new.replace(kept)
    return token


async def _is_accepted(config: AgentConfig, ca_file: Path | None, token: str) -> bool:
    """Return whether the API knows it, and as this node's. True if the API cannot be reached."""
    api = Api(config.server, token, ca_file, tls_name=config.tls_name)
    try:
        await api.request("GET", f"/api/v1/nodes/{config.node_names[0]}")
    except ApiError as error:
        return error.code not in {401, 403} or error.reason == CERTIFICATE_REQUIRED
    except OSError:
        return True
    finally:
        await api.close()
    return True


def make_secret(path: Path) -> str:
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


async def _exchange(config: AgentConfig, ca_file: Path | None, token: str) -> None:
    body = JoinRequest(node=config.node_names[0], digest=hashlib.sha256(token.encode()).hexdigest())
    api, pause = Api(config.server, config.join_token, ca_file, tls_name=config.tls_name), PAUSE
    waits = False
    try:
        while True:
            try:
                answer = msgspec.json.decode(await api.request("POST", JOIN, body), type=JoinAnswer)
            except ApiError as error:
                if error.code == 401:
                    why = "the API refuses the join token: it expired or was revoked"
                    unapproved = f", before anybody ran `jobplane node approve {body.node}`" if waits else ""
                    raise JoinError(why + unapproved) from error
                if error.code < 500 and error.code != 429:
                    raise JoinError(error.message) from error
                pause = await _wait(config.server, pause, error)
            except OSError as error:
                pause = await _wait(config.server, pause, error)
            else:
                if answer.approved:
                    return
                if not waits:
                    command = f"jobplane node approve {body.node}"
                    logger.info("waiting for approval: run this where the API is", node=body.node, command=command)
                waits = True
                await asyncio.sleep(APPROVAL_PAUSE)
    finally:
        await api.close()


async def _wait(server: str, pause: float, error: Exception) -> float:
    if advice := await remedy_now(server, error):
        raise JoinError(advice) from error
    logger.warning("cannot join yet; retrying", error=error)
    await asyncio.sleep(pause)
    return min(pause * 2, LONGEST_PAUSE)


class CaRotation:
    """Keeps ca.crt of the agent's folder as new as the API's authority.

    An answer is accepted only over a connection that the kept authorities prove, and only if it shares a certificate with
    them, so that no other authority ever replaces them at once.
    """

    def __init__(self, api: Api, path: Path, clock: Clock) -> None:
        self._api, self._path, self._clock = api, path, clock

    async def run(self) -> None:
        """For ever. An API that cannot be reached is asked the next time."""
        while True:
            try:
                answer = (await self._api.request("GET", CA)).decode()
            except (ApiError, OSError) as error:
                logger.debug("cannot get the API's authority; retrying", error=error)
            else:
                self.follow(answer)
            await self._clock.sleep(CA_PERIOD)

    def follow(self, pem: str) -> None:
        """Keep and trust these authorities, if they may follow those that are kept."""
        if not may_follow(self._path.read_text(), pem):
            return
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(pem)
        new.replace(self._path)
        self._api.trust(pem)
        logger.info("trusting a new authority of the API", path=str(self._path))


def may_follow(kept: str, pem: str) -> bool:
    """Return whether these authorities, PEM, are others than those that are kept, with one in common."""
    try:
        before, after = certificates_in(kept), certificates_in(pem)
    except ValueError:
        return False
    return before != after and not set(before).isdisjoint(after)
