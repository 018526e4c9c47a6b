"""The agent: makes its parts and keeps their loops going. Started by `app.main.agent_process`, which owns signals.

Cancelling `run` ends it cleanly and leaves the containers running, for the next agent to adopt.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from app.agent.clock import Clock, WallClock
from app.agent.logs import Logs
from app.agent.node.device_sources import EMPTY, Inventory
from app.agent.node.devices import Devices
from app.agent.node.lease import Leases
from app.agent.node.node import Facts, Nodes, address_towards, allocatable, existing
from app.agent.node.pressure import THRESHOLDS, Pressures, Thresholds
from app.agent.node.shutdown import Graces, shut_down
from app.agent.node.trust import Trust
from app.agent.node.upkeep import Upkeep
from app.agent.node.usage import Usages
from app.agent.pod_watch import Watches
from app.agent.pods.container_config import Host
from app.agent.pods.environment import Lookup
from app.agent.pods.hosts_file import Hosts
from app.agent.pods.lease_expiry import Fences, LeaseExpired
from app.agent.pods.pods import Pods
from app.agent.pods.status_reports import Reports
from app.agent.streams import Streams
from app.agent.tasks import level_of
from app.agent.volumes.volumes import Volumes
from app.client.api import Api
from app.kinds.auth.authentication import BoundObjectReference, TokenRequest, TokenRequestSpec
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.secret import Secret
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import ServiceAccountTokenProjection
from app.machinery.base import O, Quantity
from app.machinery.errors import ApiError
from app.runtimes.base import Runtime, RuntimeInfo
from app.structured_logging import Logger, name_pods_by

STARTS_PER_CORE = 2
AGAIN = 1.0
LONGEST_PAUSE = 30.0  # seconds; before a loop that the API has refused is restarted
FORBIDDEN = (401, 403)

T = TypeVar("T")

logger = Logger(__name__)


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """All that an agent is told.

    tls_name:   whom the API's certificate is for, if not for the host in `server`.
    node_names: one, or the many of a pretended fleet.
    capacity:   overrides what the machine has, such as {"cpu": "8", "pods": "500"}.
    address:    the nodes' InternalIP; found by itself if empty.
    starts:     how many pods may be starting at once; 0: two a core.
    lease:      how long a node is trusted without word; after that its pods are stopped when what they bear is over.
    devices:    what the node has for containers that ask for it.
    shutdown:   what `shut_down` may take.
    thresholds: what must stay free, or pods have to go.
    """

    server: str
    token: str = ""
    ca_file: Path | None = None
    tls_name: str = ""
    node_names: tuple[str, ...]
    state_dir: Path
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    starts: int = 0
    lease: timedelta = timedelta(seconds=40)
    devices: Inventory = EMPTY
    shutdown: Graces = field(default_factory=Graces)
    thresholds: Thresholds = field(default_factory=lambda: THRESHOLDS)


class RevokedError(Exception):
    """The agent's credential is no longer good; the text says what to do."""


