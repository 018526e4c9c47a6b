"""Sees to it that a container's image is on the node before it is started, as its pull policy says.

Only for runtimes with images. A pull is a task of its own and holds up only its container; several pods that want the
same image wait for the same pull. What fails is shown as ErrImagePull, then ImagePullBackOff, and tried again later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from app.agent.clock import Clock
from app.agent.environment import ConfigError, Lookup
from app.agent.setup import named
from app.agent.tasks import Tasks
from app.agent.work import Work
from app.kinds.container import Container
from app.kinds.errors import ApiError
from app.kinds.node import ContainerImage
from app.kinds.pod import Pod
from app.plans import pod_events, pulls
from app.plans.pod import Key
from app.plans.pod_events import Note
from app.plans.pod_status import Held
from app.plans.pulls import Credential
from app.runtimes.base import Image, Login, PullError, Runtime

AT_ONCE = 4  # pulls at one time
FRESH = 10.0  # seconds for which a look at what the node has is good
SHOWN = 2.0  # seconds for which the error itself is shown, before the wait is
MOST_TOLD, MOST_NAMES = 50, 5  # images in a node's status, and names of one
RARE = timedelta(seconds=10)

log = logging.getLogger(__name__)


class Images:
    """Of one node's runtime. `used_at`: when each image, by id, was last wanted by a start."""

    def __init__(
        self,
        runtime: Runtime,
        lookup: Lookup,
        clock: Clock,
        tell: Callable[[Work, Note], None],
        wake: Callable[[Work], None],
    ) -> None:
        self._runtime, self._lookup, self._clock = runtime, lookup, clock
        self._tell, self._wake = tell, wake
        self._known: dict[str, Image] = {}
        self._known_at = -FRESH
        self._pulls: dict[tuple[str, Credential | None], asyncio.Task[str]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks = Tasks()
        self.used_at: dict[str, datetime] = {}

    async def is_ready(self, work: Work, key: Key) -> bool:
        """Whether the run may start. If not, it is held, or a pull is under way after which the pod is looked at again."""
        if key in work.fetched:
            return True
        container = named(work.pod, key.name)
        try:
            name = pulls.whole(container.image)
        except pulls.BadImage as error:
            self._misnamed(work, container, str(error))
            return False
        policy = container.image_pull_policy
        image = None if policy == "Always" else await self._find(name)
        if image is not None:
            self._got(work, key, image.id)
            self._tell(work, pod_events.present(work.pod, container))
            return True
        if policy == "Never":
            self._never(work, container)
            return False
        work.busy.add(key.name)
        self._tasks.spawn(self._fetch(work, key, container, name))
        return False

    def forget_all(self) -> None:
        """What is known of the node's images has turned out wrong, or they have been thrown away."""
        self._known_at = -FRESH

    async def on_node(self) -> tuple[ContainerImage, ...]:
        """For the node's status: the largest ones first, as the kubelet lists them."""
        images = sorted(await self._runtime.images(), key=lambda each: (-each.size, each.id))[:MOST_TOLD]
        return tuple(ContainerImage(names=tuple(each.names[:MOST_NAMES]), size_bytes=each.size) for each in images)

    def user_of(self, image_id: str) -> str:
        """Whom the image wants to run as; empty for root, and for an image that is not known."""
        found = self._known.get(image_id)
        return found.user if found else ""

    # What the node has

    async def _find(self, name: str) -> Image | None:
        found = self._known.get(name)
        if found is None or self._clock.elapsed() - self._known_at > FRESH:
            await self._look()
        return self._known.get(name)

    async def _look(self) -> None:
        self._known = {name: image for image in await self._runtime.images() for name in _names(image)}
        self._known_at = self._clock.elapsed()

    def _got(self, work: Work, key: Key, image_id: str) -> None:
        work.fetched.add(key)
        work.images[key.name] = image_id
        work.failed_pulls.pop(key.name, None)
        self.used_at[image_id] = self._clock.now()

    # What it has not

    async def _fetch(self, work: Work, key: Key, container: Container, name: str) -> None:
        began = self._clock.elapsed()
        try:
            self._tell(work, pod_events.pulling(work.pod, container))
            image_id = await self._pulled(name, await self._logins(work, name))
            await self._look()
        except PullError as error:
            self._failed(work, container, error.reason, str(error))
        except Exception as error:
            log.warning("image %s: %s", container.image, error, exc_info=not isinstance(error, ConnectionError))
            self._failed(work, container, "ErrImagePull", str(error))
        else:
            took = pulls.spelled(timedelta(seconds=self._clock.elapsed() - began))
            found = self._known.get(name) or self._known.get(image_id)
            size = found.size if found else 0
            self._got(work, key, image_id or (found.id if found else ""))
            self._tell(work, pod_events.pulled(work.pod, container, took, took, size))
        finally:
            work.busy.discard(container.name)
            self._wake(work)

    async def _pulled(self, name: str, logins: Sequence[Credential]) -> str:
        """With the first login that works, and with none if none is given."""
        last: PullError | None = None
        for login in logins or (None,):
            try:
                return await asyncio.shield(self._pull(name, login))
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
                return await self._runtime.pull(name, Login(*login) if login else None)
        finally:
            del self._pulls[name, login]

    async def _logins(self, work: Work, name: str) -> list[Credential]:
        pod, found, missing = work.pod, [], []
        for each in pod.spec.image_pull_secrets:
            try:
                found.append(await self._login(pod, each.name))
            except (ConfigError, ApiError, OSError, ValueError):
                missing.append(each.name)
        if missing:
            self._tell(work, pod_events.without_secrets(", ".join(missing)))
        return pulls.credentials(found, name)

    async def _login(self, pod: Pod, name: str) -> Mapping[str, Any]:
        data = await self._lookup.secret(pod.metadata.namespace, name, optional=False) or {}
        content = data.get(".dockerconfigjson") or data.get(".dockercfg") or b"{}"
        return msgspec.json.decode(content, type=dict[str, Any])

    # What cannot be had

    def _failed(self, work: Work, container: Container, reason: str, why: str) -> None:
        failures = work.failed_pulls[container.name] = work.failed_pulls.get(container.name, 0) + 1
        until = self._clock.now() + pulls.wait(failures)
        self._tell(work, pod_events.not_pulled(work.pod, container, why))
        self._tell(work, pod_events.failed(work.pod, container.name, reason))
        held = work.held[container.name] = Held(reason, why, until)
        self._clock.call_later(SHOWN, lambda: self._back_off(work, container, held))

    def _back_off(self, work: Work, container: Container, held: Held) -> None:
        """The wait is what is shown from now on."""
        if work.dropped or work.held.get(container.name) is not held:
            return
        why = f'Back-off pulling image "{container.image}": {held.reason}: {held.message}'
        work.held[container.name] = Held("ImagePullBackOff", why, held.until)
        self._tell(work, pod_events.pull_backing_off(work.pod, container))
        self._tell(work, pod_events.failed(work.pod, container.name, "ImagePullBackOff"))
        self._wake(work)

    def _never(self, work: Work, container: Container) -> None:
        why = f'Container image "{container.image}" is not present with pull policy of Never'
        self._hold(work, container, "ErrImageNeverPull", why, pod_events.never_pulled(work.pod, container, why))

    def _misnamed(self, work: Work, container: Container, why: str) -> None:
        why = f'Failed to apply default image tag "{container.image}": {why}'
        self._hold(work, container, "InvalidImageName", why, pod_events.misnamed(work.pod, container, why))

    def _hold(self, work: Work, container: Container, reason: str, why: str, note: Note) -> None:
        self._tell(work, note)
        self._tell(work, pod_events.failed(work.pod, container.name, reason))
        work.held[container.name] = Held(reason, why, self._clock.now() + RARE)
        work.changed = True

    async def close(self) -> None:
        await self._tasks.close()


def _names(image: Image) -> list[str]:
    names = [image.id, image.id.removeprefix("sha256:")]
    for name in image.names:
        try:
            names.append(pulls.whole(name))
        except pulls.BadImage:
            names.append(name)
    return names
