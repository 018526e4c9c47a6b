"""An application that is audited, and what it has written."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from app.api.app import create_app
from app.api.audit.auditor import Audit
from app.api.audit.event_buffer import EventBuffer, Mode
from app.api.audit.policy import DEFAULT, read_policy
from app.api.streams.agent_calls import Origin
from app.registry.verbs.objects import Registry
from tests.api.servers import listening

EVERYTHING = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: %s
"""


class Lines:
    """A log in memory. While `error` is set, it cannot be written."""

    def __init__(self) -> None:
        self.text = b""
        self.error: OSError | None = None
        self.tried = 0

    def write(self, lines: deque[bytes]) -> None:
        self.tried += 1
        if self.error:
            raise self.error
        while lines:
            self.text += lines.popleft()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


class Audited:
    """An API process with its log."""

    def __init__(self, url: str, lines: Lines, buffer: EventBuffer) -> None:
        self.url, self.lines, self.buffer = url, lines, buffer

    async def events(self, count: int = 0) -> Sequence[dict[str, Any]]:
        """All events so far, once there are at least `count` of them and none is on its way."""
        async with asyncio.timeout(60):
            while self.buffer._count or len(self.lines.events) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return self.lines.events


@asynccontextmanager
async def audited(
    registry: Registry, policy: str | bytes = DEFAULT, mode: Mode = "batch", wait_seconds: float = 60.0, **limits: int
) -> AsyncIterator[Audited]:
    lines = Lines()
    buffer = EventBuffer(lines, registry.metrics, mode, **limits)
    read = read_policy(policy.encode() if isinstance(policy, str) else policy)
    app = create_app(registry, Origin(), lambda: "", audit=Audit(read, buffer, wait_seconds=wait_seconds))
    writing = asyncio.create_task(buffer.run())
    try:
        async with listening(app) as port:
            yield Audited(f"http://127.0.0.1:{port}", lines, buffer)
    finally:
        writing.cancel()
        await asyncio.wait((writing,))
