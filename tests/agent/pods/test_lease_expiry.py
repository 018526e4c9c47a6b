"""A node that is not heard: what it goes on with, when that is stopped, and what happens when it is heard again."""

from datetime import timedelta

import pytest

from app.agent.agent import RevokedError
from app.kinds.pod.affinity import Toleration
from tests.agent.scene import Scene
from tests.agent.test_agent import LEASE


def bears(seconds: int | None) -> Toleration:
    return Toleration(
        key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=seconds
    )


async def test_without_its_lease_a_node_stops_its_pods(scene: Scene) -> None:
    scene.start_agent()
    await scene.running()
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    for _ in range(39):
        scene.tick()
    assert scene.runtime.stops == []

    await scene.api.until(lambda: scene.runtime.stops, scene.tick)

    ((key, grace),) = scene.runtime.stops
    assert key == scene.runtime.key()
    assert timedelta(seconds=6) < grace < timedelta(seconds=8)  # it ends before the 50th second, whatever it is asked


async def test_a_pod_goes_on_for_as_long_as_it_bears_that(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(tolerations=(bears(300),))
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.passes(310)
    assert scene.runtime.stops == []

    await scene.api.until(lambda: scene.runtime.stops, scene.tick)

    ((_, grace),) = scene.runtime.stops
    assert timedelta(seconds=28) < grace <= timedelta(seconds=30)


async def test_a_pod_that_bears_it_for_ever_is_never_stopped(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(tolerations=(bears(None),))
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.passes(2000)

    assert scene.runtime.stops == []


@pytest.mark.parametrize("seconds", [pytest.param(300, id="for long"), pytest.param(None, id="for ever")])
async def test_with_its_credential_revoked_nothing_is_worth_bearing(scene: Scene, seconds: int | None) -> None:
    scene.start_agent()
    await scene.running(tolerations=(bears(seconds),))
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.refusals["/leases/n1"] = 401
    await scene.passes(39)
    assert scene.runtime.stops == []

    await scene.passes(10)
    assert scene.runtime.stops != []
    assert isinstance(await scene.ended(), RevokedError)


async def test_back_again_it_first_asks_which_pods_are_still_there(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.api.until(lambda: scene.runtime.stops, scene.tick)
    scene.api.refusals["/pods"] = 500
    scene.api.down = False
    renewed = scene.api.objects[LEASE]["spec"]["renewTime"]
    await scene.api.until(lambda: scene.api.objects[LEASE]["spec"]["renewTime"] != renewed, scene.tick)
    await scene.passes(100)
    assert not scene.runtime.was_started(attempt=1)

    scene.api.refusals.clear()
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1), scene.tick)


async def test_a_pod_that_comes_while_there_is_no_lease_waits_for_it(scene: Scene) -> None:
    scene.start_agent()
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.passes(50)
    scene.api.refusals["/leases/n1"] = 500
    scene.api.down = False
    scene.api.bind()
    await scene.api.until(lambda: "GET /api/v1/pods watch" in scene.api.requests[-20:], scene.tick)
    await scene.passes(30)
    assert scene.runtime.started == []

    scene.api.refusals.clear()
    await scene.api.until(lambda: scene.api.phase() == "Running", scene.tick)


async def test_back_again_it_reports_and_goes_on(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.api.until(lambda: scene.runtime.stops, scene.tick)
    assert not scene.runtime.was_started(attempt=1)

    scene.api.down = False
    await scene.api.until(lambda: scene.runtime.was_started(attempt=1), scene.tick)


async def test_a_pod_that_was_replaced_meanwhile_is_not_started_again(scene: Scene) -> None:
    scene.start_agent()
    await scene.running(restart_policy="OnFailure")
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.api.until(lambda: scene.runtime.stops, scene.tick)
    scene.api.delete(grace=0)
    scene.api.down = False
    await scene.api.until(lambda: scene.runtime.removed, scene.tick)

    assert len(scene.runtime.started) == 1
