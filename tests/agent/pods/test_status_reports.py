"""Reports: batched, newest word only, and one that is refused holds up nothing."""

import asyncio
import json
from contextlib import suppress

import httpx

from app.agent.pods.status_reports import MOST_KEPT, LastReports, StatusReporter
from app.client.api import Api
from app.client.protocol import StatusReport
from app.kinds.pod.pod import Pod, PodStatus
from tests.agent.fake_clock import FakeClock
from tests.registry.examples import a_pod, named


class Server(httpx.AsyncBaseTransport):
    """Takes reports once it is let; refuses any request with the pod `bad` in it."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.open = asyncio.Event()
        self.got = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        items = json.loads(request.content)["items"]
        self.batches.append([f"{each['name']} {each['status']['phase']}" for each in items])
        self.got.set()
        await self.open.wait()
        if any(each["name"] == "bad" for each in items):
            return httpx.Response(422, json={"message": "no"})
        return httpx.Response(200, json={"items": [{"uid": each["uid"], "code": 200} for each in items]})


def report(name: str, phase: str = "Running") -> StatusReport:
    return StatusReport(uid=f"u-{name}", namespace="default", name=name, status=PodStatus(phase=phase))


class HastyClock(FakeClock):
    """Nobody waits for it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class Scene:
    def __init__(self) -> None:
        self.server, self.heard, self.enough = Server(), [], asyncio.Event()
        self.reports = StatusReporter(Api("http://api", transport=self.server), ["n1"], HastyClock())

    def put(self, *reports: StatusReport) -> None:
        for each in reports:
            self.reports.put(each)

    async def until_heard(self, count: int, *meanwhile: StatusReport) -> None:
        """`meanwhile`: what is put while the first request is under way."""

        def hear(report: StatusReport, code: int) -> None:
            self.heard.append((report.name, code))
            if len(self.heard) == count:
                self.enough.set()

        task = asyncio.create_task(self.reports.run(hear))
        async with asyncio.timeout(60):
            await self.server.got.wait()
            self.put(*meanwhile)
            self.server.open.set()
            await self.enough.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_what_changes_during_a_request_goes_together_in_the_next() -> None:
    scene = Scene()
    scene.put(report("a"))
    await scene.until_heard(3, report("b"), report("c"), report("b", "Succeeded"))

    assert scene.server.batches == [["a Running"], ["b Succeeded", "c Running"]]


async def test_after_a_request_of_several_what_comes_in_a_moment_goes_together() -> None:
    """Each word comes when the one before has been answered, in a turn of its own."""
    scene = Scene()
    scene.server.open.set()
    rest = [report(name) for name in "cdef"]

    def hear(_: StatusReport, code: int) -> None:
        scene.heard.append(code)
        if rest:
            asyncio.get_running_loop().call_soon(scene.put, rest.pop(0))
        if len(scene.heard) == 6:
            scene.enough.set()

    scene.put(report("a"), report("b"))
    task = asyncio.create_task(scene.reports.run(hear))
    async with asyncio.timeout(60):
        await scene.enough.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert scene.server.batches[:2] == [["a Running", "b Running"], ["c Running", "d Running"]]


async def test_a_refused_report_does_not_hold_up_the_others() -> None:
    scene = Scene()
    scene.put(report("a"), report("b"), report("bad"), report("c"))
    await scene.until_heard(3)

    assert sorted(name for name, _ in scene.heard) == ["a", "b", "c"]


def pod(uid: str, phase: str = "Running") -> Pod:
    made = named(a_pod(uid), uid=uid)
    return type(made)(metadata=made.metadata, spec=made.spec, status=PodStatus(phase=phase))


def test_the_end_of_a_pod_that_goes_on_for_the_api_is_reported_again() -> None:
    last = LastReports()
    last.keep(report("p", "Succeeded"))

    assert last.find(pod("u-p")) == report("p", "Succeeded")


def test_only_ends_are_kept_and_only_for_pods_that_go_on() -> None:
    last = LastReports()
    last.keep(report("runs", "Running"))
    last.keep(report("ended", "Succeeded"))

    assert last.find(pod("u-runs")) is None
    assert last.find(pod("u-ended", "Succeeded")) is None
    assert last.find(pod("u-another")) is None


def test_the_newest_ends_are_kept() -> None:
    last = LastReports()
    for number in range(MOST_KEPT + 1):
        last.keep(report(str(number), "Succeeded"))

    assert last.find(pod("u-0")) is None
    assert last.find(pod(f"u-{MOST_KEPT}")) is not None
