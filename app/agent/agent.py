"""Agent: makes its parts, runs their loops and restarts them. Started by `app.main.agent_process`, which owns signals.

Cancelling `run` ends it cleanly and leaves the containers running, for the next agent to adopt.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from app.agent.clock import Clock, WallClock
from app.agent.config import AgentConfig
from app.agent.logs import LogShipper
from app.agent.network.api_relay import ApiRelay
from app.agent.network.cluster_dns import FILE, ClusterDns, is_loopback, loopback_candidates
from app.agent.network.dns_responder import DnsResponder
from app.agent.network.dns_upstream import DnsUpstream
from app.agent.network.pod_network import NetworkedRuntime, PodNetworkManager
from app.agent.network.service_lookup import ServiceLookup
from app.agent.node import rootless
from app.agent.node.credential import CredentialRenewal
from app.agent.node.device_sources import EMPTY, Inventory
from app.agent.node.devices import DeviceManager
from app.agent.node.eviction_manager import EvictionManager
from app.agent.node.image_gc_manager import ImageGcManager, read_disk
from app.agent.node.join import CaRotation, credential_path
from app.agent.node.lease import Leases
from app.agent.node.node import NodeFacts, Nodes, address_towards, allocatable, existing
from app.agent.node.pressure import Pressures, eviction_thresholds
from app.agent.node.shutdown import shut_down
from app.agent.node.usage import UsageReporter
from app.agent.pods.container_config import Host
from app.agent.pods.environment import Lookup, StorageLookup
from app.agent.pods.hosts_file import HostsFiles
from app.agent.pods.isolation import isolation_label, log_isolation
from app.agent.pods.lease_expiry import LeaseExpired, LeaseExpiry
from app.agent.pods.memory_peaks import MemoryPeaks
from app.agent.pods.namespace_levels import NamespaceLevels
from app.agent.pods.pod_watches import PodWatches
from app.agent.pods.pods import Pods
from app.agent.pods.referred_objects import ReferredObjects
from app.agent.pods.resolv_conf import ResolvConfFiles
from app.agent.pods.sandbox_config import node_servers
from app.agent.pods.status_reports import StatusReporter
from app.agent.streams import CallHandler
from app.agent.tasks import restart_forever, retry_until_done
from app.agent.volumes.removal import MOST_NODES, VolumeRemoval
from app.agent.volumes.volumes import VolumeRefresh, Volumes
from app.client.api import Api
from app.kinds.core.node import NodeCondition
from app.machinery.base import Quantity
from app.runtimes.base import Runtime, RuntimeInfo
from app.structured_logging import name_pods_by

if TYPE_CHECKING:
    from app.agent.metrics import AgentMetrics
    from app.agent.node.client_certificate import ClientCertificate

STARTS_PER_CORE = 2
_LOOK_SECONDS = 1.0  # between looks whether the pods of a revoked agent have ended

Loop = tuple[str, Callable[[], Awaitable[None]]]  # and its name


class RevokedError(Exception):
    """The agent's credential is no longer good; the text says what to do."""


