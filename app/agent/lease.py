"""Keeps each node's Lease, and says when one is lost: from then on nothing may run there.

The control plane replaces the pods of a node that it has not heard of for longer than a lease lasts. An agent that
cannot renew must have stopped its pods by then. It judges by the time at which the last renewal that succeeded was
sent, on a clock that nobody sets.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from app.agent.clock import Clock
from app.client.api import MERGE_PATCH, Api
from app.kinds.errors import ApiError
from app.kinds.lease import NODE_NAMESPACE

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_NAMESPACE}/leases"
RENEW = 10.0
RETRY = 2.0
LOOK = 1.0

log = logging.getLogger(__name__)


class Leases:
    """`changed(node, lost)` is called whenever a node loses its lease or has it again."""

    def __init__(
        self,
        api: Api,
        nodes: Sequence[str],
        duration: timedelta,
        changed: Callable[[str, bool], None],
        clock: Clock,
    ) -> None:
        self._api, self._nodes, self._duration, self._changed, self._clock = api, nodes, duration, changed, clock
        self._renewed_at = dict.fromkeys(nodes, clock.elapsed())
        self._lost: set[str] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            for position, node in enumerate(self._nodes):
                group.create_task(self._keep(node, RENEW * position / len(self._nodes)))

    async def _keep(self, node: str, offset: float) -> None:
        await self._clock.sleep(offset)  # a fleet's renewals are spread out
        while True:
            await self._clock.sleep(RENEW if await self._renew(node) else RETRY)

    async def _renew(self, node: str) -> bool:
        sent_at = self._clock.elapsed()
        try:
            async with asyncio.timeout(RENEW):
                await self._write(node)
        except (ApiError, OSError) as error:
            log.warning("lease of node %s could not be renewed: %s", node, error or "no answer")
            return False
        self._renewed_at[node] = sent_at
        if node in self._lost:
            log.warning("node %s has its lease again", node)
            self._lost.discard(node)
            self._changed(node, False)
        return True

    async def _write(self, node: str) -> None:
        spec = {
            "holderIdentity": node,
            "leaseDurationSeconds": int(self._duration.total_seconds()),
            "renewTime": micro(self._clock.now()),
        }
        try:
            await self._api.request("PATCH", f"{LEASES}/{node}", {"spec": spec}, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.code != 404:
                raise
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node, "namespace": NODE_NAMESPACE},
                "spec": spec,
            }
            await self._api.request("POST", LEASES, lease)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK)
            too_old = self._clock.elapsed() - self._duration.total_seconds()
            for node, renewed_at in self._renewed_at.items():
                if renewed_at <= too_old and node not in self._lost:
                    log.error("node %s has lost its lease: its pods are stopped", node)
                    self._lost.add(node)
                    self._changed(node, True)


def micro(at: datetime) -> str:
    """A MicroTime: `2026-01-31T12:00:00.000000Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
