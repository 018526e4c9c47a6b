"""Pod watch: follows the pods of each node and hands changes to `pods`. Started by `agent`."""

import asyncio
from contextlib import aclosing

from app.agent.pods.pods import Pods
from app.client.api import Api
from app.kinds.pod.pod import Pod


class Watches:
    """One a node. `anew` has it begin with a list again, for what it says may be older than what is asked."""

    def __init__(self, api: Api, pods: Pods) -> None:
        self._api, self._pods = api, pods
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, node: str) -> None:
        """Until it goes wrong for good, or is cancelled."""
        while True:
            following = self._running[node] = asyncio.create_task(self._follow(node))
            try:
                await asyncio.wait([following])
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            if not following.cancelled():
                following.result()

    def anew(self, node: str) -> None:
        if node in self._running:
            self._running[node].cancel()

    async def _follow(self, node: str) -> None:
        of_node = {"fieldSelector": f"spec.nodeName={node}"}
        async with aclosing(self._api.list_and_watch("/api/v1/pods", Pod, of_node)) as events:
            async for event in events:
                if event.object is None:
                    self._pods.listed(node, event.items)
                elif event.type == "DELETED":
                    self._pods.gone(event.object)
                else:
                    self._pods.seen(event.object)
