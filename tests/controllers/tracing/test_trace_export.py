"""Traces of Jobs on a real database, sent by HTTP to a receiver that decodes OpenTelemetry's protobuf."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.client.protocol import StatusReport
from app.controllers.tracing import trace_export
from app.controllers.tracing.otlp import ExportError, OtlpClient, parse_headers, traces_url
from app.controllers.tracing.trace_export import TraceExport
from app.kinds.batch.job import Job, is_finished
from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import PodStatus
from app.machinery.base import Object
from app.plans.jobs.traces import TRACEPARENT
from app.registry.agents.status_reports import accept
from app.registry.verbs.objects import Registry
from app.store import Key
from tests.api.servers import listening
from tests.conftest import Clock
from tests.controllers.machines import a_node, joins
from tests.controllers.running import Running, every, running, until
from tests.registry.examples import JOBS, PODS, a_job, create

TRACE, SUBMITTER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """An OTLP/HTTP receiver. `codes`: its next answers; then 200."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.app = Starlette(routes=[Route("/v1/traces", self.take, methods=["POST"])])
        self.app.state.streams = set()

    async def take(self, request: Request) -> Response:
        if self.codes and (code := self.codes.pop(0)) != 200:
            return Response(status_code=code)
        assert request.headers["content-type"] == "application/x-protobuf"
        self.requests.append(ExportTraceServiceRequest.FromString(await request.body()))
        self.headers.append(dict(request.headers))
        return Response(status_code=200)

    @property
    def spans(self) -> list[object]:
        scopes = [scope for request in self.requests for each in request.resource_spans for scope in each.scope_spans]
        return [span for scope in scopes for span in scope.spans]


@asynccontextmanager
async def collecting(headers: str = "") -> AsyncIterator[tuple[Collector, OtlpClient]]:
    collector = Collector()
    async with listening(collector.app) as port:
        client = OtlpClient(f"http://127.0.0.1:{port}", parse_headers(headers))
        yield collector, client
        await client.close()


async def end_jobs(run: Running, clock: Clock, jobs: Sequence[Job]) -> None:
    """Run Jobs from submission to their end; the pods start after 20 seconds, and take 30.

    Return once the mirror has told its listeners: the database says earlier that a Job has ended.
    """
    registry = run.registry
    ended: set[str] = set()

    def note_end(key: Key, _: Object | None, now: Object | None) -> None:
        if isinstance(now, Job) and is_finished(now):
            ended.add(key.name)

    run.mirror.listen(note_end, {JOBS.resource})
    for job in jobs:
        await create(registry, JOBS, job)
    pods = await until(registry, lambda: _pods_on_nodes(registry, len(jobs)))
    clock.move(seconds=20)
    started = clock()
    clock.move(seconds=30)
    end = ContainerStateTerminated(exit_code=0, started_at=started, finished_at=clock())
    status = PodStatus(
        phase="Succeeded", container_statuses=(ContainerStatus(name="main", state=ContainerState(terminated=end)),)
    )
    reports = [
        StatusReport(
            namespace="default",
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            status=replace(status, conditions=pod.status.conditions),
        )
        for pod in pods
    ]
    await accept(registry, PODS, reports, lambda _: True)

    async def have_ended() -> bool:
        return len(ended) == len(jobs)

    await until(registry, have_ended)


async def _pods_on_nodes(registry: Registry, count: int) -> list[object]:
    found = [pod for pod in await every(registry, PODS) if pod.spec.node_name]
    return found if len(found) == count else []


