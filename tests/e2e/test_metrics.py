"""Numbers of a whole Jobplane that runs a Job: what Prometheus, the dashboard and the alerts of monitoring/ find there."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.conftest import NO_TLS
from tests.e2e.cluster import Cluster, free_port, until
from tests.metrics.dashboard import ALERTS, FOLDER, alert_expressions, dashboard_expressions, metric_names, names_of
from tests.metrics.promtool import check_metrics
from tests.metrics.test_registry import samples
from tests.needs import lacking

SECONDS = 60
CONTAINER = {"name": "main", "image": "busybox", "command": ["sh", "-c", "exit 0"]}
JOB = {
    "metadata": {"name": "counted"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}},
}
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:monitoring"}
BINDING = {
    "metadata": {"name": "prometheus"},
    "roleRef": ROLE,
    "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}],
}


class Collector(ThreadingHTTPServer):
    """A receiver of traces. `spans`: the names of those that have come."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: list[str] = []


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.spans += [span.name for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Monitored(Cluster):
    """A Jobplane whose controllers and agent serve their numbers at `port` and the next, and that sends traces."""

    def __init__(self, folder: Path, collector: Collector) -> None:
        self.metrics_port, self.collector = free_port(2), collector
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        address = f"127.0.0.1:{self.metrics_port}"
        super().__init__(folder, "--metrics-address", address, JOBPLANE_OTLP_ENDPOINT=endpoint)

    def plain(self, part: str, path: str) -> str:
        """What the controllers or the agent answer."""
        port = self.metrics_port + (part == "agent")
        return httpx.get(f"http://127.0.0.1:{port}{path}", verify=NO_TLS, timeout=30).text


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    with Collector() as collector:
        serving = Thread(target=collector.serve_forever)
        serving.start()
        try:
            with Monitored(tmp_path_factory.mktemp("monitored") / "data", collector) as running:
                yield running
        finally:
            collector.shutdown()
            serving.join()


def ok(answer: httpx.Response) -> Any:
    assert answer.is_success, answer.text
    return answer.json()


def monitoring_token(client: httpx.Client) -> str:
    """The token of a service account that may read the numbers, as docs/monitoring.md makes it."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    for path, made in ((accounts, {"metadata": {"name": "prometheus"}}), (bindings, BINDING)):
        answer = client.post(path, json=made)
        assert answer.is_success or answer.status_code == 409, answer.text
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 31536000},
    }
    return str(ok(client.post(f"{accounts}/prometheus/token", json=request))["status"]["token"])


def is_complete(client: httpx.Client) -> bool:
    status = ok(client.get("/apis/batch/v1/namespaces/default/jobs/counted"))["status"]
    return any(each["type"] == "Complete" for each in status.get("conditions", ()))


def test_a_job_is_seen_in_the_numbers_of_all_programs(monitored: Monitored) -> None:
    with monitored.client() as client:
        ok(client.post("/apis/batch/v1/namespaces/default/jobs", json=JOB))
        until(lambda: is_complete(client), SECONDS, "the Job is complete")
        token = monitoring_token(client)
        api = client.get("/metrics", headers={"Authorization": f"Bearer {token}"}).text
    complete = 'kube_job_complete{namespace="default",condition="true"}'
    until(lambda: samples(monitored.plain("controllers", "/metrics").encode()).get(complete) == 1, SECONDS, complete)
    scrapes = {"api": api, **{part: monitored.plain(part, "/metrics") for part in ("controllers", "agent")}}

    for text in scrapes.values():
        check_metrics(text)
        assert token not in text
    controllers, agent = (samples(scrapes[part].encode()) for part in ("controllers", "agent"))
    assert controllers['leader_election_master_status{name="jobplane-controllers"}'] == 1
    assert controllers["scheduler_pod_scheduling_sli_duration_seconds_count"] == 1
    assert agent['rest_client_requests_total{method="POST",code="200"}'] > 0
    assert re.search(
        r'^jobplane_certificate_expiration_timestamp_seconds\{certificate="server"} \d+', api, re.MULTILINE
    )

    there = {name for text in scrapes.values() for name in names_of(text)}
    for expression in (*dashboard_expressions(), *alert_expressions()):
        assert metric_names(expression) <= there, expression


@contextmanager
def prometheus(monitored: Monitored, token: str, folder: Path) -> Iterator[httpx.Client]:
    """A Prometheus with the configuration of monitoring/, which scrapes each second; yields a client of its API."""
    program = shutil.which("prometheus") or lacking("prometheus (Debian's package prometheus)")
    here = {"6443": monitored.port, "9464": monitored.metrics_port, "9465": monitored.metrics_port + 1, "15s": "1s"}
    configuration = (FOLDER / "prometheus.yml").read_text()
    for ours, its in here.items():
        assert ours in configuration
        configuration = configuration.replace(ours, str(its))
    (folder / "prometheus.yml").write_text(configuration)
    (folder / "prometheus.token").write_text(token)
    for file in (ALERTS, monitored.folder / "tls" / "ca.crt"):
        shutil.copy(file, folder)
    port = free_port()
    words = [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        ran = subprocess.Popen([program, "--config.file=prometheus.yml", *words], cwd=folder, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", verify=NO_TLS) as client:
            yield client
    finally:
        ran.kill()
        ran.wait()


def ask(client: httpx.Client, expression: str) -> list[Any]:
    """The series that Prometheus answers with; none while it does not listen yet, or reads what it has stored."""
    try:
        answer = client.get("/query", params={"query": expression})
    except httpx.TransportError:
        return []
    if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        return []
    assert answer.is_success, f"{expression}: {answer.text}"
    return list(answer.json()["data"]["result"])


def test_prometheus_answers_every_question_of_the_dashboard(monitored: Monitored, tmp_path: Path) -> None:
    """By scrapes of its own, as monitoring/prometheus.yml has them; also whatever the alerts ask."""
    with monitored.client() as client:
        token = monitoring_token(client)
    with prometheus(monitored, token, tmp_path) as client:
        twice = "min(count_over_time(up[1m])) >= 2 and sum(up) == 3"
        until(lambda: ask(client, twice), SECONDS, f"all are scraped twice; see {tmp_path}/log")

        found = {each: ask(client, each) for each in dashboard_expressions()}
        for each in alert_expressions():
            ask(client, each)

    assert sum(map(bool, found.values())) > len(found) / 2, [each for each, series in found.items() if not series]


def test_the_trace_of_a_job_reaches_the_collector(monitored: Monitored) -> None:
    with monitored.client() as client:
        ok(client.post("/apis/batch/v1/namespaces/default/jobs", json=JOB | {"metadata": {"name": "traced"}}))
    seen = monitored.collector.spans
    until(lambda: seen[-5:] == ["job", "attempt", "queued", "pulling", "running"], SECONDS, "the trace is exported")


@pytest.mark.parametrize("part", ["controllers", "agent"])
def test_controllers_and_agents_answer_probes(monitored: Monitored, part: str) -> None:
    assert monitored.plain(part, "/readyz?verbose").endswith("readyz check passed\n")
    assert monitored.plain(part, "/livez") == "ok"
