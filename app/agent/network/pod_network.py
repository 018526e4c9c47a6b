"""Pod network of a node: its pod CIDR goes to the runtime, and routes lead to the pods of the other nodes. Run by `agent`.

Asks the API every few seconds whether a node has come, gone or moved: a few bytes while none has. What does not work is in the
node's condition `jobplane.dev/PodNetwork`, and tried again. Pods with a network of their own wait until the node's is decided.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import msgspec

from app.agent.clock import Clock
from app.agent.network import routes
from app.client.api import Api
from app.client.protocol import PodNetwork, network_path
from app.kinds.core.node import NodeCondition
from app.machinery.errors import ApiError
from app.runtimes.base import CreateError, Unsupported
from app.structured_logging import Logger

PERIOD, SOON = 3.0, 0.25  # seconds; the second while the node has no pod CIDR so far
PATIENCE = 10.0  # seconds for which a pod waits for the network
CONDITION = "jobplane.dev/PodNetwork"
NAMED = 10  # nodes in a message

logger = Logger(__name__)


@runtime_checkable
class NetworkedRuntime(Protocol):
    """A runtime whose pods can be given a network."""

    async def use_pod_cidr(self, cidr: str) -> bool:
        """Give pods addresses of it from now on. False if somebody else has configured their network.

        Raises ConnectionError, OSError, Unsupported.
        """


class PodNetworkManager:
    """Of one node. `condition` is None while the node has no pod CIDR. `on_change` is called after the condition has changed.

    on_cidr: called once pods get addresses of a CIDR, before any does. Raises OSError.
    """

    def __init__(
        self,
        api: Api,
        node: str,
        address: str,
        runtime: NetworkedRuntime,
        clock: Clock,
        on_change: Callable[[], Awaitable[object]],
        on_cidr: Callable[[str], Awaitable[None]],
    ) -> None:
        self._api, self._node, self._address = api, node, address
        self._runtime, self._clock, self._on_change, self._on_cidr = runtime, clock, on_change, on_cidr
        self._known, self._decided = 0, asyncio.Event()
        self.condition: NodeCondition | None = None

    async def run(self) -> None:
        while True:
            pause = PERIOD
            try:
                pause = await self._follow()
            except Unsupported as error:
                await self._tell("False", "NodeNetwork", f"pods share the node's network: {error}")
                self._decided.set()
            except (OSError, ApiError) as error:
                if isinstance(error, ApiError) and error.code == 404:
                    self._decided.set()
                    await asyncio.Event().wait()  # the API is older: it has no pod CIDRs
                if not isinstance(error, ConnectionError):
                    await self._tell("False", "SetupFailed", f"cannot set up the pod network: {error}")
                    logger.warning("cannot set up the pod network; retrying", node=self._node, error=error)
            await self._clock.sleep(pause)

    async def decided(self) -> None:
        """Return once it is known what network pods get, and it stands. Raises CreateError if that takes too long."""
        if self._decided.is_set():
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self._decided.wait()
        except TimeoutError as error:
            why = self.condition.message if self.condition else "the API has not told its pod CIDR"
            raise CreateError(f"the pod network of this node does not stand: {why}") from error

    async def _follow(self) -> float:
        """Return the seconds until the next time."""
        answer = await self._api.request("GET", network_path(self._node), params={"known": str(self._known)})
        network = msgspec.json.decode(answer, type=PodNetwork)
        if network.version and network.version == self._known:
            return PERIOD
        if not network.cidr:
            if not network.cluster:
                self._decided.set()  # there is none
            return SOON if network.cluster else PERIOD
        if await self._runtime.use_pod_cidr(network.cidr):
            await asyncio.to_thread(routes.open_firewall, network)
            unreachable = await asyncio.to_thread(routes.set_routes, network, self._address)
            await self._on_cidr(network.cidr)
            await self._tell(*_judge(network, unreachable))
        else:
            await self._tell("Unknown", "OtherNetwork", "the engine has a CNI configuration: that decides")
        self._known = network.version
        self._decided.set()
        return PERIOD

    async def _tell(self, status: str, reason: str, message: str) -> None:
        told = NodeCondition(type=CONDITION, status=status, reason=reason, message=message)
        if told != self.condition:
            self.condition = told
            await self._on_change()


def _judge(network: PodNetwork, unreachable: list[str]) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    if not unreachable:
        return "True", "RoutesCreated", f"pods have addresses of {network.cidr}, and routes lead to all other nodes"
    more = f" and {len(unreachable) - NAMED} more" if len(unreachable) > NAMED else ""
    return (
        "False",
        "NodesUnreachable",
        f"no route leads to pods of {', '.join(unreachable[:NAMED])}{more}: this node is on no network with them",
    )