async def test_a_job_is_traced_from_submit_to_done(registry: Registry, clock: Clock) -> None:
    await joins(registry, a_node())
    parent = f"00-{TRACE}-{SUBMITTER}-01"
    async with collecting("Authorization=Bearer%20secret") as (collector, client), running(registry) as run:
        export = TraceExport(registry.store, run.mirror, client, registry.metrics)
        await end_jobs(run, clock, [a_job(metadata={"annotations": {TRACEPARENT: parent}})])
        await export.run_once(clock())

    job, attempt, queued, pulling, running_ = collector.spans
    assert [each.name for each in collector.spans] == ["job", "attempt", "queued", "pulling", "running"]
    assert {each.trace_id.hex() for each in collector.spans} == {TRACE}
    assert (job.parent_span_id.hex(), attempt.parent_span_id) == (SUBMITTER, job.span_id)
    assert {each.parent_span_id for each in (queued, pulling, running_)} == {attempt.span_id}
    lasted = [(each.end_time_unix_nano - each.start_time_unix_nano) // 10**9 for each in collector.spans]
    assert lasted == [50, 50, 0, 20, 30]
    said = {
        each.key: each.value.string_value or each.value.int_value for each in (*job.attributes, *attempt.attributes)
    }
    assert said["k8s.job.name"] == "pi"
    assert (said["k8s.node.name"], said["jobplane.pod.phase"], said["jobplane.job.result"]) == (
        "n1",
        "Succeeded",
        "Complete",
    )
    (resource,) = collector.requests[0].resource_spans
    assert [each.value.string_value for each in resource.resource.attributes] == ["jobplane"]
    assert collector.headers[0]["authorization"] == "Bearer secret"
    assert registry.metrics.counter("jobplane_trace_spans_exported_total", "").value() == 5


async def test_a_collector_that_is_away_is_tried_again(registry: Registry, clock: Clock) -> None:
    await joins(registry, a_node())
    async with collecting() as (collector, client), running(registry) as run:
        export = TraceExport(registry.store, run.mirror, client, registry.metrics)
        await end_jobs(run, clock, [a_job()])
        collector.codes = [503]
        with pytest.raises(ExportError, match="answered 503"):
            await export.run_once(clock())
        assert collector.spans == []
        await export.run_once(clock())
        await export.run_once(clock())

    assert len(collector.spans) == 5


@pytest.mark.parametrize("codes", [[400], [503] * 3])
async def test_a_trace_that_nobody_takes_is_dropped_and_counted(
    registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch, codes: list[int]
) -> None:
    monkeypatch.setattr(trace_export, "MOST_TRIES", 3)
    await joins(registry, a_node())
    async with collecting() as (collector, client), running(registry) as run:
        export = TraceExport(registry.store, run.mirror, client, registry.metrics)
        await end_jobs(run, clock, [a_job()])
        collector.codes = list(codes)
        dropped = registry.metrics.counter("jobplane_trace_jobs_dropped_total", "")
        while not dropped.value():
            await asyncio.gather(export.run_once(clock()), return_exceptions=True)
        await export.run_once(clock())  # nothing waits any more

    assert (collector.codes, collector.requests, dropped.value()) == ([], [], 1)


async def test_only_so_many_jobs_wait(registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_export, "MOST_WAITING", 1)
    await joins(registry, a_node())
    async with collecting() as (collector, client), running(registry) as run:
        export = TraceExport(registry.store, run.mirror, client, registry.metrics)
        await end_jobs(run, clock, [a_job("a"), a_job("b")])
        await export.run_once(clock())

    assert [each.name for each in collector.spans].count("job") == 1
    assert registry.metrics.counter("jobplane_trace_jobs_dropped_total", "").value() == 1


async def test_a_large_trace_goes_in_parts(registry: Registry, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_export, "MOST_SPANS", 2)
    await joins(registry, a_node())
    async with collecting() as (collector, client), running(registry) as run:
        export = TraceExport(registry.store, run.mirror, client, registry.metrics)
        await end_jobs(run, clock, [a_job()])
        await export.run_once(clock())

    assert len(collector.requests) == 3
    assert len(collector.spans) == 5


async def test_a_collector_that_does_not_listen() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    client = OtlpClient(f"http://127.0.0.1:{port}", {"Authorization": "secret"})
    with pytest.raises(ExportError, match="does not answer: ConnectError") as failed:
        await client.send(b"")
    await client.close()
    assert not failed.value.is_final


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp", "https://c/otlp/v1/traces"),
        ("https://c/v1/traces", "https://c/v1/traces"),
    ],
)
def test_the_path_is_added_to_an_endpoint_without(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


def test_headers_are_pairs() -> None:
    assert parse_headers("a=1, b = x%2Cy ,") == {"a": "1", "b": "x,y"}
    for wrong in ("a", "=1"):
        with pytest.raises(ValueError, match="name=value"):
            parse_headers(wrong)
