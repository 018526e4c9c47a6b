"""Pod sandboxes at a Docker Engine: for each a container that does nothing but hold the pod's namespaces.

They are found by their labels. Called by the docker runtime, one call at a time for a pod.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from app.runtimes.base import CreateError, PullError, Sandbox, SandboxSpec, Unsupported
from app.runtimes.docker import config, images
from app.runtimes.docker.config import ATTEMPT, PAUSE
from app.runtimes.docker.engine import DockerEngine, filters
from app.runtimes.docker.recovery import Bundles
from app.runtimes.engine.config import CONTAINER, NODE, POD
from app.runtimes.engine.errors import GONE, EngineError, unless_gone
from app.runtimes.engine.recovery import belongs_to, kill_processes

ContainerRow = Mapping[str, Any]  # a container in the engine's list


class DockerSandboxes:
    """Those of one node. What is remembered of them here can all be asked for again."""

    def __init__(self, engine: DockerEngine, node: str) -> None:
        self._engine, self._node, self.bundles = engine, node, Bundles(engine)
        self._standing: dict[str, tuple[str, Mapping[str, str]]] = {}
        self.fresh: set[str] = set()  # pods of which nothing was there before: whatever they have is known

    async def run(self, spec: SandboxSpec) -> Sandbox:
        uid = spec.pod_uid
        of_pod = await self._list(uid)
        found = [one for one in of_pod if CONTAINER not in one["Labels"]]
        standing = next(filter(_stands, found), None)
        if standing:
            self._standing[uid] = standing["Id"], standing["Labels"]
            return Sandbox(uid, _ip(standing))
        attempt = max((int(one["Labels"].get(ATTEMPT, "0")) + 1 for one in found), default=0)
        body = config.sandbox(spec, self._node, attempt)
        if await self._engine.is_podman():
            config.adapt_to_podman(body)
        try:
            id_ = await self._make(body, config.name(self._node, uid, "pod", attempt))
            made = await self._engine.ask(f"containers/{id_}/json")
        except EngineError as error:
            raise CreateError(f"Failed to create pod sandbox: {error}") from error
        self.bundles.learn(made)
        if not of_pod:
            self.fresh.add(uid)
        self._standing[uid] = id_, body["Labels"]
        return Sandbox(uid, _ip(made))

    async def _make(self, body: Mapping[str, Any], name: str) -> str:
        try:
            made = await self._engine.ask("containers/create", "POST", body, name=name)
        except EngineError as error:
            if error.code != GONE:
                raise
            await self._fetch_pause()
            made = await self._engine.ask("containers/create", "POST", body, name=name)
        try:
            await self._engine.ask(f"containers/{made['Id']}/start", "POST")
        except EngineError:  # such as for a port of the node that is in use
            with unless_gone():
                await self._engine.ask(f"containers/{made['Id']}", "DELETE", force=1, v=1)
            raise
        return str(made["Id"])

    async def _fetch_pause(self) -> None:
        try:
            await images.pull(self._engine, PAUSE, None)
        except PullError as error:
            raise CreateError(f"Failed to create pod sandbox: {error}") from error

    async def standing(self) -> list[Sandbox]:
        found = [one for one in await self._list() if CONTAINER not in one["Labels"] and _stands(one)]
        return [Sandbox(one["Labels"][POD], _ip(one)) for one in found]

    async def uids(self) -> set[str]:
        """Pods that have a sandbox, be it a dead one."""
        return {one["Labels"][POD] for one in await self._list()}

    async def of(self, pod_uid: str) -> tuple[str, Mapping[str, str]] | None:
        """A pod's sandbox: its id and labels; perhaps made by an earlier agent."""
        if pod_uid not in self._standing:
            for one in await self._list(pod_uid):
                if CONTAINER not in one["Labels"] and _stands(one):
                    self._standing[pod_uid] = one["Id"], one["Labels"]
        return self._standing.get(pod_uid)

    async def remove(self, pod_uid: str) -> None:
        """With its containers, whatever they do; the sandbox last, so that nothing is forgotten that is not gone."""
        for one in sorted(await self._list(pod_uid), key=lambda one: CONTAINER not in one["Labels"]):
            with unless_gone():
                await self._engine.ask(f"containers/{one['Id']}", "DELETE", force=1, v=1)
            if one["State"] == "created":
                await asyncio.to_thread(kill_processes, one["Id"])
            await self.bundles.remove(one["Id"])
        self._standing.pop(pod_uid, None)
        self.fresh.discard(pod_uid)

    async def network(self, pod_uid: str) -> str:
        """The path of a pod's network namespace; empty if it is the node's. Raises ConnectionError, Unsupported."""
        for one in await self._list(pod_uid):
            if CONTAINER not in one["Labels"] and _stands(one):
                with unless_gone():
                    found = await self._engine.ask(f"containers/{one['Id']}/json")
                    if found["HostConfig"]["NetworkMode"] == "host":
                        return ""
                    pid = found["State"]["Pid"]
                    if not belongs_to(pid, one["Id"]):
                        raise Unsupported("the container engine's processes are not seen from here")
                    return f"/proc/{pid}/ns/net"
        raise ConnectionError(f'pod "{pod_uid}" has no sandbox')

    async def _list(self, pod_uid: str = "") -> Sequence[ContainerRow]:
        """Sandboxes and containers, of all pods or of one."""
        wanted = [f"{NODE}={self._node}", f"{POD}={pod_uid}" if pod_uid else POD]
        found: Sequence[ContainerRow] = await self._engine.ask("containers/json", all=1, filters=filters(label=wanted))
        return found


def _stands(found: ContainerRow) -> bool:
    return bool(found["State"] == "running")


def _ip(found: ContainerRow) -> str:
    """Of a container in the list, or by itself. Empty for one on the node's network."""
    networks = found.get("NetworkSettings", {}).get("Networks") or {}
    return next((str(one["IPAddress"]) for one in networks.values() if one.get("IPAddress")), "")
