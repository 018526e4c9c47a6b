"""The log of an agent while the API or its engine refuses it or is away: each reason once, not with every try."""

import logging

import pytest

from app.agent.agent import RevokedError
from app.agent.tasks import Complaints
from tests.agent.fake_clock import FakeClock
from tests.agent.scene import Scene

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


def warnings(log: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in log.records if each.levelno >= logging.WARNING]


async def test_a_token_that_is_refused_is_logged_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.start_agent()
    await scene.running()
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.refusals |= dict.fromkeys(("/leases/n1", "/nodes/n1", "/nodes/n1/status", "/usage"), 401)
    caplog.clear()
    await scene.passes(60)

    assert isinstance(await scene.ended(), RevokedError)
    of_lease = [each for each in warnings(caplog) if each.startswith("lease of node n1")]
    assert len(of_lease) == 2
    assert "the API does not know the agent's token" in of_lease[0]
    assert of_lease[1].startswith("lease of node n1 expired")
    assert [each for each in warnings(caplog) if each.startswith(("status of node", "usage of"))] == []
    assert "Traceback" not in caplog.text


async def test_an_api_that_is_away_is_logged_once_and_again_when_it_is_back(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene.start_agent()
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.go_away()
    await scene.passes(30)
    scene.api.down = False
    await scene.api.until(lambda: "lease of node n1 is renewed again" in caplog.text, scene.tick)

    of_lease = [each for each in warnings(caplog) if each.startswith("lease of node n1")]
    assert len(of_lease) == 1


def test_a_failure_that_goes_on_is_logged_at_once_and_then_once_a_minute() -> None:
    clock = FakeClock()
    complaints = Complaints(clock)
    levels = []
    for _ in range(121):
        levels.append(complaints.level_of("the runtime", ConnectionError("away")))
        clock.advance(1)
    assert [second for second, level in enumerate(levels) if level == logging.WARNING] == [0, 60, 120]
    assert complaints.level_of("the runtime", ConnectionError("another reason")) == logging.WARNING
    assert complaints.level_of("leases", ConnectionError("another reason")) == logging.WARNING
