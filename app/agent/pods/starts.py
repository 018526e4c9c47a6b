"""Container starts, in order for each pod: sandbox, image, resolved configuration, container, postStart hook.

What does not work is held, to be shown and tried again, or counts as a run that ended. Called by `pods` with what a plan
wants started.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent.node.devices import DevicesInUseError
from app.agent.pods import container_config, sandbox_config, security_context
from app.agent.pods.container_config import Host
from app.agent.pods.environment import ContainerConfigError, VolumeError
from app.agent.pods.images import ImageManager
from app.agent.pods.isolation import check_privileges
from app.agent.pods.lifecycle_hooks import LifecycleHooks
from app.agent.pods.namespace_levels import NamespaceLevels
from app.agent.pods.pod_worker import PodWorker
from app.client.protocol import NamespaceLevel
from app.kinds.pod.pod import Pod, PodIP
from app.machinery.errors import ApiError
from app.plans.admission.pod_security.namespace_policy import PRIVILEGED
from app.plans.kubelet import node_pressure_eviction, pod_events
from app.plans.kubelet.device_allocation import InsufficientDevicesError
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import Evicted, SetupDelay
from app.plans.kubelet.sync_pod import Key
from app.runtimes.base import ContainerSpec, CreateError, StartError
from app.structured_logging import Logger

RETRY = timedelta(seconds=10)
SOON_RETRY = timedelta(seconds=1)
NO_GRACE = timedelta()
MOST_OWNERS = 4096  # remembered; the API knows of the others
UNREACHABLE_RETRY = timedelta(seconds=2)
LEVEL_SECONDS = 5.0  # for which a namespace's level is good when a pod is tried again

logger = Logger(__name__)


class _SandboxError(Exception):
    pass


class Starts:
    """For all pods of the agent. `at_once`: how many may be starting. `images` is None where images mean nothing.

    is_closed: no pod begins any more.
    """

    def __init__(
        self,
        host: Host,
        images: ImageManager | None,
        hooks: LifecycleHooks,
        at_once: int,
        record_event: Callable[[PodWorker, Note], None],
    ) -> None:
        self._host, self._images, self._hooks = host, images, hooks
        self._slots = asyncio.Semaphore(at_once)
        self._record_event = record_event
        self._owners_with_event: dict[str, None] = {}  # controllers with an event about their pods' images
        self.is_closed = False

    async def start(self, worker: PodWorker, keys: Sequence[Key]) -> None:
        if not self._is_admitted(worker, keys):
            worker.changed = True
            return
        if self._images is not None:
            keys = [key for key in keys if await self._images.is_ready(worker, key)]
        if not keys:
            return
        if self._host.info.host_programs and not worker.runs:
            self._record_ignored_images(worker)
        async with self._slots:
            if worker.is_due or worker.orphaned:
                worker.changed = True  # while it waited for its turn; a hint that brings no news must not end it here
                return
            for key in keys:
                await self._start_container(worker, key)
                if key in worker.post_start_pending:
                    break  # the others wait for its hook

    def _record_ignored_images(self, worker: PodWorker) -> None:
        note = pod_events.image_not_used(worker.pod)
        if note is None or note.owner in self._owners_with_event:
            return
        if note.owner:
            if len(self._owners_with_event) >= MOST_OWNERS:
                self._owners_with_event.pop(next(iter(self._owners_with_event)))
            self._owners_with_event[note.owner] = None
        self._record_event(worker, note)

    def _is_admitted(self, worker: PodWorker, keys: Iterable[Key]) -> bool:
        """Return whether the node has what the pod is to have for itself."""
        if not worker.runs and self.is_closed:
            self._reject(worker, "NodeShutdown", "Pod was rejected as the node is shutting down.")
            return False
        if not worker.runs and (why := node_pressure_eviction.find_refusal(worker.pod, self._host.pressures.under())):
            self._reject(worker, "Evicted", why)
            return False
        try:
            self._host.devices.pin(worker.pod)
        except InsufficientDevicesError as error:
            self._reject(worker, "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        except (DevicesInUseError, OSError) as error:
            logger.info("pod waits for its devices", **worker.log_fields, error=error)
            worker.held |= {key.name: SetupDelay("", "", self._retry_at(SOON_RETRY)) for key in keys}
        else:
            return True
        return False

    def _reject(self, worker: PodWorker, reason: str, why: str) -> None:
        worker.evicted = Evicted(reason, f"Pod was rejected: {why}", NO_GRACE)
        self._record_event(worker, pod_events.evicted(reason, why))

    async def _start_container(self, worker: PodWorker, key: Key) -> None:
        try:
            spec = await self._spec(worker, key)
            if worker.orphaned or worker.deadline is not None:
                worker.changed = True  # it took so long to prepare that it must not start any more
                return
            await self._host.runtime.start_container(spec)
        except StartError as error:
            worker.update_run(key, container_config.failed_run(key, error, self._host))
            worker.changed = True
            self._record_event(worker, pod_events.created(worker.pod, key.name))
            self._record_event(worker, pod_events.failed(worker.pod, key.name, str(error)))
        except Exception as error:
            self._hold(worker, key, error)
        else:
            worker.held.pop(key.name, None)
            self._record_event(worker, pod_events.created(worker.pod, key.name))
            self._record_event(worker, pod_events.started(worker.pod, key.name))
            self._hooks.after_start(worker, key)
            worker.look.add(key)

    async def _spec(self, worker: PodWorker, key: Key) -> ContainerSpec:
        await self._sandbox(worker)
        pod = _with_pod_ip(worker.pod, worker.ip)
        user = self._images.user_of(worker.images.get(key.name, "")) if self._images else ""
        spec = await container_config.container(pod, key, self._host, user, worker.sandbox)
        if ignored := security_context.find_unenforced(spec.security, self._host.info):
            self._record_event(worker, pod_events.unenforced(pod, key.name, ignored))
        return spec

    async def _sandbox(self, worker: PodWorker) -> None:
        try:
            level = await self._level(worker)
        except CreateError as error:
            raise _SandboxError(str(error)) from error
        namespace_uid = None if level is None else level.uid if level.level != PRIVILEGED else ""
        try:
            if not worker.sandbox_ready and not worker.pod.spec.host_network:
                await self._host.await_network()
            cluster_dns = self._host.dns.address if self._host.dns else ""
            told = "" if self._host.info.host_programs else cluster_dns  # these have it by a file, if they need it
            spec = sandbox_config.sandbox(worker.pod, namespace_uid, told)
            if not worker.sandbox_ready:
                spec = dataclasses.replace(spec, handler=await self._handler(worker.pod.spec.runtime_class_name))
            sandbox = await self._host.runtime.run_sandbox(spec)
            if level is not None:
                self._host.resolv_conf.write(worker.pod, cluster_dns, has_services=level.services)
        except Exception as error:
            if not isinstance(error, CreateError | ApiError | OSError):
                logger.error(
                    "unexpected error; cannot make the sandbox of a pod",
                    **worker.log_fields,
                    traceback_of=error,
                )
            raise _SandboxError(str(error)) from error
        worker.sandbox, worker.sandbox_ready = sandbox, True
        self._host.volumes.set_owner(sandbox)
        self._host.hosts.write(worker.pod, sandbox.ip)

    async def _handler(self, class_name: str) -> str:
        """Of a RuntimeClass. Raises CreateError, in a kubelet's words; ApiError, ConnectionError."""
        if not class_name:
            return ""
        found = await self._host.lookup.runtime_class(class_name)
        if found is None:
            raise CreateError(f'failed to get sandbox runtime: RuntimeClass "{class_name}" not found')
        if not self._host.info.handlers:
            raise CreateError(f'failed to get sandbox runtime: no runtime for "{found.handler}" is configured')
        return found.handler

    async def _level(self, worker: PodWorker) -> NamespaceLevel | None:
        """What the pod's sandbox is made for; None: it stands, and was decided once.

        Raises ApiError, ConnectionError, CreateError.
        """
        if self._host.levels is None:
            return NamespaceLevel(level=PRIVILEGED)
        if worker.sandbox_ready:
            return None
        level = await self._read_level(worker, self._host.levels)
        if self._host.info.isolation is None:
            check_privileges(worker.pod, level)
            return NamespaceLevel(level=PRIVILEGED)  # the engine isolates
        return level

    async def _read_level(self, worker: PodWorker, levels: NamespaceLevels) -> NamespaceLevel:
        """Return the level of the pod's namespace. A retry asks the API: the label may be new."""
        from_watch, worker.level_from_watch = worker.level_from_watch, None
        since = worker.known_since
        if self._host.info.isolation is None:
            since = max(since, self._host.clock.elapsed() - LEVEL_SECONDS)
        return await levels.level_of(worker.pod.metadata.namespace, since, from_watch)

    def _hold(self, worker: PodWorker, key: Key, error: Exception) -> None:
        """It waits, and says what for."""
        why, name, pod = str(error), key.name, worker.pod
        match error:
            case _SandboxError():
                again = UNREACHABLE_RETRY if isinstance(error.__cause__, ConnectionError) else RETRY
                held, note = SetupDelay("", "", self._retry_at(again)), pod_events.without_sandbox(why)
            case VolumeError():
                held, note = SetupDelay("", "", self._retry_at(RETRY)), pod_events.without_volume(error.volume, why)
            case ContainerConfigError():
                held = SetupDelay("CreateContainerConfigError", why, self._retry_at(RETRY))
                note = pod_events.failed(pod, name, why)
            case ApiError() | ConnectionError():
                held = SetupDelay("CreateContainerConfigError", why, self._retry_at(UNREACHABLE_RETRY))
                note = pod_events.failed(pod, name, why)
            case _:
                if not isinstance(error, CreateError):
                    logger.error(
                        "unexpected error; cannot start a container",
                        **worker.log_fields,
                        container=name,
                        traceback_of=error,
                    )
                if self._images is not None:
                    self._images.forget_all()  # it may be that the image has gone
                    worker.fetched.discard(key)
                held, note = (
                    SetupDelay("CreateContainerError", why, self._retry_at(RETRY)),
                    pod_events.failed(pod, name, why),
                )
        self._record_event(worker, note)
        worker.held[name] = held
        worker.changed = True

    def _retry_at(self, later: timedelta) -> datetime:
        return self._host.clock.now() + later


def _with_pod_ip(pod: Pod, ip: str) -> Pod:
    """With the address of its sandbox, which its environment may speak of."""
    if not ip or ip == pod.status.pod_ip:
        return pod
    return replace(pod, status=replace(pod.status, pod_ip=ip, pod_ips=(PodIP(ip=ip),)))
