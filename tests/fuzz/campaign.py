"""Fires requests and judges what comes back: nothing at or above 500, every refusal a Status, every object stays readable."""

import asyncio
import gzip
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from app.kinds import KINDS
from app.machinery.base import Kind
from tests.fuzz import published
from tests.fuzz.shots import Shot, shot
from tests.fuzz.target import Target
from tests.fuzz.wire import Answer, Connection, Request
from tests.fuzz.world import World

CONNECTIONS = 8
CHECKED = 0.15  # of the accepted writes are looked at closely
TABLE = b"application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = b"application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = b"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass
class Findings:
    """What was wrong, with what it takes to see it again; and how many requests had which code."""

    faults: dict[str, str] = field(default_factory=dict)
    codes: Counter[int] = field(default_factory=Counter)

    def add(self, request: Request, answer: Answer | None, why: str) -> None:
        said = f"{answer.code} {answer.body[:600]!r}" if answer else "nothing"
        body = (request.body or b"".join(request.chunks))[:2500]
        shown = f"{request.method} {request.target[:300]!r} {request.headers[1:]!r:.300} {body!r}"
        self.faults.setdefault(why if "published" in why else f"{why} {said[:160]}", f"{why}\n  {shown}\n  -> {said}")

    def told(self) -> str:
        return "\n".join(self.faults.values())


async def campaign(target: Target, requests: int, seed: int) -> Findings:
    """So many requests, over a few connections, each with a world of its own."""
    findings = Findings()
    each = requests // CONNECTIONS
    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            group.create_task(_Fuzzer(target, World(seed, number), findings, each).run())
    return findings


class _Fuzzer:
    """One connection's share."""

    def __init__(self, target: Target, world: World, findings: Findings, requests: int) -> None:
        self._connection = Connection(target.port)
        self._world = world
        self._findings = findings
        self._left = requests
        self._tokens = {"admin": target.admin, "agent": target.agent, "nobody": "no-such-token"}

    async def run(self) -> None:
        try:
            await self._prepare()
            while self._left > 0:
                await self._fire(shot(self._world, self._tokens))
            await self._sweep()
        finally:
            self._connection.close()

    async def _prepare(self) -> None:
        """A namespace, and a user with few rights whose token is tried as well."""
        space = self._world.namespace
        account = f"/api/v1/namespaces/{space}/serviceaccounts"
        await self._ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        await self._ask("POST", account, {"metadata": {"name": "default"}})
        await self._ask("POST", account, {"metadata": {"name": "editor"}})
        binding = {
            "metadata": {"name": "edit"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "editor", "namespace": space}],
        }
        await self._ask("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space}/rolebindings", binding)
        made = await self._ask("POST", f"{account}/editor/token", {"spec": {}})
        self._tokens["editor"] = json.loads(made.body)["status"]["token"]

    async def _fire(self, fired: Shot) -> None:
        answer = await self._judged(fired.request)
        kind, name, method = fired.kind, fired.name, fired.request.method
        if kind is None or answer is None or not (200 <= answer.code < 300 or answer.code == 404):
            return
        document = _object(kind, answer)
        if method == "DELETE" or document is None:
            if name and (answer.code == 404 or method == "DELETE"):  # perhaps for show only, but then it is not missed
                self._world.forget(kind, name)
            return
        if b"dryRun" in fired.request.target:
            return
        self._world.keep(kind, document)
        if self._world.rng.random() < CHECKED:
            await self._look_at(kind, document["metadata"]["name"])

    async def _judged(self, request: Request) -> Answer | None:
        self._left -= 1
        try:
            answer = await self._connection.ask(request)
        except TimeoutError:
            self._connection.close()
            self._findings.add(request, None, "no answer in time")
            return None
        self._findings.codes[answer.code] += 1
        fault = fault_of(request, answer)
        if fault:
            self._findings.add(request, answer, fault)
        return answer

    async def _look_at(self, kind: Kind, name: str) -> None:
        """What was accepted is readable in every form, and its own GET can be put back."""
        path = f"{self._world.collection(kind)}/{quote(name)}"
        for accept in (TABLE, PARTIAL):
            await self._expect(kind, "GET", path, accept=accept)
        stored = await self._expect(kind, "GET", path)
        if stored is not None:
            fault = published.fault_of(kind, json.loads(stored.body))
            if fault:
                self._findings.add(self._request("GET", path, b"", b""), stored, f"not as published: {fault}")
            await self._expect(kind, "PUT", path, stored.body)

    async def _expect(
        self, kind: Kind, method: str, path: str, body: bytes = b"", accept: bytes = b""
    ) -> Answer | None:
        request = self._request(method, path, body, accept)
        answer = await self._judged(request)
        if answer is None or answer.code == 200:
            return answer
        if kind.namespaced or answer.code not in (404, 409):  # cluster-wide, others may have been at it
            self._findings.add(request, answer, f"{method} of what was accepted")
        return None

    async def _sweep(self) -> None:
        """Every collection, in every form; and every object put back as it is."""
        for kind in KINDS:
            collection = self._world.collection(kind)
            for accept in (b"", TABLE, PARTIAL_LIST):
                await self._expect(kind, "GET", collection, accept=accept)
            for each in self._world.all(kind):
                await self._look_at(kind, each["metadata"]["name"])

    def _request(self, method: str, path: str, body: bytes, accept: bytes) -> Request:
        headers = [(b"Authorization", f"Bearer {self._tokens['admin']}".encode())]
        if accept:
            headers.append((b"Accept", accept))
        return Request(method, path.encode(), tuple(headers), body)

    async def _ask(self, method: str, path: str, document: Any) -> Answer:
        answer = await self._connection.ask(self._request(method, path, json.dumps(document).encode(), b""))
        assert answer.code in (200, 201, 409), answer
        return answer


def _object(kind: Kind, answer: Answer) -> dict[str, Any] | None:
    """The object that the answer carries, if it does."""
    try:
        document = json.loads(_body(answer))
    except ValueError:
        return None
    if isinstance(document, dict) and document.get("kind") == kind.name and document["metadata"].get("resourceVersion"):
        return document
    return None


def _body(answer: Answer) -> bytes:
    return gzip.decompress(answer.body) if answer.headers.get("content-encoding") == "gzip" else answer.body


_WITHOUT_STATUS = {408, 414, 431}  # refused before it is known whom a request is for: plain text, as from Go's server


def fault_of(request: Request, answer: Answer) -> str:
    """What is wrong with an answer; empty if nothing is."""
    is_unreachable = answer.code == 503 and b"/proxy" in request.target  # there is no pod behind it
    if answer.code >= 500 and not is_unreachable:
        return "an error of the server's"
    if answer.code == 0:
        return "closed without an answer"
    if request.method == "HEAD" or answer.code in (101, 204, 304) or 300 <= answer.code < 400:
        return ""
    try:
        document = json.loads(_body(answer)) if answer.media_type == "application/json" else None
    except ValueError:
        return "JSON that is none"
    if answer.code >= 400:
        return _fault_of_refusal(answer, document)
    return ""


def _fault_of_refusal(answer: Answer, document: Any) -> str:
    if answer.code in _WITHOUT_STATUS:
        return ""
    if document is None:
        return "" if answer.body == b"Invalid HTTP request received." else "a refusal that is no Status"
    if not isinstance(document, dict) or (document.get("kind"), document.get("status")) != ("Status", "Failure"):
        return "a refusal that is no Status"
    if document.get("code") != answer.code or not document.get("message") or not document.get("reason"):
        return "a Status without its code, message or reason"
    return ""
