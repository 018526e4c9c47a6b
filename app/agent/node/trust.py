"""Certificate authority that the agent trusts, kept in ca.crt of its folder. Follows when the API's is rotated.

Run by the agent if it has such a file. What the API tells is taken only over a connection that the kept authorities prove,
and only if it shares a certificate with them, so that no other authority ever replaces them at once.
"""

from pathlib import Path

from app.agent.clock import Clock
from app.client.api import Api
from app.client.ca_pin import PATH, certificates_in
from app.machinery.errors import ApiError
from app.structured_logging import Logger

EVERY = 600.0  # seconds

logger = Logger(__name__)


class Trust:
    def __init__(self, api: Api, path: Path, clock: Clock) -> None:
        self._api, self._path, self._clock = api, path, clock

    async def run(self) -> None:
        """For ever. An API that cannot be asked is asked the next time."""
        while True:
            try:
                told = (await self._api.request("GET", PATH)).decode()
            except (ApiError, OSError) as error:
                logger.debug("cannot get the API's authority; retrying", error=error)
            else:
                self.follow(told)
            await self._clock.sleep(EVERY)

    def follow(self, told: str) -> None:
        """Keep and trust what the API tells, if it may follow what is kept."""
        if not follows(self._path.read_text(), told):
            return
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.write_text(told)
        fresh.replace(self._path)
        self._api.trust(told)
        logger.info("trusting a new authority of the API", path=str(self._path))


def follows(kept: str, told: str) -> bool:
    """Whether these authorities, PEM, are others than those that are kept, with one in common."""
    try:
        before, after = certificates_in(kept), certificates_in(told)
    except ValueError:
        return False
    return before != after and not set(before).isdisjoint(after)
