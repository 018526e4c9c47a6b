"""The log of an agent while the API refuses it or is away: one line for each cause, not one for every try."""

import logging

import pytest

from app.agent.agent import RevokedError
from tests.agent.scene import Scene
from tests.log_lines import lines

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"


async def test_a_token_that_is_refused_is_logged_once(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.start_agent()
    await scene.running()
    await scene.api.until(lambda: LEASE in scene.api.objects)
    scene.api.refusals |= dict.fromkeys(("/leases/n1", "/nodes/n1", "/nodes/n1/status", "/usage"), 401)
    caplog.clear()
    await scene.passes(60)

    assert isinstance(await scene.ended(), RevokedError)
    warnings = lines(caplog, logging.WARNING)
    assert len(warnings) == 2
    assert "API refuses the agent's token" in warnings[0]
    assert "lease expired" in warnings[1]
    assert all("node=n1" in line for line in warnings)
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
    await scene.api.until(lambda: "lease is renewed again" in caplog.text, scene.tick)

    assert len([each for each in lines(caplog, logging.WARNING) if "cannot renew lease" in each]) == 1
