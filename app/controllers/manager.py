"""Controller manager: runs all controllers and periodic tasks while this process is the leader; others stand by.

The lock of the election only saves work: what keeps two apart that act at once are the preconditions of what they commit.
One of them is that the epoch is not over that began with the election, before the mirror was filled.
"""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from app.controllers.apps.deployments import DeploymentController
from app.controllers.apps.replica_sets import ReplicaSetController
from app.controllers.auth.certificate_signing import CertificateSigningController, Signer
from app.controllers.auth.clusterrole_aggregation import ClusterRoleController
from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.job_pending_pods import JobPendingPods
from app.controllers.batch.jobs import JobController
from app.controllers.batch.stored_jobs import JobReads
from app.controllers.disruption import DisruptionController
from app.controllers.endpoint_slices import EndpointSliceController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.garbage_collection.owner_graph import PartialObjectMetadata
from app.controllers.interning import JobInterner, PodInterner, PodStubs
from app.controllers.metrics.dormant_counts import DormantCounts
from app.controllers.metrics.scheduler import COLLECTOR as SCHEDULER_COLLECTOR
from app.controllers.metrics.state import COLLECTOR as STATE_COLLECTOR
from app.controllers.metrics.state import StateMetrics
from app.controllers.namespaces.custom_resource_definitions import CustomResourceDefinitionController
from app.controllers.namespaces.namespaces import NamespaceController
from app.controllers.namespaces.resource_quotas import ResourceQuotaController
from app.controllers.namespaces.root_ca_publisher import RootCAPublisher
from app.controllers.namespaces.serviceaccounts import ServiceAccountController
from app.controllers.nodes.node_ipam import NodeIpamController
from app.controllers.nodes.node_lifecycle import NodeLifecycleController
from app.controllers.retention.dormant_objects import DepartedOwners, DormancyMarking
from app.controllers.retention.event_retention import EventRetention
from app.controllers.retention.job_recorder import JobRecorder, RecordRetention
from app.controllers.retention.log_retention import LogRetention
from app.controllers.runner import Controller, Runner
from app.controllers.scheduling.scheduler import Scheduler
from app.controllers.volumes.persistent_volumes import PersistentVolumeController
from app.controllers.webhooks.webhook_client import WebhookClient
from app.controllers.webhooks.webhook_delivery import WebhookDelivery
from app.controllers.webhooks.webhook_messages import WebhookMessages
from app.kinds import KINDS, by_resource
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.kinds.batch.job import KIND as JOBS
from app.kinds.core.event import KIND as EVENTS
from app.kinds.pod.pod import KIND as PODS
from app.machinery.feature_gates import GENERIC_WORKLOAD
from app.plans.jobs.dormancy import is_alone, is_dormant
from app.registry import job_history
from app.registry.history_loss import reporting_losses
from app.registry.kind_table import KindTable
from app.registry.leader_election import Epoch, begin
from app.registry.periodic_task import Committed, PeriodicTask, run_periodically
from app.registry.registry import Registry
from app.scheduler import DEFAULT, ScoringSettings
from app.store import Compacted, DormantKinds, Mirror, OutcomeUnknown, Store, Unavailable, hold_leader_lock
from app.store.compaction import HistoryCompaction, SecretsCompaction
from app.store.encryption.reencryption import SecretsReencryption
from app.store.logs.logs import CAP
from app.store.table_shrinking import TableShrinking
from app.store.webhook_outbox import WebhookOutbox
from app.structured_logging import Logger

if TYPE_CHECKING:
    from app.controllers.tracing.otlp import OtlpClient

