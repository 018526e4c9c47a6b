"""Image manager: pulls a container's image before its start, by its pull policy.

Only for runtimes with images. A pull is a task of its own and holds up only its container; several pods that want the
same image wait for the same pull. What fails is shown as ErrImagePull, then ImagePullBackOff, and tried again later.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from app.agent.clock import Clock
from app.agent.pods.container_config import find_container
from app.agent.pods.environment import ContainerConfigError, Lookup
from app.agent.pods.pod_worker import PodWorker
from app.agent.pods.pulled_images import PulledImages
from app.agent.tasks import Tasks
from app.kinds.core.node import ContainerImage
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError
from app.plans.kubelet import image_pulls, pod_events
from app.plans.kubelet.image_pulls import Credential
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import SetupDelay
from app.plans.kubelet.sync_pod import Key
from app.runtimes.base import Image, Login, PullError, Runtime
from app.structured_logging import Logger

AT_ONCE = 4  # pulls at one time
FRESH = 10.0  # seconds for which a look at what the node has is good
SHOWN = 2.0  # seconds for which the error itself is shown, before the wait is
MOST_TOLD, MOST_NAMES = 50, 5  # images in a node's status, and names of one
RARE = timedelta(seconds=10)

logger = Logger(__name__)


class ImageManager:
    """Of one node's runtime. `used_at`: when each image, by id, was last wanted by a start."""

    def __init__(
        self,
        runtime: Runtime,
        lookup: Lookup,
        clock: Clock,
        record_event: Callable[[PodWorker, Note], None],
        wake: Callable[[PodWorker], None],
        pulled: PulledImages,
    ) -> None:
        self._runtime, self._lookup, self._clock, self._pulled = runtime, lookup, clock, pulled
        self._record_event, self._wake = record_event, wake
        self._known: dict[str, Image] = {}
        self._known_at = -FRESH
        self._pulls: dict[tuple[str, Credential | None], asyncio.Task[str]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks = Tasks()
        self.used_at: dict[str, datetime] = {}

    async def is_ready(self, worker: PodWorker, key: Key) -> bool:
        """Return whether the run may start. If not, it is held, or a pull is under way after which the pod is looked at again."""
        if key in worker.fetched:
            return True
        container = find_container(worker.pod, key.name)
        try:
            name = image_pulls.full_name(container.image)
        except image_pulls.InvalidImageName as error:
            self._reject_name(worker, container, str(error))
            return False
        policy = container.image_pull_policy
        image = None if policy == "Always" else await self._find(name)
        if image is not None and not await self._may_use(worker, name, image):
            if policy == "Never":
                self._never(worker, container, "was pulled with a login that this pod does not have")
                return False
            image = None
        if image is not None:
            self._got(worker, key, image.id)
            self._record_event(worker, pod_events.present(worker.pod, container))
            return True
        if policy == "Never":
            self._never(worker, container, "is not present")
            return False
        worker.busy.add(key.name)
        self._tasks.spawn(self._fetch(worker, key, container, name))
        return False

    def forget_all(self) -> None:
        """What is known of the node's images has turned out wrong, or they have been thrown away."""
        self._known_at = -FRESH

    async def on_node(self) -> tuple[ContainerImage, ...]:
        """For the node's status: the largest ones first, as the kubelet lists them."""
        images = sorted(await self._runtime.images(), key=lambda each: (-each.size, each.id))[:MOST_TOLD]
        return tuple(ContainerImage(names=tuple(each.names[:MOST_NAMES]), size_bytes=each.size) for each in images)

    def user_of(self, image_id: str) -> str:
        """Return whom the image wants to run as; empty for root, and for an image that is not known."""
        found = self._known.get(image_id)
        return found.user if found else ""

    # What the node has

    async def _find(self, name: str) -> Image | None:
        found = self._known.get(name)
        if found is None or self._clock.elapsed() - self._known_at > FRESH:
            await self._look()
        return self._known.get(name)

    async def _look(self) -> None:
        images = await self._runtime.images()
        self._known = {name: image for image in images for name in _names(image)}
        self._known_at = self._clock.elapsed()
        self._pulled.forget_others({image.id for image in images})

    async def _may_use(self, worker: PodWorker, name: str, image: Image) -> bool:
        """Return whether the pod may use an image that is there. The logins are read only if it is not everybody's."""
        if not self._pulled.is_private(image.id, (name, *_names(image))):
            return True
        return self._pulled.is_allowed(image.id, await self._logins(worker, name))

    def _got(self, worker: PodWorker, key: Key, image_id: str) -> None:
        worker.fetched.add(key)
        worker.images[key.name] = image_id
        worker.failed_pulls.pop(key.name, None)
        self.used_at[image_id] = self._clock.now()

    # What it has not

    async def _fetch(self, worker: PodWorker, key: Key, container: Container, name: str) -> None:
        began = self._clock.elapsed()
        try:
            self._record_event(worker, pod_events.pulling(worker.pod, container))
            image_id, login = await self._pull_with_logins(name, await self._logins(worker, name))
            await self._look()
        except PullError as error:
            self._on_failed_pull(worker, container, error.reason, str(error))
        except Exception as error:
            logger.warning(
                "cannot pull an image; retrying",
                **worker.log_fields,
                image=container.image,
                error=error,
                traceback_of=None if isinstance(error, ConnectionError) else error,
            )
            self._on_failed_pull(worker, container, "ErrImagePull", str(error))
        else:
            took = image_pulls.format_duration(timedelta(seconds=self._clock.elapsed() - began))
            found = self._known.get(name) or self._known.get(image_id)
            size = found.size if found else 0
            self._pulled.note(name, found.id if found else image_id, login)
            self._got(worker, key, image_id or (found.id if found else ""))
            self._record_event(worker, pod_events.pulled(worker.pod, container, took, took, size))
        finally:
            worker.busy.discard(container.name)
            self._wake(worker)

    async def _pull_with_logins(self, name: str, logins: Sequence[Credential]) -> tuple[str, Credential | None]:
        """Pull with the first login that works, and with none if none is given. Return the image's id, and the login."""
        last: PullError | None = None
        for login in logins or (None,):
            try:
                return await asyncio.shield(self._pull(name, login)), login
            except PullError as error:
                last = error
        raise last or PullError(f"no login for {name}")

    def _pull(self, name: str, login: Credential | None) -> asyncio.Task[str]:
        task = self._pulls.get((name, login))
        if task is None:
            task = self._pulls[name, login] = self._tasks.spawn(self._pull_once(name, login))
        return task

    async def _pull_once(self, name: str, login: Credential | None) -> str:
        try:
            async with self._turns:
                if login:
                    self._pulled.begin(name)
                return await self._runtime.pull(name, Login(*login) if login else None)
        except PullError:
            if login:
                self._pulled.fail(name)
            raise
        finally:
            del self._pulls[name, login]

    async def _logins(self, worker: PodWorker, name: str) -> list[Credential]:
        pod, found, missing = worker.pod, [], []
        for each in pod.spec.image_pull_secrets:
            try:
                found.append(await self._login(pod, each.name))
            except (ContainerConfigError, ApiError, OSError, ValueError):
                missing.append(each.name)
        if missing:
            self._record_event(worker, pod_events.without_secrets(", ".join(missing)))
        return image_pulls.credentials(found, name)

    async def _login(self, pod: Pod, name: str) -> Mapping[str, Any]:
        data = await self._lookup.secret(pod.metadata.namespace, name, optional=False) or {}
        content = data.get(".dockerconfigjson") or data.get(".dockercfg") or b"{}"
        return msgspec.json.decode(content, type=dict[str, Any])

    # What cannot be had

    def _on_failed_pull(self, worker: PodWorker, container: Container, reason: str, why: str) -> None:
        failures = worker.failed_pulls[container.name] = worker.failed_pulls.get(container.name, 0) + 1
        until = self._clock.now() + image_pulls.backoff(failures)
        self._record_event(worker, pod_events.not_pulled(worker.pod, container, why))
        self._record_event(worker, pod_events.failed(worker.pod, container.name, reason))
        held = worker.held[container.name] = SetupDelay(reason, why, until)
        self._clock.call_later(SHOWN, lambda: self._back_off(worker, container, held))

    def _back_off(self, worker: PodWorker, container: Container, held: SetupDelay) -> None:
        """The wait is what is shown from now on."""
        if worker.orphaned or worker.held.get(container.name) is not held:
            return
        why = f'Back-off pulling image "{container.image}": {held.reason}: {held.message}'
        worker.held[container.name] = SetupDelay("ImagePullBackOff", why, held.until)
        self._record_event(worker, pod_events.pull_backing_off(worker.pod, container))
        self._record_event(worker, pod_events.failed(worker.pod, container.name, "ImagePullBackOff"))
        self._wake(worker)

    def _never(self, worker: PodWorker, container: Container, what: str) -> None:
        why = f'Container image "{container.image}" {what} with pull policy of Never'
        self._hold(worker, container, "ErrImageNeverPull", why, pod_events.never_pulled(worker.pod, container, why))

    def _reject_name(self, worker: PodWorker, container: Container, why: str) -> None:
        why = f'Failed to apply default image tag "{container.image}": {why}'
        self._hold(worker, container, "InvalidImageName", why, pod_events.misnamed(worker.pod, container, why))

    def _hold(self, worker: PodWorker, container: Container, reason: str, why: str, note: Note) -> None:
        self._record_event(worker, note)
        self._record_event(worker, pod_events.failed(worker.pod, container.name, reason))
        worker.held[container.name] = SetupDelay(reason, why, self._clock.now() + RARE)
        worker.changed = True

    async def close(self) -> None:
        await self._tasks.close()


def _names(image: Image) -> list[str]:
    names = [image.id, image.id.removeprefix("sha256:")]
    for name in image.names:
        try:
            names.append(image_pulls.full_name(name))
        except image_pulls.InvalidImageName:
            names.append(name)
    return names