class Agent:
    """Runs the pods of its nodes with one runtime. The caller closes the runtime; `api` and `clock` are for tests."""

    def __init__(
        self, settings: AgentSettings, runtime: Runtime, api: Api | None = None, clock: Clock | None = None
    ) -> None:
        self._settings, self._runtime = settings, runtime
        self._api = api or Api(settings.server, settings.token, settings.ca_file, tls_name=settings.tls_name)
        self._clock = clock or WallClock()
        self._parts: tuple[Pods, Nodes] | None = None
        self._revoked = asyncio.Event()

    async def run(self) -> None:
        """For ever, until cancelled. Raises RevokedError."""
        try:
            info = await self._until_it_works("the runtime", self._runtime.info)
            await self._run(info)
        except ExceptionGroup as group:  # and not `except*`: before Python 3.11.4, that raises a group again
            revoked, others = group.split(RevokedError)
            if revoked is None:
                raise
            raise revoked.exceptions[0] from others
        finally:
            await self._api.close()

    async def shut_down(self) -> None:
        """While it runs: ends the pods within the graces that were told, if any, and says that the node is not ready."""
        if self._parts is not None and self._settings.shutdown.whole:
            await shut_down(*self._parts, self._settings.shutdown, self._clock)

    async def _stop_when_revoked(self, pods: Pods) -> None:
        await self._revoked.wait()
        while any(work.is_live for work in pods.works()):
            await self._clock.sleep(AGAIN)
        raise RevokedError(
            f"the API no longer takes the credential of {', '.join(self._settings.node_names)}: it was revoked. "
            "Its pods have been stopped. To join again, give a --join-token"
        )

    async def _run(self, info: RuntimeInfo) -> None:
        names = self._settings.node_names
        logs = Logs(self._api, self._runtime, self._clock)
        reports = Reports(self._api, names, self._clock)
        host = self._host(info)
        fences = Fences(self._settings.lease, self._clock)
        pods = Pods(
            host, names, reports, logs, fences, self._settings.starts or STARTS_PER_CORE * (os.cpu_count() or 1)
        )
        name_pods_by(pods.log_fields)
        watches = Watches(self._api, pods)

        def silent(silence: LeaseExpired) -> None:
            fences.silent(silence)
            pods.silent(silence.node)
            if silence.for_good:
                self._revoked.set()

        def heard(node: str) -> None:
            fences.heard(node)
            watches.anew(node)

        leases = Leases(self._api, names, self._settings.lease, self._clock, silent, heard)
        nodes = Nodes(self._api, names, self._facts(host), self._clock, pods.images.on_node if pods.images else None)
        self._parts = pods, nodes
        usages = Usages(self._api, self._runtime, info, names, pods.node_of, self._clock)
        loops = [*Upkeep(host, pods, self._settings.state_dir).loops(), *self._trusting()]
        streams = Streams(self._api, self._runtime, names, pods.node_of, self._clock)
        try:
            async with asyncio.TaskGroup() as group:
                # The lease first: a node that cannot be heard must not go on with what it finds running.
                group.create_task(self._kept("leases", leases.run))
                group.create_task(self._kept("nodes", nodes.run))
                group.create_task(self._stop_when_revoked(pods))
                group.create_task(self._kept("runtime events", pods.follow_events))
                group.create_task(self._kept("logs of the runtime", pods.follow_logs))
                group.create_task(self._kept("logs", logs.run))
                group.create_task(self._kept("statuses", lambda: reports.run(pods.heard)))
                await self._until_it_works("containers that run already", pods.adopt)
                group.create_task(self._kept("relist", pods.relist))
                group.create_task(self._kept("usage", usages.run))
                for what, loop in loops:
                    group.create_task(self._kept(what, loop))
                group.create_task(self._kept("calls", streams.run))
                for name in names:
                    group.create_task(self._kept(f"pods of {name}", partial(watches.run, name)))
        finally:
            await pods.close()

    def _trusting(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """The loop that follows the API's authority, if its file is in this agent's own folder."""
        kept, given = self._settings.state_dir / "ca.crt", self._settings.ca_file
        own = given is not None and kept.exists() and kept.samefile(given)
        return [("authority", Trust(self._api, kept, self._clock).run)] if own else []

    def _facts(self, host: Host) -> Facts:
        return Facts(
            ip=host.ip,
            disk=self._settings.state_dir,
            runtime=host.info,
            pressures=host.pressures,
            capacity=self._capacity(),
            labels={**self._settings.devices.labels, **self._settings.labels},
        )

    def _host(self, info: RuntimeInfo) -> Host:
        settings = self._settings
        ip = settings.address or address_towards(settings.server)
        limits = settings.thresholds if info.runs_commands else {}  # a pretended fleet runs short of nothing
        gives = allocatable(settings.state_dir, self._capacity(), limits)
        lookup = Lookup(self._config_map, self._secret, gives, self._token, settings.server)
        volumes = Volumes(settings.state_dir / "volumes", ip, lookup, self._clock, isolated=info.images)
        hosts = Hosts(settings.state_dir / "hosts", info, ip)
        return Host(
            runtime=self._runtime,
            info=info,
            ip=ip,
            lookup=lookup,
            volumes=volumes,
            hosts=hosts,
            clock=self._clock,
            pressures=Pressures(existing(settings.state_dir), self._clock, limits),
            devices=self._devices(info),
        )

    def _devices(self, info: RuntimeInfo) -> Devices:
        if not info.runs_commands:
            return Devices()  # many pretended nodes may have the same
        return Devices(self._settings.devices, self._settings.state_dir / "devices.json", isolated=info.images)

    def _capacity(self) -> dict[str, Quantity]:
        return {**self._settings.devices.capacity, **self._settings.capacity}

    async def _config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return await self._read(f"/api/v1/namespaces/{namespace}/configmaps/{name}", ConfigMap)

    async def _secret(self, namespace: str, name: str) -> Secret | None:
        return await self._read(f"/api/v1/namespaces/{namespace}/secrets/{name}", Secret)

    async def _token(self, pod: Pod, asked: ServiceAccountTokenProjection) -> tuple[str, float]:
        meta, account = pod.metadata, pod.spec.service_account_name or "default"
        body = TokenRequest(
            spec=TokenRequestSpec(
                audiences=(asked.audience,) if asked.audience else (),
                expiration_seconds=asked.expiration_seconds,
                bound_object_ref=BoundObjectReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid),
            )
        )
        path = f"/api/v1/namespaces/{meta.namespace}/serviceaccounts/{account}/token"
        given = msgspec.json.decode(await self._api.request("POST", path, body), type=TokenRequest)
        ends_at = given.status.expiration_timestamp
        return given.status.token, (ends_at - self._clock.now()).total_seconds() if ends_at else 0

    async def _read(self, path: str, kind: type[O]) -> O | None:
        try:
            return await self._api.read(path, kind)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def _kept(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop that should not end, and restart it when it does; later each time that the API refuses it at once."""
        pause = AGAIN
        while True:
            began_at = self._clock.elapsed()
            try:
                await loop()
            except ConnectionError as error:
                logger.at(level_of(error), "task failed; restarting it", task=name, error=error)
            except ApiError as error:
                pause = AGAIN if self._clock.elapsed() - began_at > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
                logger.error(
                    "task failed; restarting it after a pause",
                    task=name,
                    seconds=pause,
                    error=f"{error.message}{_advice(error)}",
                )
                await self._clock.sleep(pause)
                continue
            except Exception as error:
                logger.error("task failed; restarting it", task=name, traceback_of=error)
            await self._clock.sleep(AGAIN)

    async def _until_it_works(self, name: str, once: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await once()
            except ConnectionError as error:
                logger.at(level_of(error), "task cannot start yet; retrying", task=name, error=error)
            except Exception as error:
                logger.error("task cannot start yet; retrying", task=name, traceback_of=error)
            await self._clock.sleep(AGAIN)


def _advice(error: ApiError) -> str:
    """Advice for a refusal that is the credential's fault; else empty."""
    if error.code not in FORBIDDEN:
        return ""
    return ". The agent's token is not for this node: give it one of `jobplane token --node NAME`, or a --join-token"
