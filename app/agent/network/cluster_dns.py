"""Cluster DNS of a node: runs the DNS responder and the API relay at an address that the node's pods reach. Made by `agent`.

Pods that share the node's network get a loopback address, which each agent of a machine has for itself and keeps across restarts,
because running pods have it in their resolv.conf. Pods with a network of their own get an address of the node, or, of the oci
runtime, their gateway's, which pods on the node's network reach as well.
Port 53 needs root, or the capability NET_BIND_SERVICE: without it the node has no DNS, and says so in its log.
"""

import asyncio
import errno
import zlib
from contextlib import suppress
from pathlib import Path

from app.agent.clock import Clock
from app.agent.network.api_relay import ApiRelay
from app.agent.network.dns_responder import DnsResponder
from app.structured_logging import Logger

AGAIN = 5.0  # seconds
CANDIDATES = 16
FILE = "dns-address"

logger = Logger(__name__)


class ClusterDns:
    """`address` is empty while the responder has never had one. `candidates`: addresses to try, best first."""

    def __init__(
        self, responder: DnsResponder, relay: ApiRelay, candidates: list[str], file: Path, clock: Clock
    ) -> None:
        self._responder, self._relay = responder, relay
        self._candidates, self._file, self._clock = candidates, file, clock
        self._serving: set[asyncio.Task[None]] = set()
        self.address = ""

    async def __aenter__(self) -> None:
        """Take an address, if one can be had. Before any pod starts: what a pod is told of names does not change."""
        for address in self._candidates:
            try:
                await self._responder.start(address)
            except PermissionError:
                logger.info("no DNS for pods: port 53 needs root or the capability NET_BIND_SERVICE")
                return
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                    logger.warning("no DNS for pods: the address cannot be used", address=address, error=error)
                    return
            else:
                self.address = address
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._file.write_text(address)
                return
        logger.warning("no DNS for pods: another program has port 53", address=", ".join(self._candidates) or "none")

    async def move(self, address: str) -> None:
        """Be at this address for pods that start from now on, and at those before for the others. Raises OSError."""
        if address == self.address or not self.address:
            return
        await self._responder.start(address)
        self.address = address
        self._relay_at(address)

    async def run(self) -> None:
        """Relay connections to the API, for ever."""
        if self.address:
            self._relay_at(self.address)
        await asyncio.get_running_loop().create_future()

    def _relay_at(self, address: str) -> None:
        task = asyncio.ensure_future(self._relay_forever(address))
        self._serving.add(task)

    async def _relay_forever(self, address: str) -> None:
        while True:
            try:
                await self._relay.serve(address)
            except OSError as error:
                logger.info("pods cannot reach kubernetes.default.svc; retrying", address=address, error=error)
            await self._clock.sleep(AGAIN)

    async def __aexit__(self, *_: object) -> None:
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._responder.close()


def loopback_candidates(file: Path) -> list[str]:
    """Return the address that this agent had before, or else some that other agents of the machine hardly have."""
    with suppress(OSError):
        if (kept := file.read_text().strip()).startswith("127."):
            return [kept]
    number = zlib.crc32(str(file).encode())
    return [_loopback(number + each) for each in range(CANDIDATES)]


def _loopback(number: int) -> str:
    return f"127.{64 + number // 63504 % 64}.{1 + number // 252 % 252}.{1 + number % 252}"


def is_loopback(address: str) -> bool:
    return address.startswith("127.")
