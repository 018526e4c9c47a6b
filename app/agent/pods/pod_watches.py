"""Watches of the pods of each node; changes go to `Pods`. Made by the agent, which restarts them when they fail."""

import asyncio
from contextlib import aclosing

from app.agent.pods.pods import Pods
from app.client.api import Api
from app.client.protocol import WITH_LEVELS
from app.kinds.pod.pod import Pod


class PodWatches:
    """Follow the pods of each node, and hand changes to `pods`. One watch a node.

    with_levels: new pods come with the Pod Security level of their namespace, if the API knows of that.
    """

    def __init__(self, api: Api, pods: Pods, *, with_levels: bool = False) -> None:
        self._api, self._pods = api, pods
        self._params = {WITH_LEVELS: "true"} if with_levels else {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, node: str) -> None:
        """Until it fails for good, or is cancelled."""
        while True:
            following = self._running[node] = asyncio.create_task(self._follow(node))
            try:
                await asyncio.wait([following])
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            if not following.cancelled():
                following.result()

    def relist(self, node: str) -> None:
        """Begin with a list again: what the watch has sent may be older than the moment of this call."""
        if node in self._running:
            self._running[node].cancel()

    async def _follow(self, node: str) -> None:
        of_node = {"fieldSelector": f"spec.nodeName={node}", **self._params}
        async with aclosing(self._api.list_and_watch("/api/v1/pods", Pod, of_node)) as events:
            async for event in events:
                if event.object is None:
                    self._pods.on_pods_listed(node, event.items)
                elif event.type == "DELETED":
                    self._pods.on_pod_deleted(event.object)
                else:
                    self._pods.on_pod_changed(event.object, event.namespace)
