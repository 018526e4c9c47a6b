"""Pods as real processes of this machine, under a whole agent: what probes, hooks and limits come to."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.agent.agent import Agent
from app.agent.config import AgentConfig
from app.agent.pods.container_config import NO_COMMAND
from app.client.api import Api
from app.client.protocol import NamespaceLevel, namespace_path
from app.kinds.pod.container import Container
from app.kinds.pod.probe import ExecAction, Lifecycle, LifecycleHandler, Probe
from app.runtimes.process.runtime import ProcessRuntime
from tests.agent.fake_api import FakeApi


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[tuple[FakeApi, Agent]]:
    """An API whose node n1 runs its pods as processes. What is left running at the end is killed."""
    api = FakeApi()
    runtime = ProcessRuntime(tmp_path / "pods")
    settings = AgentConfig(server="http://api", node_names=("n1",), state_dir=tmp_path, address="127.0.0.1")
    agent = Agent(settings, runtime, Api("http://api", transport=api))
    running = asyncio.create_task(agent.run())
    yield api, agent
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    for sandbox in await runtime.sandboxes():
        await runtime.remove_sandbox(sandbox.pod_uid)
    await runtime.close()


@pytest.fixture
def api(node: tuple[FakeApi, Agent]) -> FakeApi:
    return node[0]


def sh(text: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", text)


def action(text: str) -> LifecycleHandler:
    return LifecycleHandler(exec=ExecAction(command=sh(text)))


async def test_a_container_is_ready_by_its_file_and_says_good_bye(api: FakeApi, tmp_path: Path) -> None:
    ready, story = tmp_path / "ready", tmp_path / "story"
    probe = Probe(exec=ExecAction(command=sh(f"test -e {ready}")), period_seconds=1, timeout_seconds=5)
    lifecycle = Lifecycle(
        post_start=action(f"echo begins >> {story}"), pre_stop=action(f"echo ends >> {story}; sleep 0.1")
    )
    main = Container(
        name="main",
        image="i",
        command=sh(f"trap 'echo told >> {story}; exit 0' TERM; while :; do sleep 0.05; done"),
        readiness_probe=probe,
        lifecycle=lifecycle,
    )
    api.bind(containers=(main,))
    await api.until(lambda: api.phase() == "Running")
    assert not api.status().container_statuses[0].ready

    ready.touch()
    await api.until(lambda: api.status().container_statuses[0].ready)
    api.delete(grace=10)
    await api.until(lambda: api.phase() == "gone")

    assert story.read_text().split() == ["begins", "ends", "told"]
    reasons = [each["reason"] for each in api.events if each["reason"] != "Unhealthy"]
    assert reasons == ["ImageNotUsed", "Created", "Started", "Killing"]


async def test_a_container_that_is_not_alive_is_restarted(api: FakeApi, tmp_path: Path) -> None:
    alive = tmp_path / "alive"
    probe = Probe(
        exec=ExecAction(command=sh(f"test -e {alive}")), period_seconds=1, timeout_seconds=5, failure_threshold=1
    )
    main = Container(
        name="main", image="i", command=sh(f"touch {alive}; sleep 0.3; rm {alive}; exec sleep 60"), liveness_probe=probe
    )
    api.bind(containers=(main,), restart_policy="Always", termination_grace_period_seconds=1)
    await api.until(lambda: api.phase() == "Running" and api.status().container_statuses[0].restart_count == 1)


async def test_a_container_without_a_command_waits(api: FakeApi) -> None:
    api.bind(containers=(Container(name="main", image="i"),))
    await api.until(lambda: api.status().container_statuses)
    waiting = api.status().container_statuses[0].state.waiting

    assert (waiting.reason, waiting.message) == ("CreateContainerError", NO_COMMAND)


async def test_the_end_of_the_log_stands_in_for_a_message(api: FakeApi) -> None:
    main = Container(
        name="main",
        image="i",
        command=sh("seq 200; echo the end; exit 3"),
        termination_message_policy="FallbackToLogsOnError",
    )
    api.bind(containers=(main,))
    await api.until(lambda: api.phase() == "Failed")
    message = api.status().container_statuses[0].state.terminated.message

    assert message.endswith("the end\n")
    assert len(message.splitlines()) == 80


async def test_the_peak_of_its_memory_is_told_with_its_end(node: tuple[FakeApi, Agent], tmp_path: Path) -> None:
    """A process takes 64 MiB, gives them back once the agent has seen it, and ends."""
    api, agent = node
    seen = tmp_path / "seen"
    program = f"""
import mmap, os, time
taken = mmap.mmap(-1, {64 << 20})
taken.write(b"x" * {64 << 20})
while not os.path.exists("{seen}"): time.sleep(0.05)
taken.close()
"""
    api.bind(containers=(Container(name="main", image="i", command=(sys.executable, "-c", program)),))

    def is_seen() -> bool:
        workers = agent._parts[0].workers() if agent._parts else []
        return any(peak > 64 << 20 for worker in workers for peak in worker.peak_memory.values())

    await api.until(is_seen)
    seen.touch()
    await api.until(lambda: api.phase() == "Succeeded")

    assert 64 << 20 < api.peaks["u-1"]["main"] < 256 << 20


async def test_a_pod_whose_level_came_with_it_starts_without_a_question(api: FakeApi) -> None:
    api.level = NamespaceLevel("u", "privileged")
    await api.until(lambda: "GET /api/v1/pods watch" in api.requests)
    api.bind(containers=(Container(name="main", image="i", command=sh("exit 0")),))
    await api.until(lambda: api.phase() == "Succeeded")

    assert f"GET {namespace_path('n1', 'default')}" not in api.requests
