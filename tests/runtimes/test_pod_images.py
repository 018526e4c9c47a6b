"""Images for pods of a whole agent on real engines: pull policies, logins, and what is shown until an image can be had."""

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.agent.agent import Agent
from app.agent.config import AgentConfig
from app.client.api import Api
from app.kinds.pod.container import Container, ContainerStatus
from app.machinery.base import LocalObjectReference
from app.runtimes.base import Login
from tests.agent.fake_api import FakeApi
from tests.agent.fake_clock import FakeClock
from tests.runtimes.conftest import PATIENCE, Made, removed
from tests.runtimes.images import Built, built
from tests.runtimes.registry import Registry, registry

pytestmark = pytest.mark.needs("images")


@pytest.fixture(name="registry")
def _registry() -> Iterator[Registry]:
    with registry() as made:
        yield made


class Node:
    """A node whose pods run on a real engine, while its agent's clock moves only as a test waits."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = FakeClock()

    def bind(self, name: str, image: str, policy: str = "IfNotPresent", *secrets: str) -> None:
        self.api.bind(
            name,
            name,
            containers=(Container(name="main", image=image, image_pull_policy=policy),),
            image_pull_secrets=tuple(LocalObjectReference(name=each) for each in secrets),
        )

    async def until(self, holds: Callable[[], object]) -> None:
        await self.api.until(holds, lambda: self.clock.advance(0.1), PATIENCE)

    async def runs(self, pod: str) -> ContainerStatus:
        await self.until(lambda: self.api.phase(pod) == "Running")
        return self.api.status(pod).container_statuses[0]

    async def waits(self, pod: str, reason: str) -> str:
        """The message, once a pod waits for this reason."""

        def waiting() -> list[str]:
            states = [each.state.waiting for each in self.api.status(pod).container_statuses if each.state]
            return [each.message for each in states if each and each.reason == reason]

        await self.until(waiting)
        return waiting()[0]

    def told(self, pod: str) -> list[tuple[str, str]]:
        return [(each["reason"], each["message"]) for each in self.api.events if each["pod"] == pod]

    def reasons(self, pod: str) -> list[str]:
        return [reason for reason, _ in self.told(pod)]


@pytest.fixture
async def node(made: Made, tmp_path: Path) -> AsyncIterator[Node]:
    """What is left of its pods, and of images, is removed."""
    node, runtime = Node(), made()
    before = {each.id for each in await runtime.images()}
    settings = AgentConfig(server="http://api", node_names=("n1",), state_dir=tmp_path, address="127.0.0.1")
    agent = asyncio.create_task(Agent(settings, runtime, Api("http://api", transport=node.api), node.clock).run())
    yield node
    agent.cancel()
    with suppress(asyncio.CancelledError):
        await agent
    for sandbox in await runtime.sandboxes():
        await removed(runtime, sandbox.pod_uid)
    for each in await runtime.images():
        if each.id not in before:
            await runtime.remove_image(each.id)
    await runtime.close()


def sleeper() -> Built:
    """An image that no other test has."""
    return built(("/bin/sleep", "1000"), Labels={"test": uuid.uuid4().hex})


async def test_an_image_that_comes_later_is_waited_for(node: Node, registry: Registry) -> None:
    image, name = sleeper(), f"{registry.name}/late:1"
    node.bind("web", name)
    error = await node.waits("web", "ErrImagePull")
    assert name in error
    assert await node.waits("web", "ImagePullBackOff") == f'Back-off pulling image "{name}": ErrImagePull: {error}'
    assert node.api.phase("web") == "Pending"

    registry.add("late", image)
    status = await node.runs("web")
    assert (status.image_id, status.restart_count) == (image.id, 0)
    assert {"Pulling", "Failed", "BackOff", "Pulled", "Created", "Started"} <= set(node.reasons("web"))


async def test_a_login_is_needed_and_given(node: Node, registry: Registry) -> None:
    image, registry.login = sleeper(), Login("me", "hunter2")
    name = registry.add("secret", image)
    auths = {"auths": {registry.name: {"username": "me", "password": "hunter2"}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    node.api.objects["/api/v1/namespaces/default/secrets/login"] = {"data": data}

    node.bind("stranger", name, "Always")
    assert "hunter2" not in await node.waits("stranger", "ErrImagePull")
    node.bind("guest", name, "Always", "login")
    assert (await node.runs("guest")).image_id == image.id
    assert node.api.phase("stranger") == "Pending"


async def test_the_policy_says_when_to_pull(node: Node, registry: Registry) -> None:
    old, new = sleeper(), sleeper()
    name = registry.add("moving", old)
    node.bind("early", name, "Never")
    assert await node.waits("early", "ErrImageNeverPull")
    node.bind("first", name)
    assert (await node.runs("first")).image_id == old.id
    assert node.reasons("first") == ["Pulling", "Pulled", "Created", "Started"]

    registry.add("moving", new)
    for policy in ("IfNotPresent", "Never"):
        pod = policy.lower()
        node.bind(pod, name, policy)
        assert (await node.runs(pod)).image_id == old.id
        assert node.told(pod)[0] == ("Pulled", f'Container image "{name}" already present on machine')
    node.bind("always", name, "Always")
    assert (await node.runs("always")).image_id == new.id
