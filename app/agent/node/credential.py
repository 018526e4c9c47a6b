"""Credential renewal: replaces a joined node's credential in the last part of its life, while its pods run on.

The agent runs it if it has joined. The new secret is made here, and the API gets its digest; the old one stays good until its
own end, so that requests under way, and a crash between the two, lose nothing.
"""

import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path

from app.agent.clock import Clock
from app.agent.node.join import credential_path, make_secret
from app.client.api import Api
from app.client.protocol import CREDENTIAL, CredentialAnswer, JoinRequest
from app.machinery.errors import ApiError
from app.structured_logging import Logger

LONGEST_SLEEP = 3600.0  # seconds; the API's answer counts anew each time
RETRIES = 20.0  # in the life of a credential

logger = Logger(__name__)


def seconds_to_renewal(answer: CredentialAnswer, node: str) -> float | None:
    """Return how long to wait until a credential is due: after 70 to 90 % of its life, as the kubelet's; None: it never is."""
    if not answer.life_seconds:
        return None
    spread = zlib.crc32(node.encode()) % 1000 / 1000  # nodes that joined together do not all come at once
    return max(0.0, answer.left_seconds - answer.life_seconds * (0.3 - 0.2 * spread))


class CredentialRenewal:
    """`state`: the folder of the agent, with its credential. `on_renewed`: opens a node's watches anew, by the new one."""

    def __init__(
        self, api: Api, state: Path, node: str, clock: Clock, on_renewed: Callable[[str], None] = lambda _: None
    ) -> None:
        self._api, self._state, self._node, self._clock, self._on_renewed = api, state, node, clock, on_renewed
        self._retry = LONGEST_SLEEP / RETRIES

    async def run(self) -> None:
        """For ever. An API that is away or refuses is asked again."""
        while True:
            await self._clock.sleep(await self._advance())

    async def _advance(self) -> float:
        """Renew the credential if it is due; return the seconds until the next look."""
        try:
            answer = await self._api.read(CREDENTIAL, CredentialAnswer)
            wait = seconds_to_renewal(answer, self._node)
            if wait is None:
                return LONGEST_SLEEP
            self._retry = min(answer.life_seconds, LONGEST_SLEEP) / RETRIES
            if wait > 0:
                return min(wait, LONGEST_SLEEP)
            await self._renew()
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.code == 404:  # an API of an older version
                return LONGEST_SLEEP
            logger.warning("cannot renew the node's credential; retrying", node=self._node, error=error)
        return self._retry

    async def _renew(self) -> None:
        kept = credential_path(self._state)
        new = kept.with_name(f"{kept.name}.new")
        secret = make_secret(new)
        await self._api.request(
            "POST", CREDENTIAL, JoinRequest(self._node, hashlib.sha256(secret.encode()).hexdigest())
        )
        new.replace(kept)
        self._api.use_token(secret)
        self._on_renewed(self._node)
        logger.info("the node's credential is renewed", node=self._node)
