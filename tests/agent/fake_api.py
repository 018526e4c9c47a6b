"""The part of the API that agents use, in memory, behind an httpx transport: watches stream, and it can go away."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

import httpx
import msgspec
from msgspec.structs import asdict, replace

from app.client.protocol import (
    LogOutcome,
    LogOutcomes,
    LogPiece,
    LogPieces,
    NamespaceLevel,
    NodeUsage,
    StatusOutcome,
    StatusOutcomes,
    StatusReport,
    StatusReports,
    UsageReports,
)
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod, PodSpec, PodStatus, is_terminal
from app.machinery.base import Condition, ObjectMeta

PATIENCE = 60.0


class FakeApi(httpx.AsyncBaseTransport):
    """`journal` tells in order what agents have reported; `requests` counts what it took.

    level: of the namespace, as it comes with each pod that is added.
    """

    def __init__(self) -> None:
        self.revision = 1
        self.pods: dict[str, Pod] = {}
        self.objects: dict[str, Any] = {}
        self.logs: dict[tuple[str, str, int], bytes] = {}
        self.journal: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.usage: list[NodeUsage] = []
        self.peaks: dict[str, dict[str, int]] = {}  # by pod, of the last report
        self.requests: list[str] = []
        self.down = False
        self.refusals: dict[str, int] = {}  # codes, by how the path ends
        self.conflicts = 0  # reports that are still to be answered 409
        self.hold_watches = False
        self.level: NamespaceLevel | None = None
        self._held: list[bytes] = []
        self._history: list[tuple[int, str, bytes]] = []
        self._oldest = 0
        self._watches: list[asyncio.Queue[bytes | None]] = []
        self._changed = asyncio.Event()

    # What a test does

    def bind(self, name: str = "web", uid: str = "u-1", node: str = "n1", **spec: Any) -> Pod:
        """A pod appears on the node, with one container `main` unless told otherwise."""
        metadata = spec.pop("metadata", {})
        usual: dict[str, Any] = {
            "containers": (Container(name="main", image="i", command=("run",)),),
            "restart_policy": "Never",
            "termination_grace_period_seconds": 30,
        }
        pod = Pod(
            api_version="v1",
            kind="Pod",
            metadata=ObjectMeta(name=name, namespace="default", uid=uid, **metadata),
            spec=PodSpec(node_name=node, **(usual | spec)),
            status=PodStatus(phase="Pending"),
        )
        self._store("ADDED", pod)
        return pod

    def delete(self, uid: str = "u-1", grace: int = 30) -> None:
        """A graceful deletion, as `kubectl delete` asks for it; with grace 0 the object is gone at once."""
        pod = self.pods[uid]
        if grace == 0:
            self._remove(uid)
            return
        at = msgspec.convert("2026-01-31T12:00:30Z", type=datetime)
        meta = replace(pod.metadata, deletion_timestamp=at, deletion_grace_period_seconds=grace)
        self._store("MODIFIED", replace(pod, metadata=meta))

    def set_condition(self, condition: Condition, uid: str = "u-1") -> None:
        """Somebody else says something about the pod."""
        pod = self.pods[uid]
        status = replace(pod.status, conditions=(*pod.status.conditions, condition))
        self._store("MODIFIED", replace(pod, status=status))

    def go_away(self) -> None:
        self.down = True
        self.end_watches()

    def end_watches(self) -> None:
        for watch in self._watches:
            watch.put_nowait(None)

    def forget_history(self) -> None:
        """Watches from before now are answered 410."""
        self._oldest = self.revision + 1
        self.revision += 1
        self.end_watches()

    def let_watches_go(self) -> None:
        self.hold_watches = False
        held, self._held = self._held, []
        for line in held:
            self._send(line)

    def status(self, uid: str = "u-1") -> PodStatus:
        return self.pods[uid].status

    def phase(self, uid: str = "u-1") -> str:
        return self.pods[uid].status.phase if uid in self.pods else "gone"

    async def until(
        self, holds: Callable[[], object], meanwhile: Callable[[], None] | None = None, patience: float = PATIENCE
    ) -> None:
        """Waits for it; `meanwhile` is called now and then, to move a clock."""
        async with asyncio.timeout(patience):
            while not holds():
                if meanwhile:
                    meanwhile()
                self._changed.clear()
                try:
                    async with asyncio.timeout(0.01):
                        await self._changed.wait()
                except TimeoutError:
                    continue  # what is waited for may be the runtime's or the clock's

    # What agents do

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("the API is away", request=request)
        path, query = request.url.path, request.url.params
        self.requests.append(f"{request.method} {path}" + (" watch" if "watch" in query else ""))
        if code := next((code for end, code in self.refusals.items() if path.endswith(end)), 0):
            return httpx.Response(code, json={"kind": "Status", "code": code, "message": "refused"})
        if path == "/api/v1/pods":
            return self._watch(query) if "watch" in query else self._list(query)
        answer: Any
        if path.endswith("/statuses"):
            reports = msgspec.json.decode(request.content, type=StatusReports).items
            answer = StatusOutcomes([self._report(each) for each in reports])
        elif path.endswith("/logs"):
            pieces = msgspec.json.decode(request.content, type=LogPieces).items
            answer = LogOutcomes([self._append(each) for each in pieces])
        elif path.endswith("/usage"):
            self.usage += msgspec.json.decode(request.content, type=UsageReports).items
            answer = {"accepted": len(self.usage)}
        else:
            return self._object(request.method, path, json.loads(request.content) if request.content else None)
        self._changed.set()
        return httpx.Response(200, content=msgspec.json.encode(answer))

    def _report(self, report: StatusReport) -> StatusOutcome:
        pod, uid, status = self.pods.get(report.uid), report.uid, report.status
        if pod is None:
            return StatusOutcome(uid, 404, "not found")
        if self.conflicts:
            self.conflicts -= 1
            return StatusOutcome(uid, 409, "changed meanwhile")
        self.events += [{"pod": uid, **asdict(each)} for each in report.events]
        self.journal.append(f"{pod.metadata.name} {status.phase}" + (" gone" if report.gone else ""))
        self.peaks[uid] = report.peak_memory
        if not is_terminal(pod) and pod.status != status:
            self._store("MODIFIED", replace(pod, status=status))
        if report.gone and not pod.metadata.finalizers:
            self._remove(uid)
        return StatusOutcome(uid, 200)

    def _append(self, piece: LogPiece) -> LogOutcome:
        key = (piece.uid, piece.container, piece.attempt)
        have = self.logs.get(key, b"")
        if piece.offset <= len(have):
            have = self.logs[key] = have + piece.data[len(have) - piece.offset :]
            self.journal.append(f"{piece.name} log {len(have)}")
        return LogOutcome(uid=piece.uid, container=piece.container, attempt=piece.attempt, next=len(have))

    def _object(self, method: str, path: str, body: Any) -> httpx.Response:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
        elif path.removesuffix("/status") not in self.objects:
            return httpx.Response(
                404, json={"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
            )
        path = path.removesuffix("/status")
        if body is not None:
            self.objects[path] = self.objects.get(path, {}) | body
            self._changed.set()
        return httpx.Response(200, json=self.objects[path])

    # Lists and watches

    def _of_node(self, query: httpx.QueryParams) -> str:
        found = re.fullmatch(r"spec\.nodeName=(.+)", query["fieldSelector"])
        assert found
        return found[1]

    def _list(self, query: httpx.QueryParams) -> httpx.Response:
        node = self._of_node(query)
        items = [pod for pod in self.pods.values() if pod.spec.node_name == node]
        page = {"kind": "PodList", "metadata": {"resourceVersion": str(self.revision)}, "items": items}
        return httpx.Response(200, content=msgspec.json.encode(page))

    def _watch(self, query: httpx.QueryParams) -> httpx.Response:
        queue: asyncio.Queue[bytes | None]
        since, of_node = int(query["resourceVersion"]), f'"nodeName":"{self._of_node(query)}"'.encode()
        if since < self._oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            queue = asyncio.Queue()
            queue.put_nowait(msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n")
            queue.put_nowait(None)
            return httpx.Response(200, stream=_Stream(queue, b""))
        queue = asyncio.Queue()
        for revision, _, line in self._history:
            if revision > since and of_node in line:
                queue.put_nowait(line)
        self._watches.append(queue)
        return httpx.Response(200, stream=_Stream(queue, of_node))

    def _store(self, change: str, pod: Pod) -> None:
        self.revision += 1
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=str(self.revision)))
        self.pods[pod.metadata.uid] = pod
        self._tell(change, pod)

    def _remove(self, uid: str) -> None:
        self.revision += 1
        self._tell("DELETED", self.pods.pop(uid))

    def _tell(self, change: str, pod: Pod) -> None:
        told = {"namespace": self.level} if self.level and change == "ADDED" else {}
        line = msgspec.json.encode({"type": change, "object": pod, **told}) + b"\n"
        self._history.append((self.revision, change, line))
        if self.hold_watches:
            self._held.append(line)
        else:
            self._send(line)
        self._changed.set()

    def _send(self, line: bytes) -> None:
        for watch in self._watches:
            watch.put_nowait(line)


class _Stream(httpx.AsyncByteStream):
    """Lines as they come, cut in two, because networks do."""

    def __init__(self, queue: "asyncio.Queue[bytes | None]", wanted: bytes) -> None:
        self._queue, self._wanted = queue, wanted

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._queue.get()
            if line is None:
                return
            if self._wanted in line:
                yield line[:20]
                yield line[20:]
