"""Numbers of an agent, under the kubelet's names where it has them. Made only for agents that are given a --metrics-address.

`app.main.agent_process` makes them and serves them; `Agent` tells them what to count.
"""

from collections.abc import Iterable, Sequence

from app.agent.node.lease import Leases
from app.agent.pods.pods import Pods
from app.agent.pods.status_reports import StatusReporter
from app.client.api import Api
from app.metrics.instruments import Family, family
from app.metrics.registry import MetricsRegistry

ERROR = "<error>"  # as client-go writes what got no answer


class AgentMetrics:
    """The numbers of one agent, of a node or of a simulated fleet."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self.registry = MetricsRegistry()
        self._requests = self.registry.counter(
            "rest_client_requests_total", "Requests to the API, by method and HTTP status code.", ("method", "code")
        )

    def follow(self, api: Api, pods: Pods, reporter: StatusReporter, leases: Leases) -> None:
        """Count the requests of `api`, and at each scrape what the others hold."""

        async def collect() -> Iterable[Family]:
            return self._families(pods, reporter, leases)

        api.on_answer = self.note_answer
        self.registry.add_collector("agent", collect)

    def note_answer(self, method: str, code: int) -> None:
        """Note an answer of the API; 0: none came."""
        self._requests.inc(method, str(code) if code else ERROR)

    def _families(self, pods: Pods, reporter: StatusReporter, leases: Leases) -> Iterable[Family]:
        workers = pods.workers()
        if len(self._nodes) == 1:
            labels = {"node": self._nodes[0]}
            yield family("kubelet_node_name", "The node's name. The value is always 1.", "gauge", [(labels, 1)])
        running = sum(each.is_live for each in workers)
        yield _one("kubelet_running_pods", "Pods with a running container.", running)
        containers = sum(run.state == "running" for each in workers for run in each.runs.values())
        yield _one("kubelet_running_containers", "Running containers.", containers)
        yield _one(
            "kubelet_desired_pods", "Pods that are to run here, or still have something to be cleaned up.", len(workers)
        )
        yield _one("jobplane_status_reports_waiting", "Reports on pods that the API has not taken yet.", len(reporter))
        yield _one(
            "jobplane_lease_duration_seconds", "Seconds for which a renewal of a lease is good.", leases.duration
        )
        yield _one(
            "jobplane_lease_renewal_age_seconds",
            "Seconds since the last renewal of the lease that has waited longest.",
            leases.oldest_age,
        )


def _one(name: str, help_: str, value: float) -> Family:
    return family(name, help_, "gauge", [({}, value)])
