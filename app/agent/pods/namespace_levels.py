"""Pod Security levels of namespaces, as the API says: what the process runtime isolates, and what an engine gives to pods.

`starts` needs a level before it makes a sandbox. Usually the watch has brought it with the pod, as new as the pod. Otherwise, or
if the pod has waited since, it asks the API. An answer serves all pods that were known when it was asked for, so that many
starts cost few requests. Either way a level that was set before a pod was created counts.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from app.agent.clock import Clock
from app.agent.pods.environment import ContainerConfigError
from app.client.api import Api
from app.client.protocol import NamespaceLevel, namespace_path, node_segment
from app.machinery.errors import ApiError
from app.structured_logging import Logger

KEPT = 256  # namespaces whose last answer is remembered
FROM_WATCH_SECONDS = 5.0  # for which a level that came with a pod is used

logger = Logger(__name__)


class NamespaceLevels:
    """Of the namespaces whose pods start on these nodes."""

    def __init__(self, api: Api, nodes: Sequence[str], clock: Clock) -> None:
        self._api, self._node, self._clock = api, node_segment(nodes), clock
        self._answers: dict[str, tuple[float, NamespaceLevel]] = {}  # with the moment at which it was asked for
        self._locks: dict[str, asyncio.Lock] = {}
        self._is_old_api = False

    async def level_of(
        self, namespace: str, known_since: float, from_watch: NamespaceLevel | None = None
    ) -> NamespaceLevel:
        """Return the level of a namespace. Raises ApiError, ConnectionError, ContainerConfigError.

        known_since: the clock's seconds at which the pod was known. `from_watch`: the level that came with it, if any.
        """
        if from_watch is not None and from_watch.uid and known_since > self._clock.elapsed() - FROM_WATCH_SECONDS:
            return from_watch
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            asked_at, level = self._answers.get(namespace, (-1.0, NamespaceLevel()))
            if asked_at < known_since:
                asked_at = self._clock.elapsed()
                level = await self._ask(namespace)
                self._keep(namespace, asked_at, level)
        return level

    def _keep(self, namespace: str, asked_at: float, level: NamespaceLevel) -> None:
        self._answers.pop(namespace, None)
        self._answers[namespace] = asked_at, level
        while len(self._answers) > KEPT:
            oldest = next(iter(self._answers))
            del self._answers[oldest]
            if not self._locks[oldest].locked():
                del self._locks[oldest]

    async def _ask(self, namespace: str) -> NamespaceLevel:
        try:
            answer = await self._api.request("GET", namespace_path(self._node, namespace))
        except ApiError as error:
            if error.code != 404:
                raise
            if not self._is_old_api:
                self._is_old_api = True
                logger.warning(
                    "the API is older than this agent and names no Pod Security levels; pods are not isolated"
                )
            return NamespaceLevel(level="privileged")
        level = msgspec.json.decode(answer, type=NamespaceLevel)
        if not level.uid:
            raise ContainerConfigError(f"namespace {namespace} does not exist")
        return level
