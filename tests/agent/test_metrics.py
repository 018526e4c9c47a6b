"""Numbers of an agent: what it runs, how the API answers it, when its lease was renewed; nothing of that unless asked for."""

import subprocess
import sys

from app.agent.metrics import AgentMetrics
from tests.agent.scene import Scene
from tests.metrics.promtool import check_metrics
from tests.metrics.test_registry import samples

UNUSED = """
import sys
import app.main.agent_process, app.agent.agent
print(*[name for name in sys.modules if name.startswith(("app.metrics", "app.agent.metrics", "prometheus_client"))])
"""


async def test_an_agent_counts_its_pods_and_the_answers_of_the_api(scene: Scene) -> None:
    metrics = AgentMetrics(["n1"])
    scene.start_agent(metrics=metrics)
    await scene.running()
    age = samples(await metrics.registry.render())["jobplane_lease_renewal_age_seconds"]
    scene.clock.advance(3)
    text = (await metrics.registry.render()).decode()
    found = samples(text.encode())

    assert found['kubelet_node_name{node="n1"}'] == 1
    assert (found["kubelet_running_pods"], found["kubelet_running_containers"], found["kubelet_desired_pods"]) == (
        1,
        1,
        1,
    )
    assert found["jobplane_status_reports_waiting"] == 0
    assert (found["jobplane_lease_renewal_age_seconds"], found["jobplane_lease_duration_seconds"]) == (age + 3, 40)
    assert (
        sum(value for name, value in found.items() if name.startswith('rest_client_requests_total{method="POST"')) > 0
    )
    check_metrics(text)


def test_answers_that_did_not_come_are_counted() -> None:
    metrics = AgentMetrics(["a", "b"])
    metrics.note_answer("GET", 0)
    metrics.note_answer("GET", 503)

    counter = metrics.registry.counter("rest_client_requests_total", "", ("method", "code"))
    assert (counter.value("GET", "<error>"), counter.value("GET", "503")) == (1, 1)


def test_an_agent_that_nobody_scrapes_loads_nothing_for_it() -> None:
    ran = subprocess.run([sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == []
