"""Node lease: renews each node's Lease, and reports when one expired, and since when: pods of that node must stop in time.

The control plane replaces the pods of a node whose lease has not been renewed for long enough. An agent that cannot renew
must have stopped them by then (`lease_expiry`). It counts from when the last renewal that succeeded was sent, on the monotonic
clock. The lease's duration is written into it: the controllers wait for that and some more, whatever their own setting.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from app.agent.clock import Clock
from app.agent.pods.lease_expiry import LeaseExpired
from app.agent.tasks import level_of
from app.client.api import MERGE_PATCH, URGENT, Api
from app.kinds.core.lease import NODE_NAMESPACE
from app.machinery.errors import ApiError
from app.structured_logging import Logger

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_NAMESPACE}/leases"
RENEWALS = 4  # in the time that a lease lasts
TRIES = 20  # in that time, if they fail
LOOK = 1.0

logger = Logger(__name__)


class Leases:
    """While a node is without a lease `on_expired` is called once a second, and once it has one again `on_renewed`."""

    def __init__(
        self,
        api: Api,
        nodes: Sequence[str],
        duration: timedelta,
        clock: Clock,
        on_expired: Callable[[LeaseExpired], None],
        on_renewed: Callable[[str], None],
    ) -> None:
        self._api, self._nodes, self._clock = api, nodes, clock
        self._on_expired, self._on_renewed = on_expired, on_renewed
        self._seconds = duration.total_seconds()
        self._renewed_at = dict.fromkeys(nodes, clock.elapsed())
        self._expired: set[str] = set()
        self._refused: set[str] = set()
        self._failing: set[str] = set()
        self._turns = asyncio.Semaphore(URGENT)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            for position, node in enumerate(self._nodes):
                group.create_task(self._keep(node, self._pause * position / len(self._nodes)))

    @property
    def _pause(self) -> float:
        return self._seconds / RENEWALS

    async def _keep(self, node: str, offset: float) -> None:
        await self._clock.sleep(offset)  # a fleet's renewals are spread out
        while True:
            await self._clock.sleep(self._pause if await self._renew_in_turn(node) else self._seconds / TRIES)

    @property
    def duration(self) -> float:
        """Seconds for which a renewal is good."""
        return self._seconds

    @property
    def oldest_age(self) -> float:
        """Seconds since the last renewal of the lease that has waited longest."""
        now = self._clock.elapsed()
        return max((now - at for at in self._renewed_at.values()), default=0.0)

    async def _renew_in_turn(self, node: str) -> bool:
        """A fleet's renewals wait for each other, first come, first served, and for nothing else."""
        async with self._turns:
            return await self._renew(node)

    async def _renew(self, node: str) -> bool:
        sent_at = self._clock.elapsed()
        try:
            async with asyncio.timeout(self._pause):
                await self._write(node)
        except (ApiError, OSError) as error:
            self._note_failure(node, error)
            if isinstance(error, ApiError):
                (self._refused.add if error.code == 401 else self._refused.discard)(node)
            return False
        self._renewed_at[node] = sent_at
        self._refused.discard(node)
        if node in self._failing:
            logger.info("lease is renewed again", node=node)
            self._failing.discard(node)
        if node in self._expired:
            logger.warning("lease is held again; pods may start", node=node)
            self._expired.discard(node)
            self._on_renewed(node)
        return True

    def _note_failure(self, node: str, error: Exception) -> None:
        self._failing.add(node)
        if isinstance(error, ApiError) and error.code == 401:
            logger.warning(
                "API refuses the agent's token; the node's pods are stopped when its lease expires",
                node=node,
                error=error,
            )
        else:
            logger.at(level_of(error), "cannot renew lease; retrying", node=node, error=error)

    async def _write(self, node: str) -> None:
        spec = {
            "holderIdentity": node,
            "leaseDurationSeconds": int(self._seconds),
            "renewTime": micro(self._clock.now()),
        }
        try:
            await self._api.request("PATCH", f"{LEASES}/{node}", {"spec": spec}, content_type=MERGE_PATCH, urgent=True)
        except ApiError as error:
            if error.code != 404:
                raise
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node, "namespace": NODE_NAMESPACE},
                "spec": spec,
            }
            await self._api.request("POST", LEASES, lease, urgent=True)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK)
            too_old = self._clock.elapsed() - self._seconds
            for node, renewed_at in self._renewed_at.items():
                if renewed_at <= too_old:
                    self._expire(node, renewed_at)

    def _expire(self, node: str, renewed_at: float) -> None:
        if node not in self._expired:
            logger.warning("lease expired; the node's pods are stopped when their tolerations end", node=node)
            self._expired.add(node)
        self._on_expired(LeaseExpired(node, renewed_at, for_good=node in self._refused))


def micro(at: datetime) -> str:
    """A MicroTime: `2026-01-31T12:00:00.000000Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
