"""Registry: what the verbs, the API and the controllers of one process work with. Made by the command line.

The functions for objects are in `objects`, `lists`, `watch`, and take it as their first argument; what is stored beside
objects (tokens, logs, calls of agents) it hands out itself.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from app.machinery.errors import ApiError
from app.machinery.feature_gates import DEFAULTS, Features
from app.metrics.registry import MetricsRegistry
from app.plans.admission.pod_security.namespace_policy import USUAL_CONFIGURATION, PodSecurityConfiguration
from app.registry.admission.admission import Admission
from app.registry.admission.policy_cache import PolicyCache
from app.registry.agents.pod_network_cache import PodNetworkCache
from app.registry.agents.service_cache import ServiceCache
from app.registry.conversion import Converter
from app.registry.kind_table import KindCache
from app.store import READ_ONLY, Store
from app.store.encryption.master_keys import MasterKeyError
from app.store.encryption.reencryption import DataKeyUse
from app.store.job_records import JobRecords
from app.store.logs.kept_logs import KeptLogs
from app.store.logs.logs import Logs
from app.store.notifications import AgentCalls
from app.store.tokens import Tokens


@dataclass(frozen=True)
class Registry:
    """The store, the clock that stamps what is written, and the feature gates that are on.

    The API asks this, and the functions that take it, for all that is stored; it never reaches for `store`.

    monotonic: seconds that only rise, by which is waited; those of `clock` if none is given.
    pod_security: what is asked of the pods of namespaces without labels, and the namespaces that are exempt.
    pod_cidr: of the cluster, as far as this process was told; empty: there is none, or the nodes say.
    """

    store: Store
    clock: Callable[[], datetime]
    features: Features = DEFAULTS
    monotonic: Callable[[], float] | None = None
    pod_security: PodSecurityConfiguration = USUAL_CONFIGURATION
    pod_cidr: str = ""

    @property
    def tokens(self) -> Tokens:
        return self.store.tokens

    @property
    def logs(self) -> Logs:
        return self.store.logs

    @property
    def kept_logs(self) -> KeptLogs:
        return self.store.kept_logs

    @property
    def job_records(self) -> JobRecords:
        return self.store.job_records

    @property
    def agent_calls(self) -> AgentCalls:
        return self.store.agent_calls

    @property
    def metrics(self) -> MetricsRegistry:
        """The metrics of this process."""
        return self.store.metrics

    @property
    def database_url(self) -> str:
        return self.store.dsn

    async def data_keys(self) -> Sequence[DataKeyUse]:
        """The keys that encrypt Secrets, and how much is stored under each."""
        return await self.store.data_keys()

    async def rotate_data_keys(self) -> None:
        """Encrypt Secrets under a new data key, from a few seconds on. 409 without a master key."""
        await _with_master_key(self.store.rotate_data_keys())

    async def decrypt_secrets(self) -> None:
        """Store Secrets as plain text, from a few seconds on. 409 without a master key."""
        await _with_master_key(self.store.decrypt_secrets())

    async def revision(self) -> int:
        """The last revision given out."""
        return await self.store.revision()

    @property
    def cursor(self) -> int:
        """The revision up to which this process knows all changes."""
        return self.store.feed.cursor

    async def is_lost(self, revision: int) -> bool:
        """Return whether the database has lost the revision, as when a backup was restored."""
        return await self.store.is_lost(revision)

    async def reach(self, revision: int, seconds: float) -> bool:
        """Return whether a revision has been given out, as far as it is known here within a time."""
        if revision <= self.cursor or revision <= await self.revision():
            return True
        return await self.store.feed.reach_within(revision, seconds)

    @property
    def log_growth(self) -> int:
        """A number that rises when some log grows."""
        return self.store.log_growth.count

    async def logs_grew(self, since: int, seconds: float) -> None:
        """Return when some log has grown since `log_growth` was that, or after a time."""
        await self.store.log_growth.wait(since, seconds)

    def feed_fault(self) -> str:
        """Return why the change feed does not follow the database. Empty if it does."""
        broken = self.store.feed.broken
        return "" if broken is None else f"the change feed waits for the database: {type(broken).__name__}"

    async def database_fault(self) -> str:
        """Return why the database takes no writes. Empty if it does. Unavailable if it does not answer."""
        return READ_ONLY if await self.store.is_read_only() else ""

    def now(self) -> datetime:
        return self.clock().replace(microsecond=0)

    def elapsed(self) -> float:
        """Seconds since some moment. Setting the machine's clock does not change them."""
        return self.clock().timestamp() if self.monotonic is None else self.monotonic()

    @cached_property
    def policy(self) -> PolicyCache:
        return PolicyCache(self.store)

    @cached_property
    def kinds(self) -> KindCache:
        """The kinds of this process, built-in and custom."""
        return KindCache(self.store)

    @cached_property
    def services(self) -> ServiceCache:
        return ServiceCache(self.store, self.elapsed)

    @cached_property
    def pod_networks(self) -> PodNetworkCache:
        return PodNetworkCache(self.store, self.pod_cidr)

    @cached_property
    def admission(self) -> Admission:
        return Admission(self.store, self.policy, self.pod_security, self.kinds)

    @property
    def converter(self) -> Converter:
        """Converts custom objects by webhooks."""
        return self.admission.webhooks.converter


async def _with_master_key(change: Awaitable[None]) -> None:
    try:
        await change
    except MasterKeyError as error:
        raise ApiError(409, "Conflict", str(error)) from error
