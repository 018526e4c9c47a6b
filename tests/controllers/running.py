"""Controllers on a real database, with a clock that stands still: look at everything, until there is nothing to do."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import IPv4Network
from typing import Any, TypeVar

from app.controllers.manager import ClusterAuthority, NodeSettings, controllers, new_mirror
from app.controllers.namespaces.root_ca_publisher import RootCAPublisher
from app.controllers.nodes.node_ipam import NodeIpamController
from app.controllers.runner import Controller, Runner
from app.kinds.core.event import KIND as EVENTS
from app.machinery.base import Kind
from app.registry import codec
from app.registry.verbs.objects import Registry
from app.store import Mirror, Query

GRACE = timedelta(seconds=40)
POD_CIDR = IPv4Network("10.244.0.0/22")
SIGNED = b"signed"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
T = TypeVar("T")
PATIENCE = 60  # seconds until a test gives up waiting


class Running:
    """The runners of one process, and the mirror that they plan from."""

    def __init__(self, registry: Registry, mirror: Mirror, runners: list[Runner]) -> None:
        self.registry = registry
        self.mirror = mirror
        self.runners = runners

    def is_busy(self) -> bool:
        """Whether a runner looks at something, or is about to: it clears its event before it waits."""
        return any(runner._wake.is_set() for runner in self.runners)

    def move(self, **span: float) -> None:
        """Move the clock, and let everybody look at it."""
        self.registry.clock.move(**span)
        for runner in self.runners:
            runner._wake.set()

    def look_again(self) -> None:
        """As after a restart: every key."""
        for runner in self.runners:
            for key in runner._controller.enqueue_all():
                runner.enqueue(key)


_running: list[Running] = []


async def held_copy(registry: Registry) -> Mirror:
    """A copy of what there is now, that stays as it is."""
    mirror = new_mirror()
    await registry.store.fill(mirror)
    mirror.is_paused = True
    return mirror


@asynccontextmanager
async def running(registry: Registry, *only: type[Controller], copy: Mirror | None = None) -> AsyncIterator[Running]:
    """Run the controllers of these classes, or all; on a copy that was made earlier, if one is given."""
    mirror = copy or new_mirror()
    certificate = CERTIFICATE if RootCAPublisher in only else ""
    nodes = NodeSettings(grace=GRACE, pod_cidr=POD_CIDR if NodeIpamController in only else None)
    acting = controllers(registry, mirror, nodes, ClusterAuthority(certificate=certificate, sign=lambda *_: SIGNED))
    chosen = [each for each in acting if not only or type(each) in only]
    runners = [Runner(registry, mirror, each) for each in chosen]
    if copy is None:
        await registry.store.fill(mirror)
    tasks = [asyncio.ensure_future(runner.run()) for runner in runners]
    made = Running(registry, mirror, runners)
    _running.append(made)
    try:
        yield made
    finally:
        _running.remove(made)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        registry.store.feed.leave(mirror.apply)
        for outcome in outcomes:
            assert isinstance(outcome, asyncio.CancelledError), outcome


async def until(registry: Registry, holds: Callable[[], Awaitable[T]], seconds: float = PATIENCE) -> T:
    """What `holds` answers once it is true: asked again after each change."""
    try:
        async with asyncio.timeout(seconds):
            while not (answer := await holds()):
                await registry.store.feed.changed_within(0.2)
    except TimeoutError:
        raise AssertionError(f"still not so: {await holds()}") from None
    return answer


async def settled(registry: Registry, quiet: float = 0.3) -> int:
    """The revision at which nothing has happened for a moment, and no controller is about to do anything."""
    async with asyncio.timeout(PATIENCE):
        while await registry.store.feed.changed_within(quiet) or any(each.is_busy() for each in _running):
            pass
    return await registry.store.revision()


async def every(registry: Registry, kind: Kind) -> list[Any]:
    page = await registry.store.list(Query(kind=kind.resource))
    return [codec.decode(kind, head) for head in page.heads]


async def events(registry: Registry) -> list[tuple[str, str]]:
    told = sorted(await every(registry, EVENTS), key=lambda each: int(each.metadata.resource_version))
    return [(each.reason, each.message) for each in told]