logger = Logger(__name__)
_MIRRORED = (
    ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"),
    ("batch", "v1", "jobs"),
    ("batch", "v1", "cronjobs"),
    ("", "v1", "pods"),
    ("", "v1", "nodes"),
    ("", "v1", "namespaces"),
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ("coordination.k8s.io", "v1", "leases"),
    ("", "v1", "resourcequotas"),
    ("", "v1", "limitranges"),
    ("", "v1", "serviceaccounts"),
    ("scheduling.k8s.io", "v1", "priorityclasses"),
    ("node.k8s.io", "v1", "runtimeclasses"),
    ("rbac.authorization.k8s.io", "v1", "clusterroles"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("", "v1", "services"),
    ("discovery.k8s.io", "v1", "endpointslices"),
    ("scheduling.k8s.io", "v1beta1", "workloads"),
    ("scheduling.k8s.io", "v1beta1", "podgroups"),
    ("jobplane.dev", "v1", "localqueues"),
    ("certificates.k8s.io", "v1", "certificatesigningrequests"),
    ("", "v1", "persistentvolumes"),
    ("", "v1", "persistentvolumeclaims"),
    ("storage.k8s.io", "v1", "storageclasses"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"),
)
# Lower than those that processes begin with: to look through 400,000 new objects at once holds up the event loop for 0.3 s.
_GC_THRESHOLDS = 10_000, 3, 600
_PAUSE, _LONGEST_PAUSE = 0.25, 10.0  # seconds after an election that led to nothing
NAME = "jobplane-controllers"  # of the election, and of the Lease that tells who acts
LEADER = "leader_election_master_status", "1 while this process is the leader of the controllers, else 0.", ("name",)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """For how long, and how much of it, what nobody needs for ever is kept."""

    history: timedelta = timedelta(hours=1)
    events: timedelta = timedelta(hours=1)
    secrets: timedelta = timedelta(minutes=5)  # versions that were deleted or replaced
    logs: timedelta = timedelta(hours=168)
    log_cap: int = CAP
    records: timedelta = timedelta(hours=720)


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """How nodes are looked after.

    grace:    without a lease renewal, after which a node is lost.
    pod_cidr: nodes get parts of it; None: they get none.
    """

    grace: timedelta
    pod_cidr: IPv4Network | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterAuthority:
    """The authority of the API's certificate.

    certificate: PEM, for every namespace; empty if it is not known.
    sign:        signs client certificates; nobody does, where its key is not at hand.
    longest:     life of a client certificate.
    """

    certificate: str = ""
    sign: Signer = lambda *_: None
    longest: timedelta = timedelta(days=30)


async def run(
    registry: Registry,
    *,
    nodes: NodeSettings,
    retention: Retention = Retention(),
    authority: ClusterAuthority = ClusterAuthority(),
    scheduling: ScoringSettings = DEFAULT,
    webhooks: WebhookClient | None = None,
    traces: "OtlpClient | None" = None,
) -> None:
    """Stand for election and act, for ever; returns only when cancelled."""
    client = webhooks or WebhookClient()
    pause, attempt = _PAUSE, 0
    registry.metrics.gauge(*LEADER).set(0, NAME)
    async with reporting_losses(registry):
        while True:
            try:
                async with hold_leader_lock(registry.store, NAME) as lost:
                    epoch = await begin(registry, NAME)
                    pause, attempt = _PAUSE, attempt + 1
                    logger.info("elected leader; starting the controllers", attempt=attempt)
                    mirror = new_mirror()
                    await DormancyMarking(registry.store, mirror, lambda: True).prepare()
                    dormant = StateMetrics(registry.metrics, mirror).dormant
                    runners = [
                        Runner(registry, mirror, each, epoch)
                        for each in controllers(registry, mirror, nodes, authority, scheduling)
                    ]
                    periodic = periodic_tasks(registry, epoch, retention, client)
                    periodic += dormant_tasks(registry.store, mirror, dormant)
                    if traces is not None:
                        from app.controllers.tracing.trace_export import TraceExport

                        periodic.append(TraceExport(registry.store, mirror, traces, registry.metrics))
                    await _lead(registry, mirror, dormant, runners, periodic, epoch, lost)
                logger.warning("lost leadership; standing for election again")
            except (Unavailable, OutcomeUnknown, Compacted) as error:  # while it began its epoch, or read what there is
                logger.warning("lost leadership; standing for election again after a pause", seconds=pause, error=error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)


async def _lead(
    registry: Registry,
    mirror: Mirror,
    dormant: DormantCounts,
    runners: Sequence[Runner],
    periodic: Sequence[PeriodicTask],
    epoch: Epoch,
    lost: asyncio.Event,
) -> None:
    """Return when the leadership is lost, or the feed lost touch with the database."""
    feed = registry.store.feed
    feed.lost_touch.clear()
    await registry.store.fill(mirror)
    gc.freeze()  # a search for cycles would look through all of it again and again; its objects have none
    gc.set_threshold(*_GC_THRESHOLDS)
    registry.metrics.gauge(*LEADER).set(1, NAME)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runner.run()) for runner in runners]
            tasks += [group.create_task(_run_periodically(registry, each)) for each in periodic]
            tasks.append(group.create_task(_count_dormant(registry.store, dormant)))
            ends = [group.create_task(event.wait()) for event in (lost, feed.lost_touch, epoch.over)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, *ends):
                task.cancel()
    finally:
        registry.metrics.gauge(*LEADER).set(0, NAME)
        feed.leave(mirror.apply)
        for each in (STATE_COLLECTOR, SCHEDULER_COLLECTOR):  # what a leader knows is known no longer
            registry.metrics.remove_collector(each)


async def _run_periodically(registry: Registry, task: PeriodicTask) -> None:
    """Run a task until cancelled. One that reads history waits for commits."""
    work = Committed(registry.store.feed) if isinstance(task, JobRecorder | WebhookMessages) else None
    await run_periodically(task, registry.now, work=work)


