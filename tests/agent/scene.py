"""A node, an API, and agents that come and go on it: what tests of the whole agent play with."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.agent.agent import Agent, RevokedError
from app.agent.config import AgentConfig
from app.agent.metrics import AgentMetrics
from app.agent.node.device_sources import EMPTY, Inventory
from app.client.api import Api
from app.kinds.pod.container import ContainerStatus
from tests.agent.fake_api import FakeApi
from tests.agent.fake_clock import FakeClock
from tests.agent.fake_runtime import FakeRuntime


class Scene:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.api = FakeApi()
        self.runtime = FakeRuntime(self.clock.now)
        self.folder = folder
        self._agent: asyncio.Task[None] | None = None

    def start_agent(
        self, *nodes: str, inventory: Inventory = EMPTY, metrics: AgentMetrics | None = None, **told: Any
    ) -> None:
        config = AgentConfig(
            **{"server": "http://api", "node_names": nodes or ("n1",), "state_dir": self.folder, "address": "10.0.0.1"}
            | told
        )
        api = Api("http://api", transport=self.api)
        self.agent = Agent(config, self.runtime, api, self.clock, inventory=inventory, metrics=metrics)
        self._agent = asyncio.create_task(self.agent.run())

    async def stop_agent(self) -> None:
        if self._agent is not None:
            self._agent.cancel()
            with suppress(asyncio.CancelledError, RevokedError):
                await self._agent
        self._agent = None

    async def ended(self) -> BaseException | None:
        """Why the agent has ended by itself."""
        assert self._agent
        agent, self._agent = self._agent, None
        await self.api.until(agent.done, self.tick)
        return agent.exception()

    async def running(self, **spec) -> None:
        """One pod that runs, and the API knows."""
        self.api.bind(**spec)
        await self.api.until(lambda: self.api.phase() == "Running")

    def tick(self) -> None:
        self.clock.advance(1)

    async def passes(self, seconds: int) -> None:
        """Time, in steps."""
        ends_at, step = self.clock.elapsed() + seconds, max(1, seconds // 40)
        await self.api.until(lambda: self.clock.elapsed() >= ends_at, lambda: self.clock.advance(step))

    def container(self, name: str = "main") -> ContainerStatus:
        status = self.api.status()
        return next(each for each in (*status.init_container_statuses, *status.container_statuses) if each.name == name)

    def waits_for(self, name: str = "main") -> str:
        """The reason for which a container waits."""
        status = self.api.status()
        for each in (*status.init_container_statuses, *status.container_statuses):
            if each.name == name and each.state and each.state.waiting:
                return each.state.waiting.reason
        return ""

    def told(self) -> list[tuple[str, str]]:
        """Reasons and messages of events, in order."""
        return [(each["reason"], each["message"]) for each in self.api.events]

    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.told()]

    def ready(self) -> str:
        return next(each.status for each in self.api.status().conditions if each.type == "Ready")
