"""Pod sandboxes at a CRI engine, found by their labels. Called by the cri runtime, one call at a time for a pod."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from app.runtimes.base import CreateError, Sandbox, SandboxSpec, Unsupported
from app.runtimes.cri import config as cri_config
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.cri.recovery import remove_torn_result
from app.runtimes.engine.config import NODE, POD
from app.runtimes.engine.containers import answers
from app.runtimes.engine.errors import GONE, EngineError, unless_gone
from app.runtimes.engine.files import Files


class CriSandboxes:
    """Those of one node. What is remembered of them here can all be asked for again."""

    def __init__(self, engine: CriEngine, files: Files, node: str) -> None:
        self._engine, self._files, self._node = engine, files, node
        self._standing: dict[str, tuple[str, pb.PodSandboxConfig]] = {}
        self.fresh: set[str] = set()  # pods of which nothing was there before: whatever they have is known

    async def run(self, spec: SandboxSpec) -> Sandbox:
        uid = spec.pod_uid
        found = await self._list({POD: uid})
        ready = [each for each in found if each.state == pb.SANDBOX_READY]
        attempt = max((each.metadata.attempt + (not ready) for each in found), default=0)
        config = cri_config.sandbox(spec, self._node, attempt, self._files.pod(uid))
        if ready:
            id_ = ready[0].id
        else:
            await asyncio.to_thread(self._files.make_pod, uid)
            id_ = await self._make(config, spec.handler)
            if not found:
                self.fresh.add(uid)
        self._standing[uid] = id_, config
        return Sandbox(uid, await self._ip(id_))

    async def _make(self, config: pb.PodSandboxConfig, handler: str) -> str:
        request = pb.RunPodSandboxRequest(config=config, runtime_handler=handler)
        try:
            made = await self._engine.ask(request, pb.RunPodSandboxResponse)
        except EngineError as error:
            raise CreateError(f"Failed to create pod sandbox: {error}") from error
        return made.pod_sandbox_id

    async def standing(self) -> list[Sandbox]:
        found = [one for one in await self._list({}) if one.state == pb.SANDBOX_READY]
        ips = await answers([self._ip(one.id) for one in found])
        return [Sandbox(one.labels[POD], ip) for one, ip in zip(found, ips, strict=True)]

    async def uids(self) -> set[str]:
        """Pods that have a sandbox, be it a dead one."""
        return {each.labels[POD] for each in await self._list({})}

    async def of(self, pod_uid: str) -> tuple[str, pb.PodSandboxConfig] | None:
        """A pod's sandbox, its id and configuration; perhaps by an earlier agent."""
        if pod_uid not in self._standing:
            for each in await self._list({POD: pod_uid}):
                if each.state == pb.SANDBOX_READY:
                    logs = str(self._files.pod(pod_uid))
                    config = pb.PodSandboxConfig(metadata=each.metadata, labels=each.labels, log_directory=logs)
                    shared = (await self._status(each.id)).status.linux.namespaces.options
                    config.linux.security_context.namespace_options.CopyFrom(shared)
                    self._standing[pod_uid] = each.id, config
        return self._standing.get(pod_uid)

    async def remove(self, pod_uid: str) -> None:
        """With its containers, whatever they do."""
        for each in await self._list({POD: pod_uid}):
            with unless_gone():
                await self._kill(each.id)
                await self._stop(each.id)
                await self._engine.ask(pb.RemovePodSandboxRequest(pod_sandbox_id=each.id), pb.RemovePodSandboxResponse)
        self._standing.pop(pod_uid, None)
        self.fresh.discard(pod_uid)

    async def _kill(self, id_: str) -> None:
        """What a sandbox still has. Left to itself CRI-O would let it go on for as long as we wait for the answer.

        What cannot be killed, as it has just ended, or for another reason, is left to the stop that follows.
        """
        wanted = pb.ContainerFilter(pod_sandbox_id=id_)
        found = await self._engine.ask(pb.ListContainersRequest(filter=wanted), pb.ListContainersResponse)
        for each in found.containers:
            if each.state != pb.CONTAINER_EXITED:
                with suppress(EngineError):
                    request = pb.StopContainerRequest(container_id=each.id, timeout=0)
                    await self._engine.ask(request, pb.StopContainerResponse)

    async def _stop(self, id_: str) -> None:
        request = pb.StopPodSandboxRequest(pod_sandbox_id=id_)
        try:
            await self._engine.ask(request, pb.StopPodSandboxResponse)
        except EngineError as error:
            if not await asyncio.to_thread(remove_torn_result, id_, error.details):
                raise
            await self._engine.ask(request, pb.StopPodSandboxResponse)

    async def network(self, pod_uid: str) -> str:
        """The path of a pod's network namespace; empty if it is the node's. Raises ConnectionError, Unsupported."""
        for each in await self._list({POD: pod_uid}):
            if each.state == pb.SANDBOX_READY:
                with unless_gone():
                    return _network(await self._status(each.id, verbose=True))
        raise ConnectionError(f'pod "{pod_uid}" has no sandbox')

    async def _list(self, labels: dict[str, str]) -> Sequence[pb.PodSandbox]:
        wanted = pb.PodSandboxFilter(label_selector={NODE: self._node, **labels})
        found = await self._engine.ask(pb.ListPodSandboxRequest(filter=wanted), pb.ListPodSandboxResponse)
        return [*found.items]

    async def _status(self, id_: str, *, verbose: bool = False) -> pb.PodSandboxStatusResponse:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=id_, verbose=verbose)
        return await self._engine.ask(request, pb.PodSandboxStatusResponse)

    async def _ip(self, id_: str) -> str:
        """Empty for a sandbox that shares the node's, or is gone."""
        try:
            found = (await self._status(id_)).status
        except EngineError as error:
            if error.code != GONE:
                raise
            return ""
        return "" if _shares_network(found) else found.network.ip


def _shares_network(found: pb.PodSandboxStatus) -> bool:
    return found.linux.namespaces.options.network == pb.NODE


def _network(found: pb.PodSandboxStatusResponse) -> str:
    if _shares_network(found.status):
        return ""
    try:
        about: Any = json.loads(found.info["info"])
        namespaces = about["runtimeSpec"]["linux"]["namespaces"]
        return str(next(each["path"] for each in namespaces if each["type"] == "network" and each.get("path")))
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise Unsupported("the container engine does not say where the pod's network is") from error