async def _count_dormant(store: Store, dormant: DormantCounts) -> None:
    """Meanwhile controllers act: they need no numbers."""
    while not dormant.is_complete:
        try:
            await dormant.read(store)
        except Unavailable as error:
            logger.warning("cannot count dormant objects; trying again", error=error)
            await asyncio.sleep(_PAUSE)


def new_mirror() -> Mirror:
    """An empty copy of all that controllers look at: of most kinds only what belongs to what. Events are too many.

    Of pods that are counted it keeps no more than of most kinds, and nothing when their Job has ended; of custom objects nothing
    if they belong to nothing, nothing belongs to them, and nothing holds them.
    """
    whole = [kind for each in _MIRRORED if (kind := by_resource(*each))]
    others = [kind for kind in KINDS if kind.storage is None and kind not in whole and kind is not EVENTS]
    types = {kind.resource: kind.type for kind in whole} | {kind.resource: PartialObjectMetadata for kind in others}
    share = {PODS.resource: PodInterner().intern, JOBS.resource: JobInterner().intern}
    declare = {DEFINITIONS.resource: lambda crd: {crd.metadata.name: PartialObjectMetadata}}
    dormant = DormantKinds(JOBS.resource, PODS.resource, is_dormant)
    return Mirror(types, {PODS.resource: PodStubs().cut}, share, declare, dormant, is_alone)


def controllers(
    registry: Registry,
    mirror: Mirror,
    nodes: NodeSettings,
    authority: ClusterAuthority = ClusterAuthority(),
    scheduling: ScoringSettings = DEFAULT,
) -> list[Controller]:
    kinds = KindTable(mirror)
    publishing = [RootCAPublisher(mirror, registry.store, authority.certificate)] if authority.certificate else []
    return [
        JobController(
            mirror,
            registry.admission.locks,
            registry.features,
            reads=_job_reads(registry),
            pod_security=registry.pod_security,
            admission=registry.admission,
        ),
        JobPendingPods(mirror),
        CronJobController(
            mirror,
            registry.admission.locks,
            registry.pod_security,
            registry.admission,
            read_stored=registry.store.get_many,
        ),
        DeploymentController(mirror, registry.admission.locks, registry.pod_security, registry.admission),
        ReplicaSetController(mirror, registry.admission.locks, registry.pod_security, registry.admission),
        ResourceQuotaController(mirror, registry.store, registry.admission.locks),
        PersistentVolumeController(mirror, registry.admission.locks),
        Scheduler(mirror, scheduling, registry.metrics, has_groups=GENERIC_WORKLOAD in registry.features),
        NodeLifecycleController(mirror, registry.clock, registry.elapsed, nodes.grace),
        GarbageCollector(mirror, registry.store, kinds),
        NamespaceController(mirror, registry.store, kinds),
        CustomResourceDefinitionController(kinds, registry.store),
        ServiceAccountController(mirror),
        ClusterRoleController(mirror),
        DisruptionController(mirror),
        EndpointSliceController(mirror),
        CertificateSigningController(mirror, authority.sign, authority.longest),
        *publishing,
        *([NodeIpamController(mirror, nodes.pod_cidr)] if nodes.pod_cidr else []),
    ]


def _job_reads(registry: Registry) -> JobReads:
    store = registry.store
    ended = partial(job_history.find_ended, registry)
    return JobReads(store.get_many, ended, store.dormant.due, store.dormant.next_expiry)


def periodic_tasks(
    registry: Registry, epoch: Epoch, retention: Retention, webhooks: WebhookClient
) -> list[PeriodicTask]:
    """Return what the leader does from time to time. Events are objects, and so written under the leader's epoch."""
    store = registry.store
    outbox = WebhookOutbox(store.pool)
    return [
        EventRetention(store, partial(epoch.commit, store), retention.events),
        JobRecorder(store.job_record_writer),
        RecordRetention(store.job_record_writer, retention.records),
        LogRetention(store.kept_logs, retention.logs, retention.log_cap),
        HistoryCompaction(store.pool, retention.history),
        SecretsCompaction(store.pool, retention.secrets),
        TableShrinking(store.pool),
        SecretsReencryption(store.pool, store.keys),
        WebhookMessages(store, outbox),
        WebhookDelivery(store, outbox, webhooks, partial(epoch.commit, store)),
    ]


def dormant_tasks(store: Store, mirror: Mirror, dormant: DormantCounts) -> list[PeriodicTask]:
    """Return what the leader does from time to time about what has ended and is not in the mirror."""
    return [
        DormancyMarking(store, mirror, lambda: dormant.is_complete),
        DepartedOwners(store),
    ]
