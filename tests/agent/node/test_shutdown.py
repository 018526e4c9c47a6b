"""When the node shuts down: who ends, in which order, within which time, and what is told of it."""

import asyncio
from datetime import timedelta

from app.agent.agent import RevokedError
from app.agent.node.shutdown import MESSAGE
from app.plans.kubelet.node_pressure_eviction import CRITICAL
from tests.agent.scene import Scene

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
NODE = "/api/v1/nodes/n1"
MINUTE = {
    "shutdown_grace_period": timedelta(seconds=60),
    "shutdown_grace_period_critical_pods": timedelta(seconds=20),
}


async def shut_down(scene: Scene) -> None:
    """All the way, with time going on."""
    task = asyncio.create_task(scene.agent.shut_down())
    await scene.api.until(task.done, lambda: scene.clock.advance(0.2))
    await task


async def test_pods_end_and_say_why_and_the_node_is_not_ready(scene: Scene) -> None:
    scene.start_agent(**MINUTE)
    await scene.running()
    await shut_down(scene)
    status = scene.api.status()
    (mark,) = [each for each in status.conditions if each.type == "DisruptionTarget"]
    ready = next(each for each in scene.api.objects[NODE]["status"]["conditions"] if each["type"] == "Ready")

    assert (status.phase, status.reason, status.message) == ("Failed", "Terminated", MESSAGE)
    assert (mark.reason, mark.message) == ("TerminationByKubelet", MESSAGE)
    assert (ready["status"], ready["message"]) == ("False", "node is shutting down")
    assert scene.runtime.stops == [(scene.runtime.key(), timedelta(seconds=30))]


async def test_a_pod_has_no_longer_than_the_shutdown(scene: Scene) -> None:
    scene.start_agent(shutdown_grace_period=timedelta(seconds=5))
    await scene.running()
    await shut_down(scene)

    assert scene.runtime.stops == [(scene.runtime.key(), timedelta(seconds=5))]


async def test_critical_pods_go_last(scene: Scene) -> None:
    scene.start_agent(**MINUTE)
    scene.api.bind("own", "u-2", priority=CRITICAL)
    await scene.running()
    await scene.api.until(lambda: scene.api.phase("u-2") == "Running")
    await shut_down(scene)

    assert [key.pod_uid for key, _ in scene.runtime.stops] == ["u-1", "u-2"]
    assert scene.runtime.stops[1][1] == timedelta(seconds=20)


async def test_one_that_does_not_end_does_not_hold_it_up(scene: Scene) -> None:
    scene.start_agent(shutdown_grace_period=timedelta(seconds=5))
    await scene.running()
    scene.runtime.stubborn.add("main")
    began = scene.clock.elapsed()
    await shut_down(scene)

    assert scene.clock.elapsed() - began < 30
    assert scene.api.phase() == "Running"


async def test_no_pod_begins_any_more(scene: Scene) -> None:
    scene.start_agent(**MINUTE)
    await scene.running()
    scene.runtime.stubborn.add("main")
    task = asyncio.create_task(scene.agent.shut_down())
    await scene.api.until(lambda: scene.runtime.stops)
    scene.api.bind("late", "u-2")
    await scene.api.until(lambda: scene.api.phase("u-2") == "Failed", scene.tick)
    task.cancel()

    assert not scene.runtime.was_started(uid="u-2")


async def test_without_a_grace_containers_go_on(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    await shut_down(scene)

    assert scene.api.phase() == "Running"
    assert scene.runtime.stops == []


async def test_an_agent_whose_credential_was_revoked_stops_its_pods_and_then_itself(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.refusals["/leases/n1"] = 401
    await scene.passes(60)
    why = await scene.ended()

    assert isinstance(why, RevokedError)
    assert "the API no longer takes the credential of n1: it was revoked" in str(why)
    assert scene.runtime.stops != []
