"""Starts containers, one pod's in order: the sandbox, the image, everything that is resolved, the container, its hook.

What does not work is held, to be shown and tried again, or counts as a run that ended. Called by `pods` with what a plan
wants started.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.agent import rights, setup, surroundings
from app.agent.devices import SoonError
from app.agent.environment import ConfigError, VolumeError
from app.agent.hooks import Hooks
from app.agent.images import Images
from app.agent.setup import Host
from app.agent.work import Work
from app.kinds.errors import ApiError
from app.kinds.pod import Pod, PodIP
from app.plans import node_pressure, pod_events
from app.plans.devices import TooFewError
from app.plans.pod import Key
from app.plans.pod_events import Note
from app.plans.pod_status import Held, Ousted
from app.runtimes.base import ContainerSpec, CreateError, StartError

RETRY = timedelta(seconds=10)
SOON_RETRY = timedelta(seconds=1)
NO_GRACE = timedelta()
MOST_OWNERS = 4096  # remembered; the API knows of the others
UNREACHABLE_RETRY = timedelta(seconds=2)

log = logging.getLogger(__name__)


class _SandboxError(Exception):
    pass


class Starts:
    """For all pods of the agent. `at_once`: how many may be starting. `images` is None where images mean nothing.

    is_closed: no pod begins any more.
    """

    def __init__(
        self, host: Host, images: Images | None, hooks: Hooks, at_once: int, tell: Callable[[Work, Note], None]
    ) -> None:
        self._host, self._images, self._hooks = host, images, hooks
        self._slots = asyncio.Semaphore(at_once)
        self._tell = tell
        self._owners_told: dict[str, None] = {}  # controllers whose pods' images were told of
        self.is_closed = False

    async def start(self, work: Work, keys: Sequence[Key]) -> None:
        if not self._is_admitted(work, keys):
            work.changed = True
            return
        if self._images is not None:
            keys = [key for key in keys if await self._images.is_ready(work, key)]
        if not keys:
            return
        if self._host.info.host_programs and not work.runs:
            self._tell_of_images(work)
        async with self._slots:
            if work.is_due or work.dropped:
                work.changed = True  # while it waited for its turn; a hint that brings no news must not end it here
                return
            for key in keys:
                await self._one(work, key)
                if key in work.hooked:
                    break  # the others wait for its hook

    def _tell_of_images(self, work: Work) -> None:
        note = pod_events.image_not_used(work.pod)
        if note.owner in self._owners_told:
            return
        if note.owner:
            if len(self._owners_told) >= MOST_OWNERS:
                self._owners_told.pop(next(iter(self._owners_told)))
            self._owners_told[note.owner] = None
        self._tell(work, note)

    def _is_admitted(self, work: Work, keys: Iterable[Key]) -> bool:
        """Whether the node has what the pod is to have for itself."""
        if not work.runs and self.is_closed:
            self._reject(work, "NodeShutdown", "Pod was rejected as the node is shutting down.")
            return False
        if not work.runs and (why := node_pressure.refusal(work.pod, self._host.pressures.under())):
            self._reject(work, "Evicted", why)
            return False
        try:
            self._host.devices.pin(work.pod)
        except TooFewError as error:
            self._reject(work, "UnexpectedAdmissionError", f"Allocate failed due to {error}, which is unexpected")
        except (SoonError, OSError) as error:
            log.info("pod %s waits for its devices: %s", work.uid, error)
            work.held |= {key.name: Held("", "", self._at(SOON_RETRY)) for key in keys}
        else:
            return True
        return False

    def _reject(self, work: Work, reason: str, why: str) -> None:
        work.ousted = Ousted(reason, f"Pod was rejected: {why}", NO_GRACE)
        self._tell(work, pod_events.ousted(reason, why))

    async def _one(self, work: Work, key: Key) -> None:
        try:
            spec = await self._spec(work, key)
            if work.dropped or work.over_at is not None:
                work.changed = True  # it took so long to prepare that it must not start any more
                return
            await self._host.runtime.start_container(spec)
        except StartError as error:
            work.saw(key, setup.unstarted(key, error, self._host))
            work.changed = True
            self._tell(work, pod_events.created(work.pod, key.name))
            self._tell(work, pod_events.failed(work.pod, key.name, str(error)))
        except Exception as error:
            self._refused(work, key, error)
        else:
            work.held.pop(key.name, None)
            self._tell(work, pod_events.created(work.pod, key.name))
            self._tell(work, pod_events.started(work.pod, key.name))
            self._hooks.after_start(work, key)
            work.look.add(key)

    async def _spec(self, work: Work, key: Key) -> ContainerSpec:
        await self._sandbox(work)
        pod = _standing(work.pod, work.ip)
        user = self._images.user_of(work.images.get(key.name, "")) if self._images else ""
        spec = await setup.container(pod, key, self._host, user)
        if ignored := rights.unenforced(spec.security, self._host.info):
            self._tell(work, pod_events.unenforced(pod, key.name, ignored))
        return spec

    async def _sandbox(self, work: Work) -> None:
        try:
            sandbox = await self._host.runtime.run_sandbox(surroundings.sandbox(work.pod))
        except Exception as error:
            if not isinstance(error, CreateError | OSError):
                log.exception("sandbox of pod %s", work.uid)
            raise _SandboxError(str(error)) from error
        work.ip, work.stands = sandbox.ip, True
        self._host.hosts.seen(work.pod, sandbox.ip)

    def _refused(self, work: Work, key: Key, error: Exception) -> None:
        """It waits, and says what for."""
        why, name, pod = str(error), key.name, work.pod
        match error:
            case _SandboxError():
                again = UNREACHABLE_RETRY if isinstance(error.__cause__, ConnectionError) else RETRY
                held, note = Held("", "", self._at(again)), pod_events.without_sandbox(why)
            case VolumeError():
                held, note = Held("", "", self._at(RETRY)), pod_events.without_volume(error.volume, why)
            case ConfigError():
                held = Held("CreateContainerConfigError", why, self._at(RETRY))
                note = pod_events.failed(pod, name, why)
            case ApiError() | ConnectionError():
                held = Held("CreateContainerConfigError", why, self._at(UNREACHABLE_RETRY))
                note = pod_events.failed(pod, name, why)
            case _:
                if not isinstance(error, CreateError):
                    log.error("container %s of pod %s", name, work.uid, exc_info=error)
                if self._images is not None:
                    self._images.forget_all()  # it may be that the image has gone
                    work.fetched.discard(key)
                held, note = Held("CreateContainerError", why, self._at(RETRY)), pod_events.failed(pod, name, why)
        self._tell(work, note)
        work.held[name] = held
        work.changed = True

    def _at(self, later: timedelta) -> datetime:
        return self._host.clock.now() + later


def _standing(pod: Pod, ip: str) -> Pod:
    """With the address of its sandbox, which its environment may speak of."""
    if not ip or ip == pod.status.pod_ip:
        return pod
    return replace(pod, status=replace(pod.status, pod_ip=ip, pod_ips=(PodIP(ip=ip),)))