class Agent:
    """Runs the pods of its nodes with one runtime. The caller closes the runtime; `api` and `clock` are for tests.

    `inventory`: devices of the node. `metrics`: None if nobody scrapes them.
    """

    def __init__(
        self,
        config: AgentConfig,
        runtime: Runtime,
        api: Api | None = None,
        clock: Clock | None = None,
        *,
        inventory: Inventory = EMPTY,
        metrics: "AgentMetrics | None" = None,
    ) -> None:
        self._config, self._runtime, self._inventory, self._metrics = config, runtime, inventory, metrics
        self._api = api or Api(config.server, config.token, config.ca_file, tls_name=config.tls_name)
        self._clock = clock or WallClock()
        self._certificate = _client_certificate(config, self._api, self._clock)
        self._parts: tuple[Pods, Nodes] | None = None
        self._network: PodNetworkManager | None = None
        self._gateway = ""  # of the pods' own network, where the node's DNS is
        self._revoked = asyncio.Event()

    async def run(self) -> None:
        """For ever, until cancelled. Raises RevokedError."""
        try:
            info = await retry_until_done(self._clock, "the runtime", self._runtime.info)
            if self._certificate is not None:
                await self._certificate.prepare()
            await self._run(info)
        except ExceptionGroup as group:  # and not `except*`: before Python 3.11.4, that raises a group again
            revoked, others = group.split(RevokedError)
            if revoked is None:
                raise
            raise revoked.exceptions[0] from others
        finally:
            await self._api.close()

    async def shut_down(self) -> None:
        """While it runs: ends the pods within the configured grace period, if any, and reports the node as not ready."""
        if self._parts is not None and self._config.shutdown_grace_period:
            await shut_down(*self._parts, self._config, self._clock)

    async def _stop_when_revoked(self, pods: Pods) -> None:
        await self._revoked.wait()
        while any(worker.is_live for worker in pods.workers()):
            await self._clock.sleep(_LOOK_SECONDS)
        raise RevokedError(
            f"the API no longer takes the credential of {', '.join(self._config.node_names)}: it was revoked. "
            "Its pods have been stopped. To join again, give a --join-token"
        )

    async def _run(self, info: RuntimeInfo) -> None:
        names = self._config.node_names
        log_isolation(info)
        logs = LogShipper(self._api, self._runtime, self._clock)
        reporter = StatusReporter(self._api, names, self._clock)
        host = self._host(info)
        lease_expiry = LeaseExpiry(self._config.lease, self._clock)
        pods = Pods(
            host, names, reporter, logs, lease_expiry, self._config.starts or STARTS_PER_CORE * (os.cpu_count() or 1)
        )
        name_pods_by(pods.log_fields)
        watches = PodWatches(self._api, pods, with_levels=host.levels is not None)
        leases = self._leases(lease_expiry, pods, watches)
        nodes = Nodes(
            self._api, names, self._facts(host), self._clock, pods.sync.images.on_node if pods.sync.images else None
        )
        self._parts = pods, nodes
        self._count(pods, reporter, leases)
        # The lease first: a node that is cut off must not go on with the pods that it finds running.
        first: list[Loop] = [
            ("leases", leases.run),
            ("nodes", nodes.run),
            ("runtime events", pods.follow_events),
            ("logs of the runtime", pods.follow_logs),
            ("logs", logs.run),
            ("statuses", lambda: reporter.run(pods.on_report_answered)),
        ]
        after_adoption: list[Loop] = [
            ("relist", pods.relist),
            ("usage", UsageReporter(self._api, self._runtime, info, names, pods.node_of, self._clock).run),
            *self._pod_network(host, nodes),
            *self._upkeep(host, pods),
            *self._volume_removal(host),
            *self._ca_rotation(),
            *self._credential_renewal(watches),
            ("calls", CallHandler(self._api, self._runtime, names, pods.node_of, self._clock).run),
            *((f"pods of {name}", partial(watches.run, name)) for name in names),
        ]
        try:
            async with host.dns or nullcontext(), asyncio.TaskGroup() as group:
                self._start(group, first)
                group.create_task(self._stop_when_revoked(pods))
                await retry_until_done(self._clock, "containers that run already", pods.adopt)
                self._start(group, after_adoption)
        finally:
            await pods.close()

    def _start(self, group: asyncio.TaskGroup, loops: Iterable[Loop]) -> None:
        for what, loop in loops:
            group.create_task(restart_forever(self._clock, what, loop))

    def _leases(self, lease_expiry: LeaseExpiry, pods: Pods, watches: PodWatches) -> Leases:
        def on_expired(expired: LeaseExpired) -> None:
            lease_expiry.on_expired(expired)
            pods.on_lease_expired(expired.node)
            if expired.for_good:
                self._revoked.set()

        config, on_renewed = self._config, partial(_on_renewed, lease_expiry, watches)
        return Leases(self._api, config.node_names, config.lease, self._clock, on_expired, on_renewed)

    def _count(self, pods: Pods, reporter: StatusReporter, leases: Leases) -> None:
        if self._metrics is not None:
            self._metrics.follow(self._api, pods, reporter, leases)

    def _upkeep(self, host: Host, pods: Pods) -> list[Loop]:
        """Loops that keep the node fit for pods. A simulated node has none."""
        if not host.info.runs_commands:
            return []
        volumes = VolumeRefresh(host.volumes, pods.all, host.clock)
        store = Path(host.info.store) if host.info.store and Path(host.info.store).exists() else self._config.state_dir
        image_gc = ImageGcManager(
            host.runtime,
            pods.sync.images,
            pods.images_in_use,
            pods.remove_old_runs,
            partial(read_disk, store),
            host.clock,
        )
        free_images = partial(image_gc.collect, now=True)
        eviction = EvictionManager(pods, host.runtime.usage, host.volumes, host.pressures, free_images, host.clock)
        peaks = MemoryPeaks(host.runtime, pods.worker_of, host.clock)
        return [
            *([("relay to the API", host.dns.run)] if host.dns else []),
            ("memory peaks", peaks.run),
            ("files of volumes", volumes.run),
            ("eviction", eviction.run),
            ("images that nobody uses", image_gc.run),
            ("runs that others have followed", image_gc.run_for_containers),
        ]

    def _volume_removal(self, host: Host) -> list[Loop]:
        """Loops that remove the data of released volumes. A large fleet of simulated nodes has none."""
        names = self._config.node_names
        if len(names) > MOST_NODES:
            return []
        removal = VolumeRemoval(self._api, host.volumes.claims, self._clock)
        following = [(f"released volumes of {name}", partial(removal.follow, name)) for name in names]
        return [("removal of volumes", removal.run), *following]

    def _pod_network(self, host: Host, nodes: Nodes) -> list[Loop]:
        """The loop that sets up the network of pods, where the runtime lets the agent."""
        ip = host.ip
        runtime, (node, *others) = self._runtime, self._config.node_names
        if not isinstance(runtime, NetworkedRuntime) or others or (is_loopback(ip) and host.info.pod_network):
            return []

        async def on_cidr(cidr: str) -> None:
            if host.dns is not None and is_loopback(host.dns.address):
                self._gateway = str(next(IPv4Network(cidr).hosts()))
                await host.dns.move(self._gateway)

        def on_change() -> Awaitable[object]:
            return nodes.check(node)

        self._network = PodNetworkManager(self._api, node, ip, runtime, self._clock, on_change, on_cidr)
        return [("pod network", self._network.run)]

    async def _await_network(self) -> None:
        if self._network is not None:
            await self._network.decided()

    def _ca_rotation(self) -> list[Loop]:
        """The loop that follows the API's authority, if its file is in this agent's own folder."""
        kept, given = self._config.state_dir / "ca.crt", self._config.ca_file
        own = given is not None and kept.exists() and kept.samefile(given)
        return [("authority", CaRotation(self._api, kept, self._clock).run)] if own else []

    def _credential_renewal(self, watches: PodWatches) -> list[Loop]:
        """Loops that renew the client certificate, and the credential in this agent's own folder, which it got by joining."""
        kept, config = credential_path(self._config.state_dir), self._config
        loops: list[Loop] = [("client certificate", self._certificate.run)] if self._certificate else []
        if not kept.exists() or kept.read_text().strip() != config.token:
            return loops
        renewal = CredentialRenewal(self._api, config.state_dir, config.node_names[0], self._clock, watches.relist)
        return [*loops, ("credential", renewal.run)]

    def _facts(self, host: Host) -> NodeFacts:
        return NodeFacts(
            ip=host.ip,
            disk=self._config.state_dir,
            runtime=host.info,
            pressures=host.pressures,
            capacity=self._capacity(),
            conditions=partial(self._conditions, host.info),
            labels={
                **self._inventory.labels,
                **isolation_label(host.info.isolation),
                **rootless.labels(host.info),
                **self._config.labels,
            },
        )

    def _conditions(self, info: RuntimeInfo) -> list[NodeCondition]:
        network = self._network.condition if self._network else None
        return [each for each in (network, rootless.condition(info)) if each is not None]

    def _host(self, info: RuntimeInfo) -> Host:
        config = self._config
        ip = config.address or address_towards(config.server)
        limits = (
            eviction_thresholds(config.eviction_hard) if info.runs_commands else {}
        )  # simulated nodes are never short
        gives = allocatable(config.state_dir, self._capacity(), limits)
        referred = ReferredObjects(self._api, self._clock)
        lookup = Lookup(
            referred.config_map,
            referred.secret,
            gives,
            referred.token,
            config.server,
            StorageLookup(referred.claim, referred.persistent_volume),
            referred.runtime_class,
        )
        volumes = Volumes(
            config.state_dir / "volumes",
            ip,
            lookup,
            self._clock,
            isolated=info.images,
            private=(config.state_dir.parent, Path.home()),
        )
        dns = self._cluster_dns(info, ip)
        hosts = HostsFiles(config.state_dir / "hosts", info, ip, lambda: dns is not None and dns.address != "")
        return Host(
            runtime=self._runtime,
            info=info,
            ip=ip,
            lookup=lookup,
            volumes=volumes,
            hosts=hosts,
            resolv_conf=ResolvConfFiles(config.state_dir / "hosts", info),
            state_dir=config.state_dir,
            dns=dns,
            await_network=self._await_network,
            clock=self._clock,
            pressures=Pressures(existing(config.state_dir), self._clock, limits),
            devices=self._devices(info),
            levels=NamespaceLevels(self._api, config.node_names, self._clock)
            if info.isolation or info.images
            else None,
        )

    def _cluster_dns(self, info: RuntimeInfo, ip: str) -> ClusterDns | None:
        """None where pods cannot be told of it, or reach no address of this machine."""
        config, file = self._config, self._config.state_dir / FILE
        if not (info.runs_commands and info.mounts) or (info.pod_network and is_loopback(ip)):
            return None

        def is_local(address: str) -> bool:
            if is_loopback(address):
                return not info.pod_network
            return address in (ip, self._gateway) or (self._parts is not None and self._parts[0].has_address(address))

        lookup = ServiceLookup(self._api, config.node_names, self._clock)
        responder = DnsResponder(lookup, DnsUpstream(node_servers), is_local)
        candidates = [ip] if info.pod_network else loopback_candidates(file)
        return ClusterDns(responder, ApiRelay(config.server, is_local), candidates, file, self._clock)

    def _devices(self, info: RuntimeInfo) -> DeviceManager:
        if not info.runs_commands:
            return DeviceManager()  # many simulated nodes may have the same
        return DeviceManager(self._inventory, self._config.state_dir / "devices.json", isolated=info.images)

    def _capacity(self) -> dict[str, Quantity]:
        return {**self._inventory.capacity, **self._config.capacity}


def _on_renewed(lease_expiry: LeaseExpiry, watches: PodWatches, node: str) -> None:
    lease_expiry.on_renewed(node)
    watches.relist(node)


def _client_certificate(config: AgentConfig, api: Api, clock: Clock) -> "ClientCertificate | None":
    if not config.client_certificate:
        return None
    from app.agent.node.client_certificate import ClientCertificate  # cryptography takes 10 MiB that others do without

    return ClientCertificate(api, config.state_dir, config.node_names[0], clock, config.ca_file)
