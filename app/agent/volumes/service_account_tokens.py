"""Tokens of pods' service accounts, kept while they are fresh. Called by `sources` at each look at a volume."""

from typing import NamedTuple

from app.agent.clock import Clock
from app.agent.pods.environment import Lookup
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import ServiceAccountTokenProjection

USED = 0.8  # of a token's life; then there is a new one
LONGEST = 24 * 3600.0


class _Held(NamedTuple):
    token: str
    until: float


class AccountTokens:
    """By pod and file, in memory only: a restarted agent asks for new ones."""

    def __init__(self, lookup: Lookup, clock: Clock) -> None:
        self._lookup, self._clock = lookup, clock
        self._held: dict[tuple[str, str, str], _Held] = {}

    async def token(self, pod: Pod, volume: str, asked: ServiceAccountTokenProjection) -> str:
        key = (pod.metadata.uid, volume, asked.path)
        held = self._held.get(key)
        if held is None or held.until <= self._clock.elapsed():
            began = self._clock.elapsed()
            token, seconds = await self._lookup.token(pod, asked)
            held = self._held[key] = _Held(token, began + min(seconds * USED, LONGEST))
        return held.token

    def forget(self, uid: str) -> None:
        for key in [key for key in self._held if key[0] == uid]:
            del self._held[key]
